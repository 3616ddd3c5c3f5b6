//! Tags: names that users put on requests, four bytes each.
//!
//! A tag says what a block is for ("attention.q", "kv layer 3"), so that a report can break memory down by
//! purpose. Names are interned once for the process and never freed: a program is expected to use few tags,
//! repeatedly.

use orlop_host::shield::InsideGuard;
use std::collections::HashMap;
use std::fmt;
use std::sync::{OnceLock, RwLock};

/// An interned name. `Tag::NONE` is the empty name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Tag(u32);

#[derive(Default)]
struct Names {
    by_name: HashMap<&'static str, u32>,
    by_tag: Vec<&'static str>,
}

fn names() -> &'static RwLock<Names> {
    static NAMES: OnceLock<RwLock<Names>> = OnceLock::new();
    NAMES.get_or_init(RwLock::default)
}

impl Tag {
    /// No tag.
    pub const NONE: Self = Self(0);

    /// Returns the tag of this name, which is interned at the first call. The empty name is [`Tag::NONE`].
    ///
    /// ```
    /// use orlop_alloc::Tag;
    /// assert_eq!(Tag::new("weights"), Tag::new("weights"));
    /// assert_eq!(Tag::new("weights").name(), "weights");
    /// ```
    #[must_use]
    pub fn new(name: &str) -> Self {
        if name.is_empty() {
            return Self::NONE;
        }
        let known = names().read().unwrap_or_else(|e| e.into_inner()).by_name.get(name).copied();
        if let Some(index) = known {
            return Self(index);
        }
        // An observer of Rust's global allocator may ask for the name of a tag.
        let _unobserved = InsideGuard::enter();
        let mut names = names().write().unwrap_or_else(|e| e.into_inner());
        if let Some(&index) = names.by_name.get(name) {
            return Self(index);
        }
        // Index 0 is the empty name. Once all 2³² numbers are in use, blocks go untagged.
        let Some(index) = u32::try_from(names.by_tag.len()).ok().and_then(|n| n.checked_add(1)) else {
            return Self::NONE;
        };
        let kept: &'static str = Box::leak(Box::from(name));
        names.by_tag.push(kept);
        names.by_name.insert(kept, index);
        Self(index)
    }

    /// Returns the number of the tag in this process, for records without room for a name. 0 is
    /// [`Tag::NONE`].
    #[inline]
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the tag with this number. Its name is empty if no tag has this number.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Returns the name, which is empty for [`Tag::NONE`].
    #[must_use]
    pub fn name(self) -> &'static str {
        let Some(index) = self.0.checked_sub(1) else { return "" };
        let names = names().read().unwrap_or_else(|e| e.into_inner());
        names.by_tag.get(index as usize).copied().unwrap_or("")
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({:?})", self.name())
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
