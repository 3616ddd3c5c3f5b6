//! Releases of cached memory, and private pools with the requests that are routed to them.

use super::DeviceProgram;
use crate::device::WatchedDevice;
use crate::fault::{ConformanceFault, equal};
use orlop_device::{DeviceError, StreamFilter};

impl<B: WatchedDevice> DeviceProgram<B> {
    pub(super) fn trim(&mut self) -> Result<(), ConformanceFault> {
        let before = self.reserved();
        let target = before / 4 * self.random.below(5) as u64;
        let released = self.engine.trim(target);
        if let Ok(released) = released {
            equal("released bytes", before - self.reserved(), released)?;
        }
        self.check_failure(released)
    }

    /// Checks that only a device whose calls can fail fails a release.
    pub(super) fn check_failure<R>(&self, result: Result<R, DeviceError>) -> Result<(), ConformanceFault> {
        match result {
            Err(DeviceError::Backing { .. }) if !self.engine.backing().never_fails() => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }

    pub(super) fn empty_pool(&mut self) -> Result<(), ConformanceFault> {
        let pool = self.random.below(3) as u64;
        let emptied = self.engine.empty_pool((self.next_pool.saturating_sub(pool), 1));
        self.check_failure(emptied)
    }

    pub(super) fn begin_route(&mut self) -> Result<(), ConformanceFault> {
        let known = self.random.one_in(2).then(|| self.random.pick(&self.pools)).flatten();
        let pool = known.unwrap_or_else(|| {
            self.next_pool += 1;
            (self.next_pool, 1)
        });
        let of_one = StreamFilter::only([self.any_stream()]);
        let streams = if self.random.one_in(2) { StreamFilter::All } else { of_one };
        self.engine.begin_allocate_to_pool(pool, streams)?;
        self.pools.push(pool);
        self.routes.push(pool);
        Ok(())
    }

    pub(super) fn end_route(&mut self) -> Result<(), ConformanceFault> {
        self.routes.pop().map_or(Ok(()), |pool| Ok(self.engine.end_allocate_to_pool(pool)?))
    }

    /// Releases memory as a recorded PyTorch did: a segment, or a free part of one.
    pub(super) fn give_back(&mut self) {
        let segments = self.engine.segments();
        let Some(segment) = segments.get(self.random.below(segments.len())) else { return };
        let chunk = segment.chunks[self.random.below(segment.chunks.len())];
        let whole = self.random.one_in(2);
        let (address, bytes) =
            if whole { (segment.address, segment.bytes) } else { (chunk.address, chunk.bytes) };
        self.engine.release_segment(segment.stream, address, bytes);
    }

    fn reserved(&self) -> u64 {
        self.engine.stats().reserved_bytes.all.current
    }
}
