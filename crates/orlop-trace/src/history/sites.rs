//! Call sites, each stored once: a snapshot has tens of thousands of events from a few hundred sites.

use std::collections::HashMap;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    texts: Vec<Box<str>>,
    text_ids: HashMap<Box<str>, TextId>,
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, u32>,
    /// The ids of the frames of each site, innermost first.
    stacks: Vec<Box<[u32]>>,
    stack_ids: HashMap<Box<[u32]>, SiteId>,
}

impl Default for Sites {
    fn default() -> Self {
        let mut sites = Self {
            texts: Vec::new(),
            text_ids: HashMap::new(),
            frames: Vec::new(),
            frame_ids: HashMap::new(),
            stacks: Vec::new(),
            stack_ids: HashMap::new(),
        };
        sites.text("");
        sites.stack(&[]);
        sites
    }
}

impl Sites {
    /// Returns the id of a text and adds it if it is new.
    pub fn text(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.text_ids.get(text) {
            return id;
        }
        let id = TextId(number(self.texts.len()));
        self.texts.push(text.into());
        self.text_ids.insert(text.into(), id);
        id
    }

    /// Returns the id of a frame, for [`Sites::stack`], and adds it if it is new.
    pub fn frame(&mut self, function: &str, file: &str, line: u32) -> u32 {
        let frame = Frame { function: self.text(function), file: self.text(file), line };
        self.frame_of(frame)
    }

    /// Returns the id of a frame whose texts are in this table.
    pub fn frame_of(&mut self, frame: Frame) -> u32 {
        if let Some(&id) = self.frame_ids.get(&frame) {
            return id;
        }
        let id = number(self.frames.len());
        self.frames.push(frame);
        self.frame_ids.insert(frame, id);
        id
    }

    /// Returns the id of a stack of frames, innermost first.
    pub fn stack(&mut self, frames: &[u32]) -> SiteId {
        if let Some(&id) = self.stack_ids.get(frames) {
            return id;
        }
        let id = SiteId(number(self.stacks.len()));
        self.stacks.push(frames.into());
        self.stack_ids.insert(frames.into(), id);
        id
    }

    /// Returns the frames of a site, innermost first.
    pub fn frames(&self, site: SiteId) -> impl ExactSizeIterator<Item = Frame> + DoubleEndedIterator + '_ {
        let stack = self.stacks.get(site.index()).map_or(&[][..], |stack| &**stack);
        stack.iter().map(|&frame| self.frames[frame as usize])
    }

    /// Returns a text; empty for an id of another table.
    #[must_use]
    pub fn name(&self, text: TextId) -> &str {
        self.texts.get(text.index()).map_or("", |text| &**text)
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

/// Tables have fewer entries than their sources have bytes. Entries beyond 2^32 count as unknown.
fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(0)
}
