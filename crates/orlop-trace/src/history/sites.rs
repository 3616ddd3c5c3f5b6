//! Call sites, each kept once: a snapshot has tens of thousands of events from a few hundred places.

use std::collections::HashMap;

/// A text of a [`Sites`] table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TextId(u32);

impl TextId {
    /// The empty text.
    pub const NONE: Self = Self(0);

    /// Its number, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A call site: a list of frames in a [`Sites`] table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SiteId(u32);

impl SiteId {
    /// The site without frames: the source does not tell.
    pub const UNKNOWN: Self = Self(0);

    /// Its number, from 0.
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
    /// The file; `??` where it is not known.
    pub file: TextId,
    /// The line, from 1; 0 where it is not known.
    pub line: u32,
}

/// Texts, frames and lists of frames, each once.
#[derive(Debug, Clone)]
pub struct Sites {
    texts: Vec<Box<str>>,
    text_ids: HashMap<Box<str>, TextId>,
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, u32>,
    /// Each the numbers of its frames, innermost first.
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
    /// The number of a text, which is kept if it is new.
    pub fn text(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.text_ids.get(text) {
            return id;
        }
        let id = TextId(number(self.texts.len()));
        self.texts.push(text.into());
        self.text_ids.insert(text.into(), id);
        id
    }

    /// The number of a frame, for [`Sites::stack`].
    pub fn frame(&mut self, function: &str, file: &str, line: u32) -> u32 {
        let frame = Frame { function: self.text(function), file: self.text(file), line };
        self.known_frame(frame)
    }

    /// The same, of texts of this table.
    pub(crate) fn known_frame(&mut self, frame: Frame) -> u32 {
        if let Some(&id) = self.frame_ids.get(&frame) {
            return id;
        }
        let id = number(self.frames.len());
        self.frames.push(frame);
        self.frame_ids.insert(frame, id);
        id
    }

    /// The number of a list of frames, innermost first.
    pub fn stack(&mut self, frames: &[u32]) -> SiteId {
        if let Some(&id) = self.stack_ids.get(frames) {
            return id;
        }
        let id = SiteId(number(self.stacks.len()));
        self.stacks.push(frames.into());
        self.stack_ids.insert(frames.into(), id);
        id
    }

    /// The frames of a site, innermost first.
    pub fn frames(&self, site: SiteId) -> impl ExactSizeIterator<Item = Frame> + DoubleEndedIterator + '_ {
        let stack = self.stacks.get(site.index()).map_or(&[][..], |stack| &**stack);
        stack.iter().map(|&frame| self.frames[frame as usize])
    }

    /// A text; empty for a number of another table.
    #[must_use]
    pub fn name(&self, text: TextId) -> &str {
        self.texts.get(text.index()).map_or("", |text| &**text)
    }

    /// How many sites there are, the one without frames included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether no source told where anything happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.len() == 1
    }
}

/// Tables have fewer entries than their sources have bytes; what passes 2^32 is counted as unknown.
fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(0)
}
