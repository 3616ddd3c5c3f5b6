//! How much of its blocks a replay writes, as a program would.

use orlop_alloc::{Block, Error};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How much of each new block is written. Pages that are never written cost nothing and are not resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TouchPattern {
    /// Nothing: the cost of the allocator alone. Works for memory that the host cannot reach.
    None,
    /// The first byte.
    #[default]
    First,
    /// A byte of each 4 KiB, and the last one.
    Pages,
    /// Every byte.
    All,
}

impl TouchPattern {
    /// All patterns, fewest writes first.
    pub const ALL: [Self; 4] = [Self::None, Self::First, Self::Pages, Self::All];

    /// Returns the name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::First => "first",
            Self::Pages => "pages",
            Self::All => "all",
        }
    }
}

impl fmt::Display for TouchPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TouchPattern {
    type Err = UnknownTouchPattern;

    fn from_str(name: &str) -> Result<Self, UnknownTouchPattern> {
        Self::ALL.into_iter().find(|touch| touch.name() == name).ok_or(UnknownTouchPattern)
    }
}

/// The text is not a [`TouchPattern`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected none, first, pages or all")]
pub struct UnknownTouchPattern;

/// The smallest page size of supported systems.
const PAGE: usize = 4096;

/// The byte that is written. Not zero, because a system may merge zero pages.
const MARK: u8 = 0xa5;

#[inline]
pub(super) fn touch_first(block: &mut Block) -> Result<(), Error> {
    if let Some(first) = block.bytes_mut()?.first_mut() {
        *first = MARK;
    }
    Ok(())
}

pub(super) fn touch_pages(block: &mut Block) -> Result<(), Error> {
    let bytes = block.bytes_mut()?;
    for byte in bytes.iter_mut().step_by(PAGE) {
        *byte = MARK;
    }
    // Blocks may begin inside a page: the last byte may be in another page.
    if let Some(last) = bytes.last_mut() {
        *last = MARK;
    }
    Ok(())
}

pub(super) fn touch_all(block: &mut Block) -> Result<(), Error> {
    block.bytes_mut()?.fill(MARK);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_alloc::backing::System;
    use orlop_alloc::engine::Direct;
    use orlop_alloc::{Allocator, Request};

    #[test]
    fn each_pattern_writes_its_bytes() {
        let touched = |bytes: usize, touch: fn(&mut Block) -> Result<(), Error>| {
            let mut block =
                Direct::new(System::new()).into_ref().allocate(&Request::new(bytes).zeroed()).unwrap();
            touch(&mut block).unwrap();
            let marked = block.bytes().unwrap().iter().enumerate().filter(|&(_, &byte)| byte == MARK);
            marked.map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert_eq!(touched(5000, touch_first), [0]);
        assert_eq!(touched(9000, touch_pages), [0, 4096, 8192, 8999]);
        assert_eq!(touched(3, touch_all), [0, 1, 2]);
        for touch in [touch_first as fn(&mut Block) -> _, touch_pages, touch_all] {
            assert_eq!(touched(0, touch), [0; 0]);
        }
    }

    #[test]
    fn names_are_read_back() {
        for touch in TouchPattern::ALL {
            assert_eq!(touch.to_string().parse(), Ok(touch));
        }
        assert_eq!("some".parse::<TouchPattern>(), Err(UnknownTouchPattern));
    }
}
