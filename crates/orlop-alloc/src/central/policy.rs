//! The rules of the central engine, as data.

use orlop_core::Alignment;

/// What the engine does where allocators differ. One engine runs them all: comparing allocators is a loop
/// over policies.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// A name for people.
    pub name: &'static str,
    /// Sizes are rounded up to this, and addresses are multiples of it.
    pub granule: Alignment,
    /// When a chunk is cut to the request's size.
    pub split: Split,
    /// How much is asked of the backing.
    pub growth: RegionGrowth,
    /// Whether wholly free regions are given back when nothing else helps, so that a larger one fits.
    pub release_when_stuck: bool,
}

/// When a chunk that is larger than the request is split.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Split {
    /// When it is at least twice the rounded request, or would waste at least `max_waste` bytes.
    Half {
        /// Never waste as much as this.
        max_waste: usize,
    },
    /// Whenever at least this much remains.
    Remainder {
        /// The smallest chunk to split off, in bytes.
        at_least: usize,
    },
}

/// How large regions are.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum RegionGrowth {
    /// The whole limit at once.
    WholeLimit,
    /// `first` bytes, then twice as much each time; larger if a request needs it, smaller near the limit. If
    /// the backing refuses, once in the engine's life nine tenths are tried, again and again.
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

impl Policy {
    /// TensorFlow's BFC with growth: chunks of 256 bytes, split at twice the size, regions that double from
    /// 2 MiB.
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

    /// The same over one pool, gained whole at the first request (`allow_growth = false`).
    #[must_use]
    pub const fn tensorflow_fixed() -> Self {
        Self { name: "bfc-fixed", growth: RegionGrowth::WholeLimit, ..Self::tensorflow() }
    }

    /// With wholly free regions given back when stuck (`garbage_collection`).
    #[must_use]
    pub const fn releasing_when_stuck(mut self) -> Self {
        self.release_when_stuck = true;
        self
    }

    /// With at most this share of the limit wasted in a chunk, instead of 128 MiB
    /// (`fragmentation_fraction`). Shares that are not positive change nothing.
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

    /// Whether a chunk of `size` is cut for a request of `rounded` bytes.
    #[inline]
    pub(crate) fn splits(&self, size: usize, rounded: usize) -> bool {
        let remainder = size - rounded;
        match self.split {
            Split::Half { max_waste } => remainder > 0 && (remainder >= rounded || remainder >= max_waste),
            Split::Remainder { at_least } => remainder >= at_least.max(self.granule.bytes()),
        }
    }
}
