//! [`Memory`]: which tensor's bytes are where, while a plan is executed.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// The contents of a block of memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// End and tensor, by start. They do not overlap.
    contents: BTreeMap<u64, (u64, usize)>,
    /// The starts of the tensors whose bytes are whole.
    whole: HashMap<usize, u64>,
    /// The tensors that are parts of another one, by that one. They are whole as long as it is.
    parts: HashMap<usize, Vec<usize>>,
}

impl Memory {
    /// Writes a tensor. What it overlaps is lost.
    pub(super) fn write(&mut self, tensor: usize, bytes: &Range<u64>) {
        self.clobber(bytes);
        if !bytes.is_empty() {
            self.contents.insert(bytes.start, (bytes.end, tensor));
        }
        self.whole.insert(tensor, bytes.start);
    }

    /// Writes a tensor that has others as parts, where they are.
    pub(super) fn join(&mut self, tensor: usize, bytes: &Range<u64>, parts: &[usize]) {
        for part in parts {
            if let Some(start) = self.whole.get(part) {
                self.contents.remove(start);
            }
        }
        self.write(tensor, bytes);
        self.parts.insert(tensor, parts.to_vec());
    }

    /// Overwrites bytes with anything.
    pub(super) fn clobber(&mut self, bytes: &Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        while let Some((&start, &(end, tensor))) = self.contents.range(..bytes.end).next_back() {
            if end <= bytes.start {
                return;
            }
            self.contents.remove(&start);
            self.forget(tensor);
        }
    }

    /// Notes that a tensor and its parts are no longer whole.
    fn forget(&mut self, tensor: usize) {
        let mut lost = vec![tensor];
        while let Some(tensor) = lost.pop() {
            self.whole.remove(&tensor);
            lost.extend(self.parts.remove(&tensor).unwrap_or_default());
        }
    }

    /// Returns `true` if all bytes of a tensor are as they were written.
    pub(super) fn has(&self, tensor: usize) -> bool {
        self.whole.contains_key(&tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overlapped_is_lost() {
        let mut memory = Memory::default();
        memory.write(0, &(0..10));
        memory.write(1, &(10..20));
        memory.write(2, &(20..30));
        memory.write(3, &(5..5));
        assert!((0..4).all(|tensor| memory.has(tensor)));
        memory.clobber(&(19..21));
        assert_eq!([0, 1, 2, 3].map(|tensor| memory.has(tensor)), [true, false, false, true]);
        memory.write(4, &(0..100));
        assert_eq!([0, 4].map(|tensor| memory.has(tensor)), [false, true]);
    }

    #[test]
    fn parts_are_whole_as_long_as_what_they_are_in() {
        let mut memory = Memory::default();
        memory.write(0, &(0..10));
        memory.write(1, &(20..30));
        memory.join(2, &(0..20), &[0]);
        memory.join(3, &(0..30), &[2, 1]);
        assert!((0..4).all(|tensor| memory.has(tensor)));
        memory.clobber(&(12..13));
        assert!((0..4).all(|tensor| !memory.has(tensor)));
    }
}
