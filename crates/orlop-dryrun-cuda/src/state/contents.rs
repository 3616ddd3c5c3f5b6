//! [`Contents`]: small buffers that were copied to a device, so that they come back as they were.
//!
//! Nothing says what a kernel writes. A buffer is what it was only for a read of exactly the bytes that
//! were copied or filled, in one piece or in several that follow each other; every other read is of noise. A
//! block that PyTorch uses for another tensor of the same size still reads as what was copied: the price of
//! masks and lengths that come back. What the host computed of tensors is known for these tensors alone
//! (`exports::values`): a read that does not name one is not answered with it.

use std::collections::BTreeMap;

/// Larger buffers are not kept.
const MAX_BYTES: usize = 64 << 10;

/// The maximum sum of what is kept.
const MAX_TOTAL: usize = 256 << 20;

/// Where the bytes of a buffer are from. What consists of several has the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// Computed by the host for a tensor.
    Computed,
    /// Copied to the device, or filled.
    Copied,
    /// Written by a collective.
    Received,
}

#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    origin: Origin,
}

/// Buffers by their address.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    buffers: BTreeMap<usize, Buffer>,
    total: usize,
}

impl Contents {
    /// Returns `true` if a buffer of this size is kept.
    pub(crate) fn keeps(&self, bytes: usize) -> bool {
        bytes <= MAX_BYTES && self.total + bytes <= MAX_TOTAL
    }

    /// Keeps what was written to an address, or computed for it. What was written and then computed alike was
    /// written.
    pub(crate) fn write(&mut self, address: usize, bytes: Vec<u8>, origin: Origin) {
        if origin == Origin::Computed && self.read(address, bytes.len()).as_ref() == Some(&bytes) {
            return;
        }
        self.forget(address, bytes.len());
        if self.keeps(bytes.len()) && !bytes.is_empty() {
            self.total += bytes.len();
            self.buffers.insert(address, Buffer { bytes, origin });
        }
    }

    /// Notes that a collective wrote what is at an address.
    pub(crate) fn receive(&mut self, address: usize, bytes: usize) {
        if let Some(received) = self.read(address, bytes) {
            self.write(address, received, Origin::Received);
        }
    }

    /// Forgets these bytes, unless a collective wrote them.
    pub(crate) fn distrust(&mut self, address: usize, bytes: usize) {
        if self.read_with_origin(address, bytes).is_none_or(|(_, origin)| origin != Origin::Received) {
            self.forget(address, bytes);
        }
    }

    /// Returns what was written to exactly these bytes or computed for them.
    pub(crate) fn read(&self, address: usize, bytes: usize) -> Option<Vec<u8>> {
        self.read_with_origin(address, bytes).map(|(found, _)| found)
    }

    /// Returns what was written to exactly these bytes.
    pub(crate) fn read_copied(&self, address: usize, bytes: usize) -> Option<Vec<u8>> {
        let found = self.read_with_origin(address, bytes);
        found.filter(|&(_, origin)| origin != Origin::Computed).map(|(found, _)| found)
    }

    /// Returns what is known of exactly these bytes, and where that is from.
    pub(crate) fn read_with_origin(&self, address: usize, bytes: usize) -> Option<(Vec<u8>, Origin)> {
        let (mut found, mut origin) = (Vec::new(), Origin::Received);
        for (&start, buffer) in self.buffers.range(address..address.saturating_add(bytes)) {
            if start != address + found.len() {
                return None;
            }
            found.extend_from_slice(&buffer.bytes);
            origin = origin.min(buffer.origin);
        }
        (!found.is_empty() && found.len() == bytes).then_some((found, origin))
    }

    /// Forgets what overlaps with these bytes.
    pub(crate) fn forget(&mut self, address: usize, bytes: usize) {
        let first = address.saturating_sub(MAX_BYTES);
        let overlapping = self.buffers.range(first..address.saturating_add(bytes));
        let overlapping = overlapping.filter(|(start, buffer)| *start + buffer.bytes.len() > address);
        let starts: Vec<usize> = overlapping.map(|(&start, _)| start).collect();
        for start in starts {
            self.total -= self.buffers.remove(&start).map_or(0, |buffer| buffer.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_until_something_overlaps_it() {
        let mut contents = Contents::default();
        contents.write(1000, vec![7; 100], Origin::Copied);
        assert_eq!(contents.read(1000, 100), Some(vec![7; 100]));
        assert_eq!(contents.read(1000, 99), None);
        contents.write(1100, vec![8; 2], Origin::Copied);
        assert_eq!(contents.read(1000, 102), Some([vec![7; 100], vec![8; 2]].concat()));
        assert_eq!([contents.read(1000, 101), contents.read(1000, 103)], [None, None]);
        contents.forget(1100, 2);
        contents.write(1099, vec![1], Origin::Copied);
        assert_eq!((contents.read(1000, 100), contents.total), (None, 1));
        contents.write(0, vec![0; MAX_BYTES + 1], Origin::Copied);
        assert_eq!((contents.read(1099, 1), contents.total), (None, 0));
    }

    #[test]
    fn what_was_computed_is_not_what_was_copied() {
        let mut contents = Contents::default();
        contents.write(1000, vec![7; 4], Origin::Computed);
        assert_eq!((contents.read(1000, 4), contents.read_copied(1000, 4)), (Some(vec![7; 4]), None));
        contents.write(1000, vec![8; 4], Origin::Copied);
        contents.write(1000, vec![8; 4], Origin::Computed);
        assert_eq!(contents.read_copied(1000, 4), Some(vec![8; 4]));
        contents.write(1000, vec![9; 4], Origin::Computed);
        assert_eq!((contents.read_copied(1000, 4), contents.total), (None, 4));
        for (origin, read) in [(Origin::Copied, None), (Origin::Received, Some(vec![1; 4]))] {
            contents.write(1000, vec![1; 4], origin);
            contents.distrust(1000, 4);
            assert_eq!(contents.read(1000, 4), read);
        }
    }
}
