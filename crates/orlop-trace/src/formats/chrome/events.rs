//! The events of the trace, read as a stream.

use super::lenient_json::{FieldName, IgnoredObject, Lenient, ObjectFields};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;

/// Categories of events on a thread of the program: operators, Python functions, annotations. Kernels and
/// driver calls have others.
const OPERATIONS: [&str; 4] = ["cpu_op", "python_function", "user_annotation", "Operator"];

/// An event. Fields that are missing or of another type are `None`, 0 or empty.
#[derive(Debug, Default)]
pub(super) struct ChromeEvent {
    pub(super) name: Box<str>,
    /// Whether it has a beginning and an end.
    pub(super) complete: bool,
    /// Whether it is an operation of a program thread.
    pub(super) operation: bool,
    /// In nanoseconds, as is `duration`.
    pub(super) time: u64,
    pub(super) duration: u64,
    pub(super) thread: Option<u64>,
    /// The process. A file may have several, each with its own thread numbers.
    pub(super) process: u64,
    pub(super) arguments: EventArguments,
}

/// The kinds of events that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChromeEventKind {
    /// An allocation or a free.
    Memory,
    /// A request that failed.
    Failure,
    /// An operation of a thread that begins at the event's time.
    Operation,
}

#[derive(Debug, Default)]
pub(super) struct EventArguments {
    pub(super) address: Option<u64>,
    pub(super) bytes: Option<i64>,
    pub(super) family: Option<i64>,
    pub(super) device: Option<i64>,
    pub(super) index: Option<u64>,
    /// Live and reserved bytes of the device after the event.
    pub(super) allocated: Option<i64>,
    pub(super) reserved: Option<i64>,
}

impl ChromeEvent {
    fn what(&self) -> Option<ChromeEventKind> {
        match &*self.name {
            "[memory]" => Some(ChromeEventKind::Memory),
            "[OutOfMemory]" => Some(ChromeEventKind::Failure),
            _ => (self.complete && self.operation).then_some(ChromeEventKind::Operation),
        }
    }
}

