//! [`StreamClock`]: the time of a stream's work, between two events.

use super::owned_event::OwnedEvent;
use super::{DeviceState, DeviceStream};
use crate::driver::{abi, call};
use crate::error::CudaError;
use orlop_alloc::Result;
use orlop_context::profile::{DeviceClock, DeviceSpan};
use std::sync::Arc;
use std::time::Duration;

/// Measures the time of a stream's work for profiles
/// ([`MemorySteps::time_on`](orlop_context::profile::MemorySteps::time_on)). In a capture nothing is measured
/// ([`CudaError::Capturing`]).
///
/// ```no_run
/// use orlop_context::{Context, profile::{MemorySteps, StepOrder}};
/// use orlop_cuda::{CudaDevice, StreamClock, install};
///
/// let (context, device) = (Context::new(), CudaDevice::new(0)?);
/// install(&context, &device)?;
/// let stream = device.create_stream()?;
/// let steps = MemorySteps::on(&context).time_on(StreamClock::new(&stream));
/// {
///     let _step = steps.step("forward");
///     // Launches on `stream`.
/// }
/// println!("{}", steps.table().sort_by(StepOrder::DeviceTime));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct StreamClock {
    stream: DeviceStream,
}

impl StreamClock {
    /// Creates a clock of a stream, which it keeps.
    #[must_use]
    pub fn new(stream: &DeviceStream) -> Self {
        Self { stream: stream.clone() }
    }
}

impl DeviceClock for StreamClock {
    fn begin(&self) -> Result<Box<dyn DeviceSpan>> {
        Ok(Box::new(StreamSpan { begin: TimedEvent::record(&self.stream)?, end: None }))
    }
}

/// A span of a stream's work.
#[derive(Debug)]
struct StreamSpan {
    begin: TimedEvent,
    end: Option<TimedEvent>,
}

impl DeviceSpan for StreamSpan {
    fn end(&mut self) -> Result<()> {
        self.end = Some(TimedEvent::record(&self.begin.stream)?);
        Ok(())
    }

    fn time(&mut self) -> Result<Duration> {
        let end = self.end.as_ref().ok_or(CudaError::Unsupported {
            device: self.begin.device().device(),
            what: "the time of a span that has not ended",
        })?;
        Ok(self.begin.until(end)?)
    }
}

/// An event with timing, recorded in a stream.
#[derive(Debug)]
struct TimedEvent {
    stream: DeviceStream,
    event: OwnedEvent,
}

impl TimedEvent {
    fn record(stream: &DeviceStream) -> std::result::Result<Self, CudaError> {
        let device = stream.device();
        // It would be an event of the graph.
        device.refuse_capturing(stream.handle(), "cuEventRecord")?;
        let scope = device.enter()?;
        let event = OwnedEvent::create(device, abi::EVENT_WITH_TIMING)?;
        // SAFETY: both exist, and are of this device.
        unsafe { call!(scope.driver(), cuEventRecord(event.handle(), stream.handle())) }?;
        Ok(Self { stream: stream.clone(), event })
    }

    fn device(&self) -> &Arc<DeviceState> {
        self.event.device()
    }

    /// Waits for a later event, and returns the time from this one to it.
    fn until(&self, later: &Self) -> std::result::Result<Duration, CudaError> {
        let scope = self.device().enter()?;
        let driver = scope.driver();
        let (name, elapsed) = match (driver.symbols.cuEventElapsedTime_v2, driver.symbols.cuEventElapsedTime)
        {
            (Some(elapsed), _) => ("cuEventElapsedTime_v2", elapsed),
            (None, Some(elapsed)) => ("cuEventElapsedTime", elapsed),
            (None, None) => return Err(CudaError::DriverTooOld { symbol: "cuEventElapsedTime" }),
        };
        // SAFETY: the event exists.
        unsafe { call!(driver, cuEventSynchronize(later.event.handle())) }?;
        let mut milliseconds = 0.0;
        // SAFETY: both exist; it writes one number.
        let code = unsafe { elapsed(&raw mut milliseconds, self.event.handle(), later.event.handle()) };
        driver.check(name, code)?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }
}
