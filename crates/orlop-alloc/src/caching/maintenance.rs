//! Release of unused memory at intervals, and when the system runs short of it.
//!
//! An engine only acts when it is called. A [`Maintenance`] is a thread that calls it: at each interval it
//! releases the memory that was not needed since the last one ([`Caching::decay`]), and when the system
//! reports that programs wait for memory, everything that is cached.

use super::Caching;
use super::follow::PlanFate;
use crate::backing::Backing;
use crate::{Allocator, AllocatorRef};
use orlop_host::shield::{report, shielded};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, fs, io, mem, process};

impl<B: Backing> Caching<B> {
    /// Releases the memory that was not needed since the last call: memory that was free the whole time, and
    /// the caches of threads that did not use the engine. Returns the bytes released. The first call starts
    /// the first interval.
    pub fn decay(&self) -> u64 {
        if self.backing.is_entered() {
            return 0;
        }
        let given_back = self.heap.while_not_growing(|locked| {
            let idle = self.counters.idle_slots();
            let mut cached_idly = 0;
            self.counters.for_each_slot(|cache| {
                if idle.get(cache.slot()) == Some(&true) {
                    let before = locked.lock().live;
                    self.merge(locked, cache, PlanFate::End);
                    cached_idly += before.saturating_sub(locked.lock().live);
                }
            });
            let (reserved, unneeded) = {
                let mut heap = locked.lock();
                let unneeded = (heap.unneeded() + cached_idly).min(heap.reserved - heap.live);
                (heap.reserved, unneeded)
            };
            self.release_down_to(locked, reserved.saturating_sub(unneeded))
        });
        let delivery = self.heap.lock().watched.delivery();
        drop(delivery);
        given_back
    }
}

/// Memory pressure in the system, and the response to it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PressureReport {
    /// The share of the last ten seconds in which some program waited for memory, in percent.
    pub waiting_percent: f64,
    /// Bytes released in response.
    pub given_back: u64,
}

/// There is pressure if programs wait for more than this percentage of the time.
const PRESSURE: f64 = 10.0;

/// A source of [`PressureReport::waiting_percent`]; `None` where the system has no such figure.
type Source = Box<dyn FnMut() -> Option<f64> + Send>;

/// Builder of a [`Maintenance`].
pub struct MaintenanceBuilder<B: Backing> {
    allocator: AllocatorRef<Caching<B>>,
    every: Duration,
    source: Source,
    hook: Box<dyn FnMut(PressureReport) + Send>,
}

impl<B: Backing> MaintenanceBuilder<B> {
    /// Sets the interval. The default is a second.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = interval;
        self
    }

    /// Reads the pressure from `source` instead of the system (Linux: `/proc/pressure/memory`). If it panics,
    /// the panic is traced and counts as no pressure.
    #[must_use]
    pub fn pressure_from(mut self, source: impl FnMut() -> Option<f64> + Send + 'static) -> Self {
        self.source = Box::new(source);
        self
    }

    /// Registers a hook that runs under pressure, after all cached memory has been released. It is the
    /// place to drop caches of the program.
    ///
    /// It runs on the thread of the [`Maintenance`] with no lock held. It may use the allocator and drop the
    /// `Maintenance`. A panic is traced, and the maintenance continues.
    #[must_use]
    pub fn on_pressure(mut self, hook: impl FnMut(PressureReport) + Send + 'static) -> Self {
        self.hook = Box::new(hook);
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system's error if it cannot create a thread.
    pub fn spawn(self) -> io::Result<Maintenance> {
        let (stop, stopped) = sync_channel::<()>(0);
        let Self { allocator, every, mut source, mut hook } = self;
        let work = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                allocator.decay();
                let waits = || source().filter(|&percent| percent > PRESSURE);
                let called = shielded(waits).and_then(|pressure| {
                    let Some(waiting_percent) = pressure else { return Some(()) };
                    let given_back = allocator.trim(0);
                    shielded(|| hook(PressureReport { waiting_percent, given_back }))
                });
                if called.is_none() {
                    report(|| tracing::error!("a hook of the maintenance panicked"));
                }
            }
        };
        let thread = thread::Builder::new().name("orlop-maintenance".into()).spawn(work)?;
        Ok(Maintenance { stop: Some(stop), thread: Some(thread), process: process::id() })
    }
}

impl<B: Backing> fmt::Debug for MaintenanceBuilder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaintenanceBuilder").field("every", &self.every).finish_non_exhaustive()
    }
}

