//! The counter tracks of a device.

use super::counts::DeviceCounts;
use super::entry::{ArgumentValue, EntryWriter, PerfettoEntry};
use orlop_core::MemoryKind;
use std::io::{self, Write};

/// The counters at an instant.
#[derive(Debug, Clone, Copy)]
struct CounterSample {
    time: u64,
    live: [u64; MemoryKind::COUNT],
    reserved: u64,
    pending: u64,
    external: u64,
}

impl CounterSample {
    fn of(counts: &DeviceCounts, time: u64) -> Self {
        let &DeviceCounts { live, reserved, pending, ref external, .. } = counts;
        Self { time, live, reserved, pending, external: external.bytes() }
    }

    fn total(&self) -> u64 {
        self.live.iter().fold(0, |total, live| total.saturating_add(*live))
    }
}

/// Writes counters when they change.
#[derive(Debug)]
pub(super) struct CounterTracks {
    number: u32,
    resolution: u64,
    /// The memory kinds of the device's blocks.
    kinds: Vec<MemoryKind>,
    has_reserved: bool,
    has_pending: bool,
    has_external: bool,
    written: Option<CounterSample>,
    /// The start of the current interval.
    since: u64,
    /// The sample of the interval with the most live bytes, and its last one.
    pending_samples: Option<(CounterSample, CounterSample)>,
}

impl CounterTracks {
    pub(super) fn new(number: u32, resolution: u64, kinds: Vec<MemoryKind>) -> Self {
        Self {
            number,
            resolution,
            kinds,
            has_reserved: false,
            has_pending: false,
            has_external: false,
            written: None,
            since: 0,
            pending_samples: None,
        }
    }

    /// Adds a sample and writes the interval before it, if it is over.
    pub(super) fn note<W: Write>(
        &mut self,
        counts: &DeviceCounts,
        time: u64,
        out: &mut EntryWriter<W>,
    ) -> io::Result<()> {
        let now = CounterSample::of(counts, time);
        if self.written.is_none() || time >= self.since.saturating_add(self.resolution) {
            self.flush(out)?;
            self.since = time;
        }
        self.pending_samples = Some(match self.pending_samples {
            Some((peak, _)) if peak.total() >= now.total() => (peak, now),
            _ => (now, now),
        });
        if self.resolution == 0 || self.written.is_none() { self.flush(out) } else { Ok(()) }
    }

    /// Writes the samples of the current interval.
    pub(super) fn flush<W: Write>(&mut self, out: &mut EntryWriter<W>) -> io::Result<()> {
        let Some((peak, last)) = self.pending_samples.take() else { return Ok(()) };
        self.write(peak, out)?;
        self.write(last, out)
    }

    fn write<W: Write>(&mut self, now: CounterSample, out: &mut EntryWriter<W>) -> io::Result<()> {
        let before = self.written.replace(now);
        let counter = |name| PerfettoEntry::counter(name, self.number, now.time);
        if before.is_none_or(|before| before.live != now.live) {
            let live = self.kinds.iter().fold(counter("live bytes"), |entry, kind| {
                entry.with(kind.name(), ArgumentValue::Number(now.live[kind.index()]))
            });
            out.put(live)?;
        }
        self.has_reserved |= now.reserved > 0;
        if self.has_reserved && before.is_none_or(|before| before.reserved != now.reserved) {
            out.put(counter("reserved bytes").with("bytes", ArgumentValue::Number(now.reserved)))?;
        }
        self.has_pending |= now.pending > 0;
        if self.has_pending && before.is_none_or(|before| before.pending != now.pending) {
            out.put(counter("pending bytes").with("bytes", ArgumentValue::Number(now.pending)))?;
        }
        self.has_external |= now.external > 0;
        if self.has_external && before.is_none_or(|before| before.external != now.external) {
            out.put(counter("external bytes").with("bytes", ArgumentValue::Number(now.external)))?;
        }
        Ok(())
    }
}