impl ObjectFields for ChromeEvent {
    fn field<'de, A: MapAccess<'de>>(&mut self, key: FieldName, fields: &mut A) -> Result<(), A::Error> {
        match key {
            FieldName::Arguments => {
                if let Lenient::Object(arguments) = fields.next_value()? {
                    self.arguments = arguments;
                }
            }
            FieldName::Name => self.name = value(fields)?.into_text(),
            FieldName::Phase => self.complete = value(fields)?.text() == "X",
            FieldName::Category => self.operation = OPERATIONS.contains(&value(fields)?.text()),
            FieldName::Time => self.time = value(fields)?.nanoseconds(),
            FieldName::Duration => self.duration = value(fields)?.nanoseconds(),
            FieldName::Process => self.process = value(fields)?.unsigned().unwrap_or(0),
            FieldName::Thread => self.thread = value(fields)?.unsigned(),
            _ => drop(fields.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl ObjectFields for EventArguments {
    fn field<'de, A: MapAccess<'de>>(&mut self, key: FieldName, fields: &mut A) -> Result<(), A::Error> {
        match key {
            FieldName::Address => self.address = value(fields)?.unsigned(),
            FieldName::Bytes => self.bytes = value(fields)?.signed(),
            FieldName::DeviceId => self.device = value(fields)?.signed(),
            FieldName::Index => self.index = value(fields)?.unsigned(),
            FieldName::TotalAllocated => self.allocated = value(fields)?.signed(),
            FieldName::TotalReserved => self.reserved = value(fields)?.signed(),
            FieldName::DeviceType => {
                let family = value(fields)?;
                self.family = match family.text() {
                    "CPU" => Some(0),
                    "CUDA" => Some(1),
                    _ => family.signed(),
                };
            }
            _ => drop(fields.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// Reads the value of a field.
fn value<'de, A: MapAccess<'de>>(fields: &mut A) -> Result<Lenient<IgnoredObject>, A::Error> {
    fields.next_value()
}

/// Calls `take` for each relevant event of a trace: an array of events, or an object with the array
/// `traceEvents`.
pub(super) fn read(
    reader: impl Read,
    mut take: impl FnMut(ChromeEventKind, &ChromeEvent),
) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_reader(reader);
    json.deserialize_any(EventVisitor { take: &mut take })?;
    json.end()
}

struct EventVisitor<'f, F> {
    take: &'f mut F,
}

impl<'de, F: FnMut(ChromeEventKind, &ChromeEvent)> Visitor<'de> for EventVisitor<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace: an array of events, or an object with traceEvents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element::<Lenient<ChromeEvent>>()? {
            if let Lenient::Object(entry) = event
                && let Some(what) = entry.what()
            {
                (self.take)(what, &entry);
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = fields.next_key::<FieldName>()? {
            if key == FieldName::TraceEvents {
                found = true;
                fields.next_value_seed(Events { take: &mut *self.take })?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        if found { Ok(()) } else { Err(A::Error::missing_field("traceEvents")) }
    }
}

/// The seed for the array in `traceEvents`.
struct Events<'f, F> {
    take: &'f mut F,
}

impl<'de, F: FnMut(ChromeEventKind, &ChromeEvent)> DeserializeSeed<'de> for Events<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(EventVisitor { take: self.take })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> serde_json::Result<Vec<ChromeEventKind>> {
        let mut found = Vec::new();
        read(text.as_bytes(), |what, _| found.push(what))?;
        Ok(found)
    }

    #[test]
    fn unknown_and_odd_fields_are_ignored() {
        let memory = r#"{"args":{"Addr":[1,{"a":null}],"Bytes":"x","more":{}},"ts":null,"tid":"stream 7",
            "name":"[memory]"}"#;
        let others = r#"1,-1.5e300,"x",null,true,[[1],{}],{},{"name":7},{"name":["[memory]"]},{"args":3}"#;
        assert_eq!(found(&format!("[{others},{memory}]")).unwrap(), [ChromeEventKind::Memory]);
        assert_eq!(
            found(&format!(r#"{{"a":[{memory}],"traceEvents":[{memory}],"b":{{"traceEvents":1}}}}"#))
                .unwrap(),
            [ChromeEventKind::Memory]
        );
        assert_eq!(found("[]").unwrap(), []);
    }

    #[test]
    fn operations_are_complete_events_of_threads() {
        let event = |fields: &str| format!(r#"[{{"name":"aten::empty","dur":[1],{fields}}}]"#);
        for (fields, expected) in [
            (r#""ph":"X","cat":"cpu_op""#, &[ChromeEventKind::Operation][..]),
            (r#""cat":"user_annotation","ph":"X""#, &[ChromeEventKind::Operation]),
            (r#""ph":"X","cat":"kernel""#, &[]),
            (r#""ph":"i","cat":"cpu_op""#, &[]),
            (r#""ph":"X","cat":["cpu_op"]"#, &[]),
            (r#""ph":"X""#, &[]),
        ] {
            assert_eq!(found(&event(fields)).unwrap(), expected, "{fields}");
        }
        assert_eq!(
            found(r#"[{"name":"[OutOfMemory]","ph":"X","cat":"cpu_op"}]"#).unwrap(),
            [ChromeEventKind::Failure]
        );
    }

    #[test]
    fn other_json_is_an_error() {
        for text in
            ["", "1", "{}", "[", "[{\"name\":", "{\"traceEvents\": 1}", "[] x", "[{\"name\": \"\u{1}\"}]"]
        {
            assert!(found(text).is_err(), "{text}");
        }
        // Nesting beyond any call stack.
        assert_eq!(
            found(&format!("[{{\"x\":{}1{}}}]", "[".repeat(100_000), "]".repeat(100_000))).unwrap(),
            []
        );
        assert!(found(&"[".repeat(100_000)).is_err());
    }
}
