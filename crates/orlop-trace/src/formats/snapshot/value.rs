//! Values of records, in either form of a snapshot: both readers are [`RecordValue`]s, every record is a
//! [`SnapshotRecord`], and how a snapshot is built is written once.

use super::build::{Build, RecordFault};
use super::words::Word;
use crate::history::{SiteId, TextId};

/// A value of no parts, or what a record can use of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarValue {
    /// A whole number that is not negative.
    Number(u64),
    Flag(bool),
    Word(Word),
    /// The first two of a list, both numbers.
    Pair(u64, u64),
    /// Anything else: none, a float, a negative number.
    Odd,
}

impl ScalarValue {
    pub(super) fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    pub(super) fn flag(self) -> bool {
        matches!(self, Self::Flag(true))
    }

    pub(super) fn word(self) -> Word {
        if let Self::Word(word) = self { word } else { Word::Other }
    }

    pub(super) fn pair(self) -> (u64, u64) {
        if let Self::Pair(first, second) = self { (first, second) } else { (0, 0) }
    }
}

/// A value of a record, read by exactly one of these.
pub(super) trait RecordValue: Sized {
    type Error;

    fn scalar(self) -> Result<ScalarValue, Self::Error>;

    /// A text, kept; the empty one for anything else.
    fn text(self, build: &mut Build) -> Result<TextId, Self::Error>;

    /// A text, not kept.
    fn string(self) -> Result<Option<Box<str>>, Self::Error>;

    /// A list of frames; unknown for anything else.
    fn site(self, build: &mut Build) -> Result<SiteId, Self::Error>;

    /// A record.
    fn record<R: SnapshotRecord>(self, build: &mut Build) -> Result<(), Self::Error>;

    /// A list of records. None is an empty list.
    fn records<R: SnapshotRecord>(self, build: &mut Build) -> Result<(), Self::Error>;

    /// A list of lists of records, one for each device.
    fn traces<R: SnapshotRecord>(self, build: &mut Build) -> Result<(), Self::Error>;

    fn skip(self) -> Result<(), Self::Error>;
}

/// A record of a snapshot: a value with named fields.
pub(super) trait SnapshotRecord: Default {
    /// What such a thing is called.
    const NAME: &'static str;

    /// Takes a field. What comes later counts.
    fn set<V: RecordValue>(&mut self, key: Word, value: V, build: &mut Build) -> Result<(), V::Error>;

    /// All fields were there.
    fn done(self, build: &mut Build) -> Result<(), RecordFault>;
}
