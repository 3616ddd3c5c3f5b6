//! Lenient JSON values: tools write numbers as texts, and omit what they do not know.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// The number of bytes kept of a text: function names may include long template arguments.
const MAX_TEXT: usize = 256;

/// The name of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(field_identifier)]
pub(super) enum FieldName {
    #[serde(rename = "traceEvents")]
    TraceEvents,
    #[serde(rename = "name")]
    Name,
    #[serde(rename = "ph")]
    Phase,
    #[serde(rename = "cat")]
    Category,
    #[serde(rename = "ts")]
    Time,
    #[serde(rename = "dur")]
    Duration,
    #[serde(rename = "pid")]
    Process,
    #[serde(rename = "tid")]
    Thread,
    #[serde(rename = "args")]
    Arguments,
    #[serde(rename = "Addr")]
    Address,
    Bytes,
    #[serde(rename = "Device Id")]
    DeviceId,
    #[serde(rename = "Device Type")]
    DeviceType,
    #[serde(rename = "Ev Idx")]
    Index,
    #[serde(rename = "Total Allocated")]
    TotalAllocated,
    #[serde(rename = "Total Reserved")]
    TotalReserved,
    #[serde(other)]
    Other,
}

/// An object whose fields are deserialized one by one.
pub(super) trait ObjectFields: Default {
    /// Reads the value of the field `key`.
    fn field<'de, A: MapAccess<'de>>(&mut self, key: FieldName, fields: &mut A) -> Result<(), A::Error>;
}

/// An object whose fields are ignored.
#[derive(Debug, Default)]
pub(super) struct IgnoredObject;

impl ObjectFields for IgnoredObject {
    fn field<'de, A: MapAccess<'de>>(&mut self, _: FieldName, fields: &mut A) -> Result<(), A::Error> {
        fields.next_value::<IgnoredAny>().map(drop)
    }
}

/// A JSON value.
#[derive(Debug)]
pub(super) enum Lenient<F> {
    Object(F),
    Integer(i128),
    Real(f64),
    Text(Box<str>),
    Other,
}

impl<F> Lenient<F> {
    /// Returns the text; empty for any other value.
    pub(super) fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    fn integer(&self) -> Option<i128> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Real(number) => whole(*number),
            Self::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    pub(super) fn unsigned(&self) -> Option<u64> {
        self.integer()?.try_into().ok()
    }

    pub(super) fn signed(&self) -> Option<i64> {
        self.integer()?.try_into().ok()
    }

    /// Converts into the text; empty for any other value.
    pub(super) fn into_text(self) -> Box<str> {
        if let Self::Text(text) = self { text } else { Box::default() }
    }

    /// Converts microseconds to nanoseconds, exactly even beyond 2^53. Returns 0 for other values and for
    /// negative times.
    pub(super) fn nanoseconds(&self) -> u64 {
        let exact = match self {
            Self::Integer(micros) => Some(micros.saturating_mul(1000)),
            Self::Real(micros) => whole((micros * 1000.0).round()),
            Self::Text(text) => match text.trim().parse::<i128>() {
                Ok(micros) => Some(micros.saturating_mul(1000)),
                Err(_) => text.trim().parse().ok().and_then(|micros: f64| whole((micros * 1000.0).round())),
            },
            _ => None,
        };
        exact.and_then(|time| u64::try_from(time).ok()).unwrap_or(0)
    }
}

/// Converts a real number without a fraction whose magnitude is below 2^64.
#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked")]
fn whole(number: f64) -> Option<i128> {
    const BOUND: f64 = 18_446_744_073_709_551_616.0;
    (number.fract() == 0.0 && number.abs() < BOUND).then_some(number as i128)
}

impl<'de, F: ObjectFields> Deserialize<'de> for Lenient<F> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(LenientVisitor(PhantomData))
    }
}

struct LenientVisitor<F>(PhantomData<F>);

impl<'de, F: ObjectFields> Visitor<'de> for LenientVisitor<F> {
    type Value = Lenient<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Lenient<F>, A::Error> {
        let mut object = F::default();
        while let Some(key) = fields.next_key()? {
            object.field(key, &mut fields)?;
        }
        Ok(Lenient::Object(object))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Lenient<F>, A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Lenient::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Lenient<F>, E> {
        // The longest prefix of whole characters within the limit.
        let kept = (0..=MAX_TEXT.min(text.len())).rev().find_map(|end| text.get(..end));
        Ok(Lenient::Text(kept.unwrap_or_default().into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Lenient<F>, E> {
        Ok(Lenient::Integer(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Lenient<F>, E> {
        Ok(Lenient::Integer(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Lenient<F>, E> {
        Ok(Lenient::Real(number))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Lenient<F>, E> {
        Ok(Lenient::Other)
    }

    fn visit_unit<E>(self) -> Result<Lenient<F>, E> {
        Ok(Lenient::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> Lenient<IgnoredObject> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn times_have_several_forms() {
        for (json, time) in [
            ("12", 12_000),
            ("12.345", 12_345),
            ("\"12.345\"", 12_345),
            ("1712345678901234", 1_712_345_678_901_234_000),
            ("\"1712345678901234\"", 1_712_345_678_901_234_000),
            ("-1", 0),
            ("1e300", 0),
            ("null", 0),
            ("\"soon\"", 0),
            ("{}", 0),
        ] {
            assert_eq!(value(json).nanoseconds(), time, "{json}");
        }
    }

    #[test]
    fn numbers_are_whole_and_fit() {
        assert_eq!(value("18446744073709551615").unsigned(), Some(u64::MAX));
        assert_eq!(value("-5").signed(), Some(-5));
        assert_eq!(value("\"-5\"").signed(), Some(-5));
        assert_eq!(value("4096.0").unsigned(), Some(4096));
        for none in ["-5", "1.5", "1e300", "true", "[1]", "{\"a\":1}", "\"0x10\""] {
            assert_eq!(value(none).unsigned(), None, "{none}");
        }
    }
}
