//! The statistics as a table, with the rows of PyTorch's `memory_summary`.

use crate::stats::{DeviceStats, Stat, StatByPool};
use orlop_core::ByteSize;
use std::fmt::{self, Write as _};

const WIDTH: usize = 12;

impl DeviceStats {
    /// Returns a table of bytes and counts by pool: current value, peak, and sums of additions and
    /// subtractions.
    ///
    /// ```
    /// use orlop_device::{DeviceRequest, Engine, NullDevice, Policy};
    /// use orlop_core::{Device, StreamId};
    ///
    /// let mut engine = Engine::new(NullDevice::new(Device::cuda(0), 1 << 30), Policy::orlop());
    /// let _block = engine.allocate(DeviceRequest::new(3 << 20, StreamId::default_of(Device::cuda(0))))?;
    /// assert!(engine.stats().summary().contains("allocated memory        3.00 MiB"));
    /// # Ok::<(), orlop_device::DeviceError>(())
    /// ```
    #[must_use]
    pub fn summary(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_summary(&mut out);
        out
    }

    fn write_summary(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "{:<20}{:>WIDTH$}{:>WIDTH$}{:>WIDTH$}{:>WIDTH$}", "", "now", "peak", "added", "taken")?;
        let bytes = |amount| ByteSize(amount).to_string();
        let count = |amount: u64| amount.to_string();
        rows(out, "allocated memory", &self.allocated_bytes, bytes)?;
        rows(out, "active memory", &self.active_bytes, bytes)?;
        rows(out, "requested memory", &self.requested_bytes, bytes)?;
        rows(out, "reserved memory", &self.reserved_bytes, bytes)?;
        rows(out, "inactive split", &self.inactive_split_bytes, bytes)?;
        rows(out, "allocations", &self.allocation, count)?;
        rows(out, "active blocks", &self.active, count)?;
        rows(out, "segments", &self.segment, count)?;
        rows(out, "split blocks", &self.inactive_split, count)?;
        row(out, "oversize blocks", &self.oversize_allocations, count)?;
        row(out, "oversize segments", &self.oversize_segments, count)?;
        writeln!(
            out,
            "retries {}, out of memory {}, device allocations {}, device frees {}, waits for all streams {}",
            self.num_alloc_retries,
            self.num_ooms,
            self.num_device_alloc,
            self.num_device_free,
            self.num_sync_all_streams
        )?;
        let moved = ByteSize(self.remapped_bytes);
        writeln!(
            out,
            "blocks of other streams {}, waits of streams {}, pages moved {moved}",
            self.num_stream_steals, self.num_stream_waits
        )
    }
}

fn rows(out: &mut String, name: &str, stat: &StatByPool, show: impl Fn(u64) -> String) -> fmt::Result {
    row(out, name, &stat.all, &show)?;
    row(out, "  large pools", &stat.large, &show)?;
    row(out, "  small pools", &stat.small, &show)
}

fn row(out: &mut String, name: &str, stat: &Stat, show: impl Fn(u64) -> String) -> fmt::Result {
    let [now, peak, added, taken] = [stat.current, stat.peak, stat.allocated, stat.freed].map(show);
    writeln!(out, "{name:<20}{now:>WIDTH$}{peak:>WIDTH$}{added:>WIDTH$}{taken:>WIDTH$}")
}
