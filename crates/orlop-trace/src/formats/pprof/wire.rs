//! The wire format of protocol buffers, as far as profiles use it.

use super::PprofFault;

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> FieldValue<'a> {
    pub(super) fn number(self) -> u64 {
        if let Self::Number(number) = self { number } else { 0 }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        if let Self::Bytes(bytes) = self { bytes } else { &[] }
    }

    /// Adds a repeated number, packed or not, to a list.
    pub(super) fn add_to(self, numbers: &mut Vec<u64>) -> Result<(), PprofFault> {
        match self {
            Self::Number(number) => numbers.push(number),
            Self::Bytes(mut packed) => {
                while !packed.is_empty() {
                    numbers.push(varint(&mut packed)?);
                }
            }
        }
        Ok(())
    }
}

/// An iterator over the fields of a message, each with its number. It ends after an error.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u64, FieldValue<'a>), PprofFault> {
        let tag = varint(&mut self.0)?;
        let value = match tag & 7 {
            0 => FieldValue::Number(varint(&mut self.0)?),
            1 => FieldValue::Bytes(self.take(8)?),
            2 => {
                let length = varint(&mut self.0)?;
                FieldValue::Bytes(self.take(length)?)
            }
            5 => FieldValue::Bytes(self.take(4)?),
            _ => return Err(PprofFault::Malformed),
        };
        Ok((tag >> 3, value))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], PprofFault> {
        let length = usize::try_from(length).map_err(|_| PprofFault::Malformed)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(PprofFault::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, FieldValue<'a>), PprofFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, PprofFault> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(PprofFault::Malformed)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(PprofFault::Malformed)
}

/// A message that is being written.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    pub(super) fn number(&mut self, field: u64, number: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(number);
        self
    }

    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Writes a message in a field.
    pub(super) fn message(&mut self, field: u64, message: &Self) -> &mut Self {
        self.bytes(field, &message.0)
    }

    pub(super) fn packed(&mut self, field: u64, numbers: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut packed = Self::default();
        for number in numbers {
            packed.varint(number);
        }
        self.message(field, &packed)
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip() {
        let mut message = Message::default();
        message.number(1, 300).bytes(2, b"text").packed(3, [0, 127, 128, u64::MAX]);
        assert_eq!(message.0[..3], [0x08, 0xac, 0x02]);
        let fields: Vec<_> = Fields(&message.0).map(Result::unwrap).collect();
        assert_eq!(fields[..2], [(1, FieldValue::Number(300)), (2, FieldValue::Bytes(b"text"))]);
        let mut numbers = Vec::new();
        fields[2].1.add_to(&mut numbers).unwrap();
        fields[0].1.add_to(&mut numbers).unwrap();
        assert_eq!(numbers, [0, 127, 128, u64::MAX, 300]);
    }

    #[test]
    fn malformed_fields_are_errors() {
        for bytes in [&b"\x08"[..], b"\x0a\x05ab", b"\x0b", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert!(Fields(bytes).any(|field| field == Err(PprofFault::Malformed)), "{bytes:?}");
        }
        assert_eq!(FieldValue::Bytes(b"\x80").add_to(&mut Vec::new()), Err(PprofFault::Malformed));
    }
}
