//! Columns of numbers in a compact form: LEB128, and differences for columns that grow slowly.
//!
//! A page has a million events in a few megabytes because deflate sees numbers of one kind side by side.

use serde::Serialize;
use std::collections::BTreeMap;

/// The largest number that a browser represents exactly.
const LARGEST: u64 = (1 << 53) - 1;

/// The position of a column in the payload.
#[derive(Debug, Clone, Copy, Serialize)]
struct ColumnSpan {
    at: usize,
    count: usize,
    /// Whether each number is the difference from the previous one, with the sign in its lowest bit.
    delta: bool,
}

/// The positions of the columns of one table, by name.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Columns(BTreeMap<&'static str, ColumnSpan>);

/// The bytes of all columns.
#[derive(Debug, Default)]
pub(super) struct ColumnPayload(Vec<u8>);

impl ColumnPayload {
    /// Returns the bytes of all columns.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds a column of numbers.
    pub(super) fn plain(
        &mut self,
        columns: &mut Columns,
        name: &'static str,
        values: impl IntoIterator<Item = u64>,
    ) {
        let (at, mut count) = (self.0.len(), 0);
        for value in values {
            self.push(value.min(LARGEST));
            count += 1;
        }
        columns.0.insert(name, ColumnSpan { at, count, delta: false });
    }

    /// Adds a column of numbers as differences.
    pub(super) fn deltas(
        &mut self,
        columns: &mut Columns,
        name: &'static str,
        values: impl IntoIterator<Item = u64>,
    ) {
        let (at, mut count, mut before) = (self.0.len(), 0, 0);
        for value in values {
            let value = value.min(LARGEST);
            // Both are below 2^53, so twice the difference is below 2^64.
            let distance = value.abs_diff(before) << 1;
            self.push(if value < before { distance - 1 } else { distance });
            (before, count) = (value, count + 1);
        }
        columns.0.insert(name, ColumnSpan { at, count, delta: true });
    }

    fn push(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f).to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_seven_bits_a_byte_and_differences_carry_their_sign() {
        let (mut payload, mut columns) = (ColumnPayload::default(), Columns::default());
        payload.plain(&mut columns, "a", [0, 127, 128, 300]);
        payload.deltas(&mut columns, "b", [5, 3, 3]);
        assert_eq!(payload.bytes(), [0, 127, 0x80, 1, 0xac, 2, 10, 3, 0]);
        let table = serde_json::to_value(&columns).unwrap();
        assert_eq!(table["b"], serde_json::json!({"at": 6, "count": 3, "delta": true}));
    }

    #[test]
    fn numbers_are_clamped_to_the_largest_of_a_browser() {
        let (mut payload, mut columns) = (ColumnPayload::default(), Columns::default());
        payload.plain(&mut columns, "a", [u64::MAX]);
        assert_eq!(payload.bytes(), [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    }
}
