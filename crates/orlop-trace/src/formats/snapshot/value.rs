//! Values of records, in either format of a snapshot. Both readers implement [`RecordValue`] and every record
//! implements [`SnapshotRecord`], so that a snapshot is built by the same code.

use super::build::SnapshotBuilder;
use super::words::Word;
use crate::Result;
use crate::history::{SiteId, TextId};

/// A value without parts, as far as records use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarValue {
    /// An unsigned number.
    Number(u64),
    Flag(bool),
    Word(Word),
    /// The first two items of a list, if both are numbers.
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

/// A value of a record. Exactly one of the methods is called.
pub(super) trait RecordValue: Sized {
    type Error;

    fn scalar(self) -> Result<ScalarValue, Self::Error>;

    /// Reads a text into the table of sites; empty for any other value.
    fn text(self, builder: &mut SnapshotBuilder) -> Result<TextId, Self::Error>;

    /// Reads a text without storing it.
    fn string(self) -> Result<Option<Box<str>>, Self::Error>;

    /// Reads a list of frames; unknown for any other value.
    fn site(self, builder: &mut SnapshotBuilder) -> Result<SiteId, Self::Error>;

    /// Reads a record.
    fn record<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<(), Self::Error>;

    /// Reads a list of records. None is an empty list.
    fn records<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<(), Self::Error>;

    /// Reads a list of lists of records, one for each device.
    fn traces<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<(), Self::Error>;

    fn skip(self) -> Result<(), Self::Error>;
}

/// A record of a snapshot: a value with named fields.
pub(super) trait SnapshotRecord: Default {
    /// The name of the record in messages.
    const NAME: &'static str;

    /// Sets a field. Later values replace earlier ones.
    fn set<V: RecordValue>(
        &mut self,
        key: Word,
        value: V,
        builder: &mut SnapshotBuilder,
    ) -> Result<(), V::Error>;

    /// Completes the record after its last field.
    fn done(self, builder: &mut SnapshotBuilder) -> Result<()>;
}
