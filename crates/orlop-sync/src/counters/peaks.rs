//! The peaks of the live bytes over all slots, and the settlement that finds them.
//!
//! See the head of the [module](super) for the limits that make settlements rare.

use super::KINDS;
use super::ShardedCounters;
use super::shard::{KindCounts, load_out};
use crate::primitives::atomic::Ordering;

/// The bytes by which a slot may exceed its balance at the last settlement when there is no room below the
/// peak.
const MIN_SHARE: i64 = 64 << 10;

/// The highest sums of live bytes that settlements found.
#[derive(Debug, Default)]
pub(in crate::counters) struct Peaks {
    pub(super) kinds: [i64; KINDS],
    pub(super) all: i64,
}

impl<T> ShardedCounters<T> {
    /// Handles a slot that exceeded its limit: the sum of all slots may be a new peak.
    #[cold]
    #[inline(never)]
    pub(super) fn pass_limit(&self) {
        let mut peaks = self.peaks.lock();
        if self.counts_bytes {
            self.settle(&mut peaks);
        } else {
            let is_used = |counts: &&KindCounts| counts.blocks_in.load(Ordering::Relaxed) > 0;
            for counts in self.slots.shared().flat_map(|shard| &shard.kinds).filter(is_used) {
                counts.limit.store(i64::MAX, Ordering::Relaxed);
            }
        }
    }

    /// Sums the live bytes, raises the peaks, and divides the room below them among the slots as new limits.
    pub(super) fn settle(&self, peaks: &mut Peaks) {
        let live = self.live_bytes();
        let all = live.bytes.iter().fold(0, |all: i64, &bytes| all.wrapping_add(bytes));
        peaks.all = peaks.all.max(all);
        for index in live.used_kinds() {
            peaks.kinds[index] = peaks.kinds[index].max(live.bytes[index]);
        }
        let used_kinds = i64::from(live.used.count_ones().max(1));
        let min = if live.slots == 1 { 0 } else { MIN_SHARE / used_kinds };
        let room_for_all = peaks.all.saturating_sub(all) / (live.slots * used_kinds);
        for index in live.used_kinds() {
            let room = (peaks.kinds[index].saturating_sub(live.bytes[index]) / live.slots)
                .min(room_for_all)
                .max(min);
            let is_used = |counts: &&KindCounts| counts.ids.load(Ordering::Relaxed) != 0;
            for counts in self.slots.shared().map(|shard| &shard.kinds[index]).filter(is_used) {
                counts.limit.store(counts.balance().saturating_add(room), Ordering::Relaxed);
            }
        }
    }

    /// Sums the live bytes of all slots.
    fn live_bytes(&self) -> LiveBytes {
        // The incoming totals are read before the outgoing ones: a block that is counted in and out meanwhile
        // is missed, not counted twice, and no sum is higher than the live bytes at some instant between the
        // two.
        let mut live = LiveBytes { bytes: [0; KINDS], used: 0, slots: 0 };
        for shard in self.slots.shared() {
            live.slots += 1;
            for (index, counts) in shard.kinds.iter().enumerate() {
                let granted = counts.granted_in.load(Ordering::Relaxed);
                if granted > 0 {
                    live.used |= 1 << index;
                    live.bytes[index] = live.bytes[index].wrapping_add_unsigned(granted);
                }
            }
        }
        live.slots = live.slots.max(1);
        for shard in self.slots.shared() {
            for index in live.used_kinds() {
                let granted = load_out(&shard.kinds[index].granted_out);
                live.bytes[index] = live.bytes[index].wrapping_sub_unsigned(granted);
            }
        }
        live
    }

    /// Resets the peaks to the bytes that are live now.
    pub fn reset_peaks(&self) {
        if !self.counts_bytes {
            return;
        }
        let mut peaks = self.peaks.lock();
        *peaks = Peaks { kinds: [i64::MIN; KINDS], all: i64::MIN };
        self.settle(&mut peaks);
    }
}

/// Live bytes by kind, summed over all slots.
#[derive(Debug, Clone, Copy)]
struct LiveBytes {
    bytes: [i64; KINDS],
    /// Bit `i` is set if a block of kind `i` was ever counted in.
    used: u32,
    /// The number of slots that were ever used, at least 1.
    slots: i64,
}

impl LiveBytes {
    fn used_kinds(self) -> impl Iterator<Item = usize> {
        (0..KINDS).filter(move |index| self.used & (1 << index) != 0)
    }
}