/// The thread that maintains an allocator, until this is dropped; see [`Caching::decay`].
///
/// ```
/// use orlop_alloc::backing::Mmap;
/// use orlop_alloc::caching::{Caching, Maintenance};
/// use orlop_alloc::Allocator;
/// use std::time::Duration;
///
/// let allocator = Caching::new(Mmap::new()).into_ref();
/// let maintenance = Maintenance::builder(allocator.clone())
///     .every(Duration::from_millis(500))
///     .on_pressure(|pressure| eprintln!("memory is short: {pressure:?}"))
///     .spawn()?;
/// # drop(maintenance);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Maintenance {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread: the child of a `fork` does not.
    process: u32,
}

impl Maintenance {
    /// Returns a builder of the maintenance of `allocator`, which stays alive as long as it is maintained.
    pub fn builder<B: Backing>(allocator: AllocatorRef<Caching<B>>) -> MaintenanceBuilder<B> {
        MaintenanceBuilder {
            allocator,
            every: Duration::from_secs(1),
            source: Box::new(system_pressure),
            hook: Box::new(|_| {}),
        }
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        if self.process != process::id() {
            // Neither can be used: the thread may have had the lock of the channel.
            mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        // The thread ends its wait because its channel is closed.
        self.stop = None;
        // If the hook drops the maintenance, the thread ends when the hook returns.
        if let Some(thread) = self.thread.take().filter(|ours| ours.thread().id() != thread::current().id()) {
            // No panic ends the thread, so there is no error.
            let _ = thread.join();
        }
    }
}

/// Returns `some avg10` of the memory's pressure stall information.
fn system_pressure() -> Option<f64> {
    parse_pressure(&fs::read_to_string("/proc/pressure/memory").ok()?)
}

fn parse_pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Request;
    use crate::backing::{HugePages, Mmap};
    use std::sync::mpsc;

    fn allocator() -> AllocatorRef<Caching<Mmap>> {
        Caching::new(Mmap::new().huge_pages(HugePages::Never)).into_ref()
    }

    fn reserved(allocator: &AllocatorRef<Caching<Mmap>>) -> u64 {
        allocator.stats().usage.reserved
    }

    #[test]
    #[cfg_attr(miri, ignore = "nothing grows in place under Miri, and whole regions go or stay")]
    fn what_was_not_needed_for_an_interval_goes_back() {
        let allocator = allocator();
        drop(allocator.allocate(&Request::new(8 << 20)).unwrap());
        let kept = allocator.allocate(&Request::new(1 << 20)).unwrap();
        allocator.decay();
        // In use since: it stays.
        drop(allocator.allocate(&Request::new(6 << 20)).unwrap());
        allocator.decay();
        assert!(reserved(&allocator) >= 7 << 20);
        // Not in use since: it is released, and nothing else is.
        allocator.decay();
        allocator.decay();
        assert!((1 << 20..2 << 20).contains(&reserved(&allocator)), "{}", reserved(&allocator));
        allocator.verify().unwrap();
        drop(kept);
        allocator.decay();
        allocator.decay();
        assert_eq!(reserved(&allocator), 0);
    }

    #[test]
    fn pressure_gives_all_back_and_runs_the_hook() {
        let allocator = allocator();
        drop(allocator.allocate(&Request::new(8 << 20)).unwrap());
        let (sender, receiver) = mpsc::channel();
        let mut times = 0;
        let maintenance = Maintenance::builder(allocator.clone())
            .every(Duration::from_millis(1))
            .pressure_from(move || {
                times += 1;
                Some(if times == 1 { 50.0 } else { 0.0 })
            })
            .on_pressure(move |pressure| sender.send(pressure).unwrap())
            .spawn()
            .unwrap();
        let pressure = receiver.recv().unwrap();
        assert!((pressure.waiting_percent - 50.0).abs() < 1e-9);
        assert_eq!(reserved(&allocator), 0);
        drop(maintenance);
        assert!(allocator.is_unique());
    }

    #[test]
    fn pressure_is_read_as_linux_writes_it() {
        let text = "some avg10=12.34 avg60=1.00 avg300=0.10 total=123\n\
                    full avg10=1.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(parse_pressure(text), Some(12.34));
        assert_eq!(parse_pressure("some avg60=1.0"), None);
        assert_eq!(parse_pressure(""), None);
    }
}
