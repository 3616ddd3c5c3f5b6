//! [`MemoryKind`]: the purpose of memory.
//!
//! The kind of a request selects its allocator, its budget and its line in every report, so that weights,
//! scratch space and KV cache can be told apart at any time. Statistics are arrays indexed by kind, which is
//! why a kind is one byte with a dense [`index`](MemoryKind::index).
//!
//! The table at the bottom of the macro call below is the only list of kinds; names, parser, count and checks
//! are generated from it.

use core::{fmt, str::FromStr};

use crate::{Device, Error, Expected, Result};

/// The devices that a kind can be on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KindPlacement {
    AnyDevice,
    HostOnly,
}

/// Generates [`MemoryKind`] from its table of variants.
macro_rules! memory_kinds {
    (@first $name:literal) => { $name };
    (@first $name:literal $($rest:literal)+) => { concat!($name, $(", ", $rest),+) };
    ($($(#[$meta:meta])* $variant:ident, $name:literal, $place:ident;)+) => {
        /// The purpose of a block of memory.
        ///
        /// ```
        /// use orlop_core::{Device, MemoryKind};
        ///
        /// let kind: MemoryKind = "kv_cache".parse()?;
        /// assert_eq!(kind, MemoryKind::KvCache);
        /// assert!(kind.check_on(Device::cuda(0)).is_ok());
        /// assert!(MemoryKind::HostPinned.check_on(Device::cuda(0)).is_err());
        /// # Ok::<(), orlop_core::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum MemoryKind {
            $($(#[$meta])* $variant,)+
        }

        impl MemoryKind {
            /// All kinds, in the order of their [`index`](Self::index).
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant),+];

            /// The number of kinds: the length of an array indexed by kind.
            pub const COUNT: usize = [$($name),+].len();

            /// All names, separated by commas, for messages.
            pub(crate) const NAMES_TEXT: &'static str = memory_kinds!(@first $($name)+);

            /// Returns the name that it prints and parses as, such as `kv_cache`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            const fn place(self) -> KindPlacement {
                match self { $(Self::$variant => KindPlacement::$place),+ }
            }
        }
    };
}

memory_kinds! {
    /// No particular purpose. Every device has an allocator for it, and other kinds fall back to it.
    #[default]
    Default, "default", AnyDevice;
    /// Weights: allocated once, kept for the life of a model.
    Persistent, "persistent", AnyDevice;
    /// Scratch space of operators: short-lived, planned or bump-allocated.
    Workspace, "workspace", AnyDevice;
    /// Attention caches: long-lived, growing block by block.
    KvCache, "kv_cache", AnyDevice;
    /// Page-locked host memory, which devices access by DMA.
    HostPinned, "host_pinned", HostOnly;
    /// Ordinary host memory, requested by name.
    HostPageable, "host_pageable", HostOnly;
}

impl MemoryKind {
    /// Returns the position in [`ALL`](Self::ALL), less than [`COUNT`](Self::COUNT).
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns `true` if the kind exists in host memory only.
    #[inline]
    #[must_use]
    pub const fn is_host_only(self) -> bool {
        matches!(self.place(), KindPlacement::HostOnly)
    }

    /// Checks that memory of this kind can be on `device`.
    ///
    /// # Errors
    /// [`Error::HostKindOnDevice`] for a host kind on a device other than the CPU.
    #[inline]
    pub const fn check_on(self, device: Device) -> Result<()> {
        if self.is_host_only() && !device.is_cpu() {
            return Err(Error::HostKindOnDevice { kind: self, device });
        }
        Ok(())
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for MemoryKind {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == s)
            .ok_or(Error::Parse { expected: Expected::MemoryKind })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn indices_are_dense_and_names_round_trip() {
        for (index, kind) in MemoryKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(size_of::<Option<MemoryKind>>(), 1);
    }

    #[test]
    fn host_kinds_stay_on_the_host() {
        for kind in MemoryKind::ALL {
            assert_eq!(kind.check_on(Device::CPU), Ok(()));
            let on_device = kind.check_on(Device::custom(0, 1));
            let refusal = Error::HostKindOnDevice { kind, device: Device::custom(0, 1) };
            assert_eq!(on_device, if kind.is_host_only() { Err(refusal) } else { Ok(()) });
        }
    }

    #[test]
    fn a_refusal_says_what_would_do() {
        let error = MemoryKind::HostPinned.check_on(Device::cuda(0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "memory kind host_pinned is host memory and cannot be on cuda:0: request it on cpu"
        );
        let error = "pinned".parse::<MemoryKind>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "not a memory kind: use default, persistent, workspace, kv_cache, host_pinned, host_pageable"
        );
    }
}
