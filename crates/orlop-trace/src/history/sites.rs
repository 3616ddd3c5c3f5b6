//! Call sites, each stored once: a snapshot has tens of thousands of events from a few hundred sites.

use super::interner::Interner;

/// A text of a [`Sites`] table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TextId(u32);

impl TextId {
    /// The empty text.
    pub const NONE: Self = Self(0);

    /// Returns the index in the table.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A call site: a list of frames in a [`Sites`] table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SiteId(u32);

impl SiteId {
    /// The site without frames: unknown.
    pub const UNKNOWN: Self = Self(0);

    /// Returns the index in the table.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A frame of a backtrace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Frame {
    /// The function.
    pub function: TextId,
    /// The file; `??` if unknown.
    pub file: TextId,
    /// The line, from 1; 0 if unknown.
    pub line: u32,
}

/// Tables of texts, frames and stacks without duplicates.
#[derive(Debug, Clone)]
pub struct Sites {
    texts: Interner<Box<str>>,
    frames: Interner<Frame>,
    /// The ids of the frames of each site, innermost first.
    stacks: Interner<Box<[u32]>>,
}

impl Default for Sites {
    fn default() -> Self {
        let (texts, frames, stacks) = (Interner::default(), Interner::default(), Interner::default());
        let mut sites = Self { texts, frames, stacks };
        sites.text("");
        sites.stack(&[]);
        sites
    }
}

impl Sites {
    /// Returns the id of a text and adds it if it is new.
    pub fn text(&mut self, text: &str) -> TextId {
        TextId(self.texts.id(text))
    }

    /// Returns the id of a frame, for [`Sites::stack`], and adds it if it is new.
    pub fn frame(&mut self, function: &str, file: &str, line: u32) -> u32 {
        let frame = Frame { function: self.text(function), file: self.text(file), line };
        self.frame_of(frame)
    }

    /// Returns the id of a frame whose texts are in this table.
    pub fn frame_of(&mut self, frame: Frame) -> u32 {
        self.frames.id(&frame)
    }

    /// Returns the id of a stack of frames, innermost first.
    pub fn stack(&mut self, frames: &[u32]) -> SiteId {
        SiteId(self.stacks.id(frames))
    }

    /// Returns the frames of a site, innermost first.
    pub fn frames(&self, site: SiteId) -> impl ExactSizeIterator<Item = Frame> + DoubleEndedIterator + '_ {
        let stack = self.stacks.get(site.0).map_or(&[][..], |stack| &**stack);
        stack.iter().map(|&frame| self.frames.get(frame).copied().unwrap_or_default())
    }

    /// Returns a text; empty for an id of another table.
    #[must_use]
    pub fn name(&self, text: TextId) -> &str {
        self.texts.get(text.0).map_or("", |text| &**text)
    }

    /// Returns the number of sites, including the unknown one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Returns `true` if there are no sites but the unknown one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.len() == 1
    }
}
