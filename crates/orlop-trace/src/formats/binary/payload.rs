//! Encoding and decoding the numbers of a block's payload.

use super::super::BlockFault;

/// The result of decoding a payload.
pub(super) type PayloadResult<T> = Result<T, BlockFault>;

/// The unread rest of a payload.
#[derive(Debug)]
pub(super) struct PayloadCursor<'a>(pub(super) &'a [u8]);

impl<'a> PayloadCursor<'a> {
    pub(super) fn byte(&mut self) -> PayloadResult<u8> {
        let (&byte, rest) = self.0.split_first().ok_or(BlockFault::Record)?;
        self.0 = rest;
        Ok(byte)
    }

    pub(super) fn varint(&mut self) -> PayloadResult<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return Err(BlockFault::Number);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(BlockFault::Number)
    }

    pub(super) fn short(&mut self) -> PayloadResult<u32> {
        u32::try_from(self.varint()?).map_err(|_| BlockFault::Number)
    }

    /// Decodes a number that is stored as its difference from another.
    pub(super) fn since(&mut self, before: u64) -> PayloadResult<u64> {
        let coded = self.varint()?;
        Ok(before.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg()))
    }

    pub(super) fn bytes(&mut self, length: u64) -> PayloadResult<&'a [u8]> {
        let length = usize::try_from(length).map_err(|_| BlockFault::Record)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(BlockFault::Record)?;
        self.0 = rest;
        Ok(bytes)
    }
}

pub(super) fn put(payload: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        payload.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    payload.push(number.to_le_bytes()[0]);
}

/// A record of bounded length, put together on the stack: a payload would check its capacity for each byte.
#[derive(Debug)]
pub(super) struct ShortRecord {
    bytes: [u8; Self::CAPACITY],
    length: usize,
}

impl ShortRecord {
    /// A power of two.
    const CAPACITY: usize = 64;
    /// The longest encoding of a number, in bytes.
    pub(super) const NUMBER: usize = 10;

    /// Begins a record of at most `LONGEST` bytes.
    #[inline(always)]
    pub(super) fn new<const LONGEST: usize>() -> Self {
        const { assert!(LONGEST <= Self::CAPACITY) }
        Self { bytes: [0; Self::CAPACITY], length: 0 }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, byte: u8) {
        self.bytes[self.length % Self::CAPACITY] = byte;
        self.length += 1;
    }

    #[inline(always)]
    pub(super) fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.push(number.to_le_bytes()[0]);
    }

    /// Encodes a number as its difference from another.
    #[inline(always)]
    pub(super) fn put_since(&mut self, number: u64, before: u64) {
        let difference = number.wrapping_sub(before);
        self.put((difference << 1) ^ (difference >> 63).wrapping_neg());
    }

    /// Appends the record to a payload.
    #[inline(always)]
    pub(super) fn append_to(&self, payload: &mut Vec<u8>) {
        // A copy of constant length is a few instructions, one of `length` bytes a call.
        payload.extend_from_slice(&self.bytes);
        payload.truncate(payload.len() - Self::CAPACITY + self.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_encoded_as_documented() {
        let bytes = |number| {
            let mut payload = Vec::new();
            put(&mut payload, number);
            payload
        };
        assert_eq!(bytes(0), [0]);
        assert_eq!(bytes(300), [0xac, 0x02]);
        assert_eq!(bytes(u64::MAX), [[0xff; 9].as_slice(), &[1]].concat());
        let mut record = ShortRecord::new::<{ 2 * ShortRecord::NUMBER }>();
        record.put_since(5, 6);
        record.put_since(6, 5);
        let mut payload = Vec::new();
        record.append_to(&mut payload);
        assert_eq!(payload, [1, 2]);
    }

    #[test]
    fn wrong_numbers_are_refused() {
        assert_eq!(PayloadCursor(&[0x80]).varint(), Err(BlockFault::Record));
        assert_eq!(PayloadCursor(&[[0xff; 9].as_slice(), &[2]].concat()).varint(), Err(BlockFault::Number));
        assert_eq!(PayloadCursor(&[0xff; 11]).varint(), Err(BlockFault::Number));
        assert_eq!(PayloadCursor(&[0x80, 0x80, 0x80, 0x80, 0x10]).short(), Err(BlockFault::Number));
        assert_eq!(PayloadCursor(&[1]).bytes(2), Err(BlockFault::Record));
        assert_eq!(PayloadCursor(&[1]).bytes(u64::MAX), Err(BlockFault::Record));
    }

    proptest! {
        #[test]
        fn numbers_come_back(number: u64, before: u64) {
            let mut payload = Vec::new();
            put(&mut payload, number);
            let mut record = ShortRecord::new::<{ 2 * ShortRecord::NUMBER }>();
            record.put(number);
            record.put_since(number, before);
            record.append_to(&mut payload);
            let mut cursor = PayloadCursor(&payload);
            prop_assert_eq!(cursor.varint(), Ok(number));
            prop_assert_eq!(cursor.varint(), Ok(number));
            prop_assert_eq!(cursor.since(before), Ok(number));
            prop_assert!(cursor.0.is_empty());
        }
    }
}
