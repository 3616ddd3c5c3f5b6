//! Events of other processes: what waits for them here, and what they wait for.
//!
//! Each process has its own virtual time. A stream that waits for a record of another process waits in real
//! time, and the process that made the record goes on with its work meanwhile, on a thread of its own, until
//! the record is complete. What two processes access at once is not checked for races.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::guard::DriverGuard;
use crate::memory::{ExportedMemory, ProcessRecord};
use crate::state::event::{DISABLE_TIMING, Event, INTERPROCESS};
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

/// How often a process looks at what another one does.
const INTERVAL: Duration = Duration::from_micros(100);

/// How long a call waits for another process before it fails, as for a kernel that never ends.
const LONGEST: Duration = Duration::from_secs(60);

/// The real time that a call has waited for another process.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    since: Option<Instant>,
}

impl Driver {
    /// Describes an event for other processes.
    pub(crate) fn export_event(&mut self, handle: u64) -> Outcome<ExportedMemory> {
        let event = self.event(handle)?;
        let (device, shared) = (event.device, event.shared.clone());
        let shared = shared.ok_or(Failure::INVALID_HANDLE)?;
        serve_other_processes();
        self.memory.export_event(&shared, device)
    }

    /// Opens an event of another process.
    pub(crate) fn import_event(&mut self, exported: ExportedMemory) -> Outcome<u64> {
        // A process cannot open its own event.
        if exported.process == std::process::id() {
            return Err(Failure::INVALID_CONTEXT);
        }
        let device = self.current_device()?;
        if exported.device != device {
            return Err(Failure::INVALID_DEVICE);
        }
        let shared = self.memory.import_event(exported)?;
        serve_other_processes();
        let handle = self.create_event(device, DISABLE_TIMING)?;
        if let Some(event) = self.events.get_mut(&handle) {
            *event = Event { flags: DISABLE_TIMING | INTERPROCESS, ..event.clone() };
            event.share(shared);
        }
        Ok(handle)
    }

    /// Returns `true` if a stream can go on only after another process.
    pub(crate) fn is_awaiting_process(&self) -> bool {
        let first = |id: &u64| self.streams.get(id).and_then(|stream| stream.operations.front());
        self.busy.iter().filter_map(first).any(|operation| !operation.work.is_ready())
    }
}

impl DriverGuard {
    /// Waits a little for another process, without the lock.
    pub(crate) fn wait_for_process(&mut self, patience: &mut Patience) -> Outcome {
        if patience.since.get_or_insert_with(Instant::now).elapsed() > LONGEST {
            return Err(Failure::LAUNCH_TIMEOUT);
        }
        self.pause(INTERVAL);
        Ok(())
    }

    /// Waits, on the host, for a record of another process.
    pub(crate) fn synchronize_process(&mut self, record: &ProcessRecord) -> Outcome {
        record.want();
        let mut patience = Patience::default();
        while !record.is_complete() {
            self.wait_for_process(&mut patience)?;
        }
        Ok(())
    }

    /// Goes on with the work that other processes wait for.
    fn serve(&mut self) {
        loop {
            self.process_records.retain(|record| !record.is_complete());
            if !self.process_records.iter().any(ProcessRecord::is_wanted) {
                return;
            }
            let now = self.now;
            match self.run_until(now) {
                Some(end) if end < u64::MAX => self.now = self.now.max(end),
                // It is done, or waits for another process itself.
                _ => return,
            }
        }
    }
}

/// Starts the thread that goes on with the work that other processes wait for.
fn serve_other_processes() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(INTERVAL);
                DriverGuard::lock().serve();
            }
        });
    });
}
