//! What a program says about itself while it runs: which phase begins, which one ends.

use super::TextId;

/// A mark that the program set, beside the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// When, in nanoseconds, by the clock of the events.
    pub time: u64,
    /// On which device; `None` if on none.
    pub device: Option<u32>,
    /// What it says.
    pub name: TextId,
    /// Whether something begins here.
    pub stage: Stage,
}

/// Which end of what an [`Annotation`] names it marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// It begins.
    Begin,
    /// It ends.
    End,
    /// It has no length, or the source does not say.
    Moment,
}
