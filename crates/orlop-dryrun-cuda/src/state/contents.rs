//! [`Contents`]: small buffers that were copied to a device, so that they come back as they were.
//!
//! Nothing says what a kernel writes. A buffer is what it was only for a read of exactly the bytes that
//! were copied or filled, in one piece or in several that follow each other; every other read is of noise. A
//! block that PyTorch uses for another tensor of the same size still reads as what was copied: the price of
//! masks and lengths that come back.

use std::collections::BTreeMap;

/// Larger buffers are not kept.
const MAX_BYTES: usize = 64 << 10;

/// The maximum sum of what is kept.
const MAX_TOTAL: usize = 256 << 20;

/// Buffers by their address.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    buffers: BTreeMap<usize, Vec<u8>>,
    total: usize,
}

impl Contents {
    /// Returns `true` if a buffer of this size is kept.
    pub(crate) fn keeps(&self, bytes: usize) -> bool {
        bytes <= MAX_BYTES && self.total + bytes <= MAX_TOTAL
    }

    /// Keeps what was written to an address.
    pub(crate) fn write(&mut self, address: usize, bytes: Vec<u8>) {
        self.forget(address, bytes.len());
        if self.keeps(bytes.len()) && !bytes.is_empty() {
            self.total += bytes.len();
            self.buffers.insert(address, bytes);
        }
    }

    /// Returns what was written to exactly these bytes.
    pub(crate) fn read(&self, address: usize, bytes: usize) -> Option<Vec<u8>> {
        let mut found = Vec::new();
        for (&start, buffer) in self.buffers.range(address..address.saturating_add(bytes)) {
            if start != address + found.len() {
                return None;
            }
            found.extend_from_slice(buffer);
        }
        (!found.is_empty() && found.len() == bytes).then_some(found)
    }

    /// Forgets what overlaps with these bytes.
    pub(crate) fn forget(&mut self, address: usize, bytes: usize) {
        let first = address.saturating_sub(MAX_BYTES);
        let overlapping = self.buffers.range(first..address.saturating_add(bytes));
        let overlapping = overlapping.filter(|(start, buffer)| *start + buffer.len() > address);
        let starts: Vec<usize> = overlapping.map(|(&start, _)| start).collect();
        for start in starts {
            self.total -= self.buffers.remove(&start).map_or(0, |buffer| buffer.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_until_something_overlaps_it() {
        let mut contents = Contents::default();
        contents.write(1000, vec![7; 100]);
        assert_eq!(contents.read(1000, 100), Some(vec![7; 100]));
        assert_eq!(contents.read(1000, 99), None);
        contents.write(1100, vec![8; 2]);
        assert_eq!(contents.read(1000, 102), Some([vec![7; 100], vec![8; 2]].concat()));
        assert_eq!([contents.read(1000, 101), contents.read(1000, 103)], [None, None]);
        contents.forget(1100, 2);
        contents.write(1099, vec![1]);
        assert_eq!((contents.read(1000, 100), contents.total), (None, 1));
        contents.write(0, vec![0; MAX_BYTES + 1]);
        assert_eq!((contents.read(1099, 1), contents.total), (None, 0));
    }
}
