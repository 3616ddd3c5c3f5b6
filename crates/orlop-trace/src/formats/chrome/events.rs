//! The trace's events, one after the other, without a tree of the whole.

use super::loose::{Fields, Key, Loose, Nothing};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;

/// An instant of memory. What is not there, or is something else, is `None`.
#[derive(Debug, Default)]
pub(super) struct Instant {
    /// It is of memory.
    of_memory: bool,
    /// A request that failed.
    pub(super) failed: bool,
    /// In nanoseconds.
    pub(super) time: u64,
    pub(super) thread: Option<u64>,
    pub(super) arguments: Arguments,
}

#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) address: Option<u64>,
    pub(super) bytes: Option<i64>,
    pub(super) family: Option<i64>,
    pub(super) device: Option<i64>,
    pub(super) index: Option<u64>,
}

impl Fields for Instant {
    fn field<'de, A: MapAccess<'de>>(&mut self, key: Key, fields: &mut A) -> Result<(), A::Error> {
        match key {
            Key::Name => {
                let name = fields.next_value::<Loose<Nothing>>()?;
                self.failed = name.text() == "[OutOfMemory]";
                self.of_memory = self.failed || name.text() == "[memory]";
            }
            Key::Time => self.time = fields.next_value::<Loose<Nothing>>()?.nanoseconds(),
            Key::Thread => self.thread = fields.next_value::<Loose<Nothing>>()?.unsigned(),
            Key::Arguments => {
                if let Loose::Object(arguments) = fields.next_value()? {
                    self.arguments = arguments;
                }
            }
            _ => drop(fields.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl Fields for Arguments {
    fn field<'de, A: MapAccess<'de>>(&mut self, key: Key, fields: &mut A) -> Result<(), A::Error> {
        if !matches!(key, Key::Address | Key::Bytes | Key::DeviceId | Key::DeviceType | Key::Index) {
            fields.next_value::<IgnoredAny>()?;
            return Ok(());
        }
        let value = fields.next_value::<Loose<Nothing>>()?;
        match key {
            Key::Address => self.address = value.unsigned(),
            Key::Bytes => self.bytes = value.signed(),
            Key::DeviceId => self.device = value.signed(),
            Key::DeviceType => {
                self.family = match value.text() {
                    "CPU" => Some(0),
                    "CUDA" => Some(1),
                    _ => value.signed(),
                };
            }
            _ => self.index = value.unsigned(),
        }
        Ok(())
    }
}

/// Calls `take` for each instant of memory of a trace: an array of events, or an object that has them in `traceEvents`.
pub(super) fn read(reader: impl Read, mut take: impl FnMut(&Instant)) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_reader(reader);
    json.deserialize_any(Trace { take: &mut take })?;
    json.end()
}

struct Trace<'f, F> {
    take: &'f mut F,
}

impl<'de, F: FnMut(&Instant)> Visitor<'de> for Trace<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace: an array of events, or an object with traceEvents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element::<Loose<Instant>>()? {
            if let Loose::Object(instant) = event
                && instant.of_memory
            {
                (self.take)(&instant);
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = fields.next_key::<Key>()? {
            if key == Key::TraceEvents {
                found = true;
                fields.next_value_seed(Events { take: &mut *self.take })?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        if found { Ok(()) } else { Err(A::Error::missing_field("traceEvents")) }
    }
}

/// The array in `traceEvents`.
struct Events<'f, F> {
    take: &'f mut F,
}

impl<'de, F: FnMut(&Instant)> DeserializeSeed<'de> for Events<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(Trace { take: self.take })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> serde_json::Result<usize> {
        let mut count = 0;
        read(text.as_bytes(), |_| count += 1)?;
        Ok(count)
    }

    #[test]
    fn anything_may_stand_beside_what_counts() {
        let memory = r#"{"args":{"Addr":[1,{"a":null}],"Bytes":"x","more":{}},"ts":null,"tid":"stream 7","name":"[memory]"}"#;
        let others = r#"1,-1.5e300,"x",null,true,[[1],{}],{},{"name":7},{"name":["[memory]"]},{"args":3}"#;
        assert_eq!(count(&format!("[{others},{memory}]")).unwrap(), 1);
        assert_eq!(
            count(&format!(r#"{{"a":[{memory}],"traceEvents":[{memory}],"b":{{"traceEvents":1}}}}"#))
                .unwrap(),
            1
        );
        assert_eq!(count("[]").unwrap(), 0);
    }

    #[test]
    fn what_is_no_trace_is_an_error() {
        for text in
            ["", "1", "{}", "[", "[{\"name\":", "{\"traceEvents\": 1}", "[] x", "[{\"name\": \"\u{1}\"}]"]
        {
            assert!(count(text).is_err(), "{text}");
        }
        // Deeper than any stack.
        assert_eq!(
            count(&format!("[{{\"x\":{}1{}}}]", "[".repeat(100_000), "]".repeat(100_000))).unwrap(),
            0
        );
        assert!(count(&"[".repeat(100_000)).is_err());
    }
}
