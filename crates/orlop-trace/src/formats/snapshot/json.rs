//! Reading snapshots as JSON, as a stream: only the resulting history is kept in memory.

use super::build::{ReadSegment, SnapshotBuilder};
use super::records::{FrameFields, SnapshotFields};
use super::value::{RecordValue, ScalarValue, SnapshotRecord};
use super::words::Word;
use crate::formats::Format;
use crate::history::{History, SiteId, TextId};
use crate::{Result, TraceError};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::BufRead;
use std::marker::PhantomData;

/// Reads a snapshot, or the list of segments that `torch.cuda.memory_snapshot()` returns.
pub(crate) fn read(mut reader: impl BufRead) -> Result<History> {
    let mut builder = SnapshotBuilder::default();
    let head = reader.fill_buf().map_err(TraceError::read(Format::Snapshot))?;
    let is_list = head.trim_ascii_start().starts_with(b"[");
    let mut json = serde_json::Deserializer::from_reader(reader);
    let read = if is_list {
        ListSeed::<ReadSegment>(&mut builder, PhantomData).deserialize(&mut json)
    } else {
        RecordSeed::<SnapshotFields>(&mut builder, PhantomData).deserialize(&mut json)
    };
    let read = read.and_then(|()| json.end());
    read.map_err(|error| match error.is_io() {
        true => TraceError::read(Format::Snapshot)(error.into()),
        false => TraceError::Json { error },
    })?;
    Ok(builder.finish())
}

/// The value of the key that was read last.
struct FieldValue<'m, 'de, A>(&'m mut A, PhantomData<&'de ()>);

impl<'de, A: MapAccess<'de>> RecordValue for FieldValue<'_, 'de, A> {
    type Error = A::Error;

    fn scalar(self) -> Result<ScalarValue, A::Error> {
        self.0.next_value_seed(ScalarSeed)
    }

    fn text(self, builder: &mut SnapshotBuilder) -> Result<TextId, A::Error> {
        self.0.next_value_seed(TextSeed(|text: &str| builder.sites.text(text)))
    }

    fn string(self) -> Result<Option<Box<str>>, A::Error> {
        self.0.next_value_seed(TextSeed(|text: &str| Some(text.into())))
    }

    fn site(self, builder: &mut SnapshotBuilder) -> Result<SiteId, A::Error> {
        builder.stack.clear();
        self.0.next_value_seed(ListSeed::<FrameFields>(builder, PhantomData))?;
        Ok(builder.take_stack())
    }

    fn record<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<(), A::Error> {
        self.0.next_value_seed(RecordSeed::<R>(builder, PhantomData))
    }

    fn records<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<(), A::Error> {
        self.0.next_value_seed(ListSeed::<R>(builder, PhantomData))
    }

    fn traces<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<(), A::Error> {
        self.0.next_value_seed(TracesSeed::<R>(builder, PhantomData))
    }

    fn skip(self) -> Result<(), A::Error> {
        self.0.next_value::<IgnoredAny>().map(|_| ())
    }
}

/// Deserializes a record into a [`SnapshotBuilder`].
struct RecordSeed<'b, R>(&'b mut SnapshotBuilder, PhantomData<R>);

impl<'de, R: SnapshotRecord> DeserializeSeed<'de> for RecordSeed<'_, R> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, R: SnapshotRecord> Visitor<'de> for RecordSeed<'_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(R::NAME)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut record = R::default();
        while let Some(scalar) = map.next_key_seed(ScalarSeed)? {
            record.set(scalar.word(), FieldValue(&mut map, PhantomData), self.0)?;
        }
        record.done(self.0).map_err(A::Error::custom)
    }
}

/// Deserializes a list of records.
struct ListSeed<'b, R>(&'b mut SnapshotBuilder, PhantomData<R>);

impl<'de, R: SnapshotRecord> DeserializeSeed<'de> for ListSeed<'_, R> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, R: SnapshotRecord> Visitor<'de> for ListSeed<'_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list, each {}", R::NAME)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(RecordSeed::<R>(self.0, PhantomData))?.is_some() {}
        Ok(())
    }
}

/// Deserializes a list of events for each device.
struct TracesSeed<'b, R>(&'b mut SnapshotBuilder, PhantomData<R>);

impl<'de, R: SnapshotRecord> DeserializeSeed<'de> for TracesSeed<'_, R> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, R: SnapshotRecord> Visitor<'de> for TracesSeed<'_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list for each device, each {}", R::NAME)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut lists: A) -> Result<(), A::Error> {
        for device in 0.. {
            self.0.begin_trace(device);
            if lists.next_element_seed(ListSeed::<R>(self.0, PhantomData))?.is_none() {
                break;
            }
            self.0.end_trace().map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Deserializes a text and passes it to a function.
struct TextSeed<F>(F);

impl<'de, T: Default, F: FnOnce(&str) -> T> DeserializeSeed<'de> for TextSeed<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Default, F: FnOnce(&str) -> T> Visitor<'de> for TextSeed<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok((self.0)(text))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(T::default())
    }
}

struct ScalarSeed;

impl<'de> DeserializeSeed<'de> for ScalarSeed {
    type Value = ScalarValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ScalarValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed {
    type Value = ScalarValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_u64<E>(self, number: u64) -> Result<ScalarValue, E> {
        Ok(ScalarValue::Number(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<ScalarValue, E> {
        Ok(u64::try_from(number).map_or(ScalarValue::Odd, ScalarValue::Number))
    }

    fn visit_f64<E>(self, _: f64) -> Result<ScalarValue, E> {
        Ok(ScalarValue::Odd)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<ScalarValue, E> {
        Ok(ScalarValue::Flag(flag))
    }

    fn visit_str<E>(self, text: &str) -> Result<ScalarValue, E> {
        Ok(ScalarValue::Word(Word::of(text)))
    }

    fn visit_unit<E>(self) -> Result<ScalarValue, E> {
        Ok(ScalarValue::Odd)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ScalarValue, A::Error> {
        // serde_json limits the nesting of lists.
        let first = list.next_element_seed(Self)?;
        let second = list.next_element_seed(Self)?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(match (first, second) {
            (Some(ScalarValue::Number(first)), Some(ScalarValue::Number(second))) => {
                ScalarValue::Pair(first, second)
            }
            _ => ScalarValue::Odd,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ScalarValue, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(ScalarValue::Odd)
    }
}
