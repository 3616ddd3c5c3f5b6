//! Annotations that a program sets while it runs: phases that begin and end.

use super::TextId;

/// A mark that the program set, beside the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// The time in nanoseconds, by the clock of the events.
    pub time: u64,
    /// The device; `None` if it belongs to none.
    pub device: Option<u32>,
    /// The text.
    pub name: TextId,
    /// Whether it begins or ends a phase.
    pub stage: AnnotationStage,
}

/// Which end of a phase an [`Annotation`] marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnnotationStage {
    /// The phase begins.
    Begin,
    /// The phase ends.
    End,
    /// A point in time, or the source does not say.
    Instant,
}
