//! A reference implementation of TensorFlow's BFC: one list of chunks in address order, searched linearly.
//!
//! It follows the rules in `bfc_allocator.cc` (OpenXLA TSL) and shares no code with the engine that it is
//! compared with. Its backing is address space only, handed out in sequence.

/// Sizes are rounded up to 256 bytes, and addresses are multiples of it.
const GRANULE: u64 = 256;

#[derive(Debug, Clone, Copy)]
struct BfcChunk {
    start: u64,
    size: u64,
    used: bool,
    region: usize,
}

/// The reference allocator.
#[derive(Debug)]
pub struct ReferenceBfc {
    limit: u64,
    /// The total bytes of the backing.
    backing: u64,
    collects_garbage: bool,
    max_waste: u64,
    next_region_bytes: u64,
    backpedalled: bool,
    /// The address of the backing's next region.
    next_address: u64,
    /// The bytes of each region; 0 once it was released.
    regions: Vec<u64>,
    /// The chunks in address order.
    chunks: Vec<BfcChunk>,
}

fn round_up(bytes: u64) -> u64 {
    bytes.div_ceil(GRANULE) * GRANULE
}

impl ReferenceBfc {
    /// Creates an allocator that grows by doubling from 2 MiB up to `limit` bytes, over a backing of
    /// `backing` bytes whose addresses begin at `first_address`.
    #[must_use]
    pub fn new(first_address: u64, limit: u64, backing: u64) -> Self {
        Self {
            limit,
            backing,
            collects_garbage: false,
            max_waste: 128 << 20,
            next_region_bytes: round_up(limit.min(2 << 20)),
            backpedalled: false,
            next_address: first_address,
            regions: Vec::new(),
            chunks: Vec::new(),
        }
    }

    /// Enables `garbage_collection`: free regions are released if nothing else helps.
    #[must_use]
    pub fn collecting_garbage(mut self) -> Self {
        self.collects_garbage = true;
        self
    }

    /// Returns the bytes reserved from the backing.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.regions.iter().sum()
    }

    /// Returns the address of a new block, or `None` if BFC would fail.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let rounded = round_up(bytes.max(1));
        if let Some(address) = self.find(rounded) {
            return Some(address);
        }
        if self.extend(rounded) {
            return self.find(rounded);
        }
        if self.collects_garbage && self.give_back_free_regions(rounded) && self.extend(rounded) {
            return self.find(rounded);
        }
        None
    }

    /// Frees the block at `address`. Returns `false` if there is none.
    pub fn free(&mut self, address: u64) -> bool {
        let Some(mut at) = self.chunks.iter().position(|chunk| chunk.used && chunk.start == address) else {
            return false;
        };
        self.chunks[at].used = false;
        if at > 0 && self.joins(at - 1, at) {
            at -= 1;
            self.join(at);
        }
        if at + 1 < self.chunks.len() && self.joins(at, at + 1) {
            self.join(at);
        }
        true
    }

    fn joins(&self, first: usize, second: usize) -> bool {
        let (first, second) = (&self.chunks[first], &self.chunks[second]);
        !first.used && !second.used && first.region == second.region
    }

    fn join(&mut self, first: usize) {
        let second = self.chunks.remove(first + 1);
        self.chunks[first].size += second.size;
    }

    /// Best fit: finds the smallest free chunk that is large enough; of several, the lowest.
    fn find(&mut self, rounded: u64) -> Option<u64> {
        let fits = |chunk: &BfcChunk| !chunk.used && chunk.size >= rounded;
        let best = self.chunks.iter().enumerate().filter(|(_, chunk)| fits(chunk));
        let (at, _) = best.min_by_key(|(_, chunk)| (chunk.size, chunk.start))?;
        let chunk = self.chunks[at];
        if chunk.size >= 2 * rounded || chunk.size - rounded >= self.max_waste {
            let rest = BfcChunk { start: chunk.start + rounded, size: chunk.size - rounded, ..chunk };
            self.chunks.insert(at + 1, rest);
            self.chunks[at].size = rounded;
        }
        self.chunks[at].used = true;
        Some(chunk.start)
    }

    fn extend(&mut self, rounded: u64) -> bool {
        let available = (self.limit - self.reserved()) / GRANULE * GRANULE;
        if rounded > available {
            return false;
        }
        let mut increased = false;
        while rounded > self.next_region_bytes {
            self.next_region_bytes *= 2;
            increased = true;
        }
        let mut bytes = self.next_region_bytes.min(available);
        let mut gained = self.ask_backing(bytes);
        if !gained && !self.backpedalled {
            self.backpedalled = true;
            while !gained {
                let less = round_up(shrink(bytes));
                // The original lacks the second condition, and never ends below ten granules.
                if less < rounded || less >= bytes {
                    break;
                }
                bytes = less;
                gained = self.ask_backing(bytes);
            }
        }
        if gained && !increased {
            self.next_region_bytes *= 2;
        }
        gained
    }

    fn ask_backing(&mut self, bytes: u64) -> bool {
        if self.reserved() + bytes > self.backing {
            return false;
        }
        let start = round_up(self.next_address);
        self.next_address = start + bytes;
        self.regions.push(bytes);
        self.chunks.push(BfcChunk { start, size: bytes, used: false, region: self.regions.len() - 1 });
        true
    }

    fn give_back_free_regions(&mut self, rounded: u64) -> bool {
        let in_use = |region| self.chunks.iter().any(|chunk| chunk.used && chunk.region == region);
        let held = self.regions.iter().enumerate().filter(|&(_, &bytes)| bytes > 0);
        let free: Vec<usize> = held.map(|(region, _)| region).filter(|&region| !in_use(region)).collect();
        let total: u64 = free.iter().map(|&region| self.regions[region]).sum();
        if total == 0 || rounded > self.limit - self.reserved() + total {
            return false;
        }
        for region in free {
            self.regions[region] = 0;
            self.chunks.retain(|chunk| chunk.region != region);
        }
        true
    }
}

/// `bytes * kBackpedalFactor`, where the factor is a `float` of 0.9.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the rule is defined in floating point"
)]
fn shrink(bytes: u64) -> u64 {
    (bytes as f32 * 0.9f32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut bfc = ReferenceBfc::new(0, 8 << 20, u64::MAX);
        assert_eq!(bfc.allocate(1), Some(0));
        assert_eq!(bfc.allocate(300), Some(256));
        assert_eq!(bfc.allocate(256), Some(768));
        assert!(bfc.free(256) && !bfc.free(256));
        // The hole of 512 is the best fit and is split for 256, not for 512.
        assert_eq!(bfc.allocate(100), Some(256));
        assert_eq!(bfc.allocate(100), Some(512));
        assert_eq!(bfc.reserved(), 2 << 20);
        assert_eq!(bfc.allocate(3 << 20), Some(2 << 20));
        assert_eq!(bfc.reserved(), 6 << 20);
        assert_eq!(bfc.allocate(3 << 20), None);
    }
}
