//! The rules of the BFC engine, as data.

use orlop_core::Alignment;

/// The rules of a [`Bfc`](super::Bfc) engine. One engine runs all of them: comparing allocators is a loop
/// over policies.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BfcPolicy {
    /// A name for reports.
    pub name: &'static str,
    /// Sizes are rounded up to this, and addresses are multiples of it.
    pub granule: Alignment,
    /// When a chunk is split to the request's size.
    pub split: Split,
    /// How large new regions are.
    pub growth: RegionGrowth,
    /// Whether wholly free regions are released when nothing else helps, so that a larger one fits.
    pub release_when_stuck: bool,
}

/// When a chunk that is larger than the request is split.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Split {
    /// If it is at least twice the rounded request, or if at least `max_waste` bytes would be wasted.
    Half {
        /// The waste in bytes from which on a chunk is always split.
        max_waste: usize,
    },
    /// If at least this much remains.
    Remainder {
        /// The minimum size of the remainder, in bytes.
        at_least: usize,
    },
}

/// How large new regions are.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum RegionGrowth {
    /// The first region has the whole limit.
    WholeLimit,
    /// The first region has `first` bytes, each later one twice as much; more if a request needs it, less
    /// near the limit. When the backing refuses, nine tenths are tried repeatedly, but only once in the life
    /// of the engine.
    Doubling {
        /// Bytes of the first region.
        first: usize,
    },
    /// As much as the request needs, rounded up to a multiple of `step`.
    Steps {
        /// In bytes.
        step: usize,
    },
}

impl BfcPolicy {
    /// TensorFlow's BFC with growth: granules of 256 bytes, a split at twice the size, regions that double
    /// from 2 MiB.
    ///
    /// Source: `bfc_allocator.cc` in TensorFlow (OpenXLA TSL).
    #[must_use]
    pub const fn tensorflow() -> Self {
        Self {
            name: "bfc",
            granule: Alignment::PLANNED,
            split: Split::Half { max_waste: 128 << 20 },
            growth: RegionGrowth::Doubling { first: 2 << 20 },
            release_when_stuck: false,
        }
    }

    /// TensorFlow's BFC over a single region, reserved at the first request (`allow_growth = false`).
    #[must_use]
    pub const fn tensorflow_fixed() -> Self {
        Self { name: "bfc-fixed", growth: RegionGrowth::WholeLimit, ..Self::tensorflow() }
    }

    /// Releases wholly free regions when nothing else helps (`garbage_collection`).
    #[must_use]
    pub const fn releasing_when_stuck(mut self) -> Self {
        self.release_when_stuck = true;
        self
    }

    /// Limits the waste in a chunk to this share of `limit`, instead of 128 MiB (`fragmentation_fraction`). A
    /// share that is not positive changes nothing.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a size is a size"
    )]
    pub fn max_waste_share(mut self, share: f64, limit: usize) -> Self {
        if share > 0.0 {
            self.split = Split::Half { max_waste: (share * limit as f64) as usize };
        }
        self
    }

    /// Returns `true` if a chunk of `size` bytes is split for a request of `rounded` bytes.
    #[inline]
    pub(crate) fn splits(&self, size: usize, rounded: usize) -> bool {
        let remainder = size - rounded;
        match self.split {
            Split::Half { max_waste } => remainder > 0 && (remainder >= rounded || remainder >= max_waste),
            Split::Remainder { at_least } => remainder >= at_least.max(self.granule.bytes()),
        }
    }
}
