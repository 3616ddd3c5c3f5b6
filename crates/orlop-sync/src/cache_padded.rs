//! A value on cache lines of its own.

use std::ops::{Deref, DerefMut};

/// A value that shares no cache line with another, so that a thread's writes to it do not slow down others.
/// It is aligned to 128 bytes: x86 prefetches lines in pairs, and some ARM cores have lines of that size.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T> {
    value: T,
}

impl<T> CachePadded<T> {
    /// Puts a value on lines of its own.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self { value }
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_on_other_lines() {
        let mut values = [const { CachePadded::new(1u8) }; 2];
        *values[1] += 1;
        assert_eq!((*values[0], *values[1], size_of_val(&values)), (1, 2, 256));
        assert_eq!((&raw const values[0]).addr() % 128, 0);
    }
}
