//! Work that keeps a stream busy.

use super::calls::{Event, Region};
use super::{Facts, Result, answer, raw, timed};
use cudarc::driver::sys::CUstream;

/// A chain of copies, and an event behind them.
pub(super) struct Pending {
    from: Region,
    to: Region,
    bytes: usize,
    copies: u32,
    end: Event,
}

impl Pending {
    /// Creates work of about `ms` milliseconds.
    pub(super) fn new(facts: &Facts, ms: f64) -> Result<Self> {
        let bytes = facts.or_simulated(1 << 30, 1 << 20);
        let (from, to, end) = (Region::new(bytes)?, Region::new(bytes)?, Event::new()?);
        let mut pending = Self { from, to, bytes, copies: 4, end };
        let stream = raw::create_stream(raw::NON_BLOCKING)?;
        let run = || -> Result<f64> {
            let (time, outcome) = timed(|| pending.start(stream).and_then(|()| pending.finish()));
            outcome.map(|()| time)
        };
        let one = run().and_then(|_| run())? / 4.0;
        raw::destroy_stream(stream)?;
        // Each of them finds a place in the queue of a stream.
        let copies = facts.or_simulated((ms / one).clamp(4.0, 900.0), 400.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 4 to 900")]
        let copies = copies as u32;
        pending.copies = copies;
        Ok(pending)
    }

    /// Submits the copies to a stream, and records the event.
    pub(super) fn start(&self, stream: CUstream) -> Result<()> {
        self.start_with(stream, &|_| Ok(()))
    }

    /// Submits the copies and something more.
    pub(super) fn start_with(&self, stream: CUstream, more: &dyn Fn(CUstream) -> Result<()>) -> Result<()> {
        for _ in 0..self.copies {
            raw::copy(self.to.0, self.from.0, self.bytes, stream)?;
        }
        more(stream)?;
        raw::record(self.end.0, stream)
    }

    /// Makes another stream wait for the end.
    pub(super) fn hold(&self, stream: CUstream) -> Result<()> {
        raw::wait_event(stream, self.end.0)
    }

    pub(super) fn is_busy(&self) -> Result<bool> {
        let outcome = raw::query_event(self.end.0);
        if outcome.is_err() && answer(&outcome) == "NOT_READY" {
            return Ok(true);
        }
        outcome.map(|()| false)
    }

    pub(super) fn finish(&self) -> Result<()> {
        raw::synchronize_event(self.end.0)
    }
}
