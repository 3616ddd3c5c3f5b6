//! Time on a device, as profiles ask for it.

use orlop_alloc::Result;
use std::fmt::Debug;
use std::time::Duration;

/// Measures the time of a device's work: that of one of its streams, for instance. `orlop_cuda::StreamClock`
/// is one.
pub trait DeviceClock: Debug + Send + Sync {
    /// Begins a span with the work that follows what was submitted so far. Does not wait.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn begin(&self) -> Result<Box<dyn DeviceSpan>>;
}

/// A span of a device's work.
pub trait DeviceSpan: Debug + Send {
    /// Ends the span with the work that was submitted so far. Does not wait.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn end(&mut self) -> Result<()>;

    /// Waits for the end of the span, and returns its time: that of its work, and of the gaps in which the
    /// device waited for more.
    ///
    /// # Errors
    ///
    /// Those of the backend, and an error if it has not ended.
    fn time(&mut self) -> Result<Duration>;
}
