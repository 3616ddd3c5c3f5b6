//! Warnings before memory runs out.
//!
//! An allocation of a tenth of all memory is often a forgotten batch dimension, and a program at half of all
//! memory is worth a line in the log before the operating system ends it. Both warnings are bounded in
//! number, as in TensorFlow's `CPUAllocator`, whose shares and counts are the defaults here.

use orlop_alloc::engine_support::{guarded, trace_guarded};
use orlop_alloc::{Event, Observer, Tag};
use orlop_core::{ByteSize, Device, MemoryKind};
use orlop_host::system_memory;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// A warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// One request exceeds its share.
    Single {
        /// Requested bytes.
        bytes: usize,
        /// The bytes above which there is a warning.
        threshold: u64,
        /// The kind of the request.
        kind: MemoryKind,
        /// The tag of the request.
        tag: Tag,
    },
    /// Live blocks together exceed their share.
    Total {
        /// Granted bytes of live blocks, this allocation included.
        live: u64,
        /// The bytes above which there is a warning.
        threshold: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Single { bytes, threshold, kind, tag } => write!(
                f,
                "an allocation of {} for {kind} {tag} exceeds {}",
                ByteSize(bytes as u64),
                ByteSize(threshold)
            ),
            Self::Total { live, threshold } => {
                write!(f, "allocations of {} in all exceed {}", ByteSize(live), ByteSize(threshold))
            }
        }
    }
}

/// A share of memory, and the number of warnings.
#[derive(Debug)]
struct Alarm {
    /// In bytes; `u64::MAX` is off.
    threshold: u64,
    max: u32,
    given: AtomicU32,
}

impl Alarm {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a size is a size; the cast saturates"
    )]
    fn new((share, max): (f64, u32), memory: Option<u64>) -> Self {
        let threshold = match memory {
            Some(bytes) if share > 0.0 => (bytes as f64 * share) as u64,
            _ => u64::MAX,
        };
        Self { threshold, max, given: AtomicU32::new(0) }
    }

    /// Returns `true` if `bytes` deserve a warning, and counts it.
    #[inline]
    fn rings(&self, bytes: u64) -> bool {
        bytes > self.threshold && self.count()
    }

    #[cold]
    fn count(&self) -> bool {
        let one_more = |given: u32| given.checked_add(1).filter(|&given| given <= self.max);
        self.given.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

type Callback = Box<dyn Fn(&Warning) + Send + Sync>;

/// Warns of large allocations, single and in total, by `tracing::warn!` and a callback.
///
/// ```
/// use orlop_alloc::{Allocator, Request, backing::System, engine::Direct};
/// use orlop_context::observe::Warn;
/// use std::sync::Arc;
///
/// let allocator = Direct::new(System::new()).into_ref();
/// let warn = Arc::new(Warn::builder().memory(10_000).build());
/// allocator.add_observer(warn.clone());
/// let _block = allocator.allocate(&Request::new(1001))?;
/// assert_eq!(warn.warnings(), 1);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
pub struct Warn {
    memory: Option<u64>,
    single: Alarm,
    total: Alarm,
    /// Granted bytes allocated less those freed since this was added: negative after frees of older blocks.
    live: AtomicI64,
    callback: Option<Callback>,
}

/// Settings of a [`Warn`].
pub struct WarnBuilder {
    memory: Option<u64>,
    single: (f64, u32),
    total: (f64, u32),
    callback: Option<Callback>,
}

impl WarnBuilder {
    /// Sets the memory that shares are taken of, in bytes, for all devices. Without it, it is the memory that
    /// the process may use: the machine's, or that of its control group if that is less. Then memory on
    /// devices is not watched, and nothing is if it is unknown.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Warns of requests above `share` of memory, at most `max` times. A share that is not positive turns it
    /// off.
    #[must_use]
    pub fn single(mut self, share: f64, max: u32) -> Self {
        self.single = (share, max);
        self
    }

    /// Warns of live bytes above `share` of memory, at most `max` times. A share that is not positive turns
    /// it off.
    #[must_use]
    pub fn total(mut self, share: f64, max: u32) -> Self {
        self.total = (share, max);
        self
    }

    /// Sets a callback for warnings, called on the thread of the request and with no lock held: it may use
    /// the allocator, whose requests may warn again. A panic is traced and ends there.
    #[must_use]
    pub fn callback(mut self, callback: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }

    /// Creates the observer.
    #[must_use]
    pub fn build(self) -> Warn {
        let memory = self.memory.or_else(system_memory::total);
        Warn {
            memory: self.memory,
            single: Alarm::new(self.single, memory),
            total: Alarm::new(self.total, memory),
            live: AtomicI64::new(0),
            callback: self.callback,
        }
    }
}

impl Warn {
    /// Warns at most 5 times of requests above 10 % of the process's memory, and once above 50 % in total.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts with the settings of [`Warn::new`].
    pub fn builder() -> WarnBuilder {
        WarnBuilder { memory: None, single: (0.1, 5), total: (0.5, 1), callback: None }
    }

    /// Returns the number of warnings so far.
    #[must_use]
    pub fn warnings(&self) -> u32 {
        let given = |alarm: &Alarm| alarm.given.load(Ordering::Relaxed);
        given(&self.single).saturating_add(given(&self.total))
    }

    fn watches(&self, device: Device) -> bool {
        device.is_cpu() || self.memory.is_some()
    }

    /// Adds `granted` live bytes, and warns of the total.
    fn count_in(&self, granted: usize) {
        let granted = signed(granted);
        let live = self.live.fetch_add(granted, Ordering::Relaxed).saturating_add(granted);
        let live = u64::try_from(live).unwrap_or(0);
        if self.total.rings(live) {
            self.warn(&Warning::Total { live, threshold: self.total.threshold });
        }
    }

    fn count_out(&self, granted: usize) {
        self.live.fetch_sub(signed(granted), Ordering::Relaxed);
    }

    /// Warns of a request, or of a block that grew to `bytes`, above its share.
    fn check_single(&self, bytes: usize, kind: MemoryKind, tag: Tag) {
        if self.single.rings(bytes as u64) {
            self.warn(&Warning::Single { bytes, threshold: self.single.threshold, kind, tag });
        }
    }

    #[cold]
    fn warn(&self, warning: &Warning) {
        trace_guarded(|| tracing::warn!("{warning}"));
        if let Some(callback) = &self.callback
            && guarded(|| callback(warning)).is_none()
        {
            trace_guarded(|| tracing::error!("the warning callback panicked"));
        }
    }
}

impl Default for Warn {
    fn default() -> Self {
        Self::new()
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Observer for Warn {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Allocated { block, .. } if self.watches(block.device) => {
                self.check_single(block.requested, block.kind, block.tag);
                self.count_in(block.granted);
            }
            Event::Grown { block, granted, .. } if self.watches(block.device) => {
                self.check_single(block.requested, block.kind, block.tag);
                self.count_in(block.granted.saturating_sub(*granted));
            }
            // A request that fails is large, too.
            Event::OutOfMemory { report } if self.watches(report.device) => {
                self.check_single(report.requested, report.kind, report.tag);
            }
            Event::Freed { block, .. } if self.watches(block.device) => self.count_out(block.granted),
            Event::RawFreed { found, .. } => self.count_out(found.granted),
            Event::FreeRefused { block: Some(found), .. } => {
                self.live.fetch_add(signed(found.granted), Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

impl fmt::Debug for Warn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warn")
            .field("single", &self.single)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WarnBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WarnBuilder")
            .field("memory", &self.memory)
            .field("single", &self.single)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use orlop_alloc::backing::Null;
    use orlop_alloc::engine::Direct;
    use orlop_alloc::{Allocator, AllocatorRef, Request};
    use orlop_sync::Mutex;
    use std::sync::Arc;

    type Seen = Arc<Mutex<Vec<Warning>>>;

    fn watched(device: Device, builder: WarnBuilder) -> (AllocatorRef<Direct<Null>>, Arc<Warn>) {
        let (allocator, warn) = (Direct::new(Null::new(device)).into_ref(), Arc::new(builder.build()));
        allocator.add_observer(Arc::clone(&warn) as Arc<dyn Observer>);
        (allocator, warn)
    }

    fn seen(builder: WarnBuilder) -> (WarnBuilder, Seen) {
        let seen = Seen::default();
        let list = seen.clone();
        (builder.callback(move |warning| list.lock().push(*warning)), seen)
    }

    fn of(bytes: u64) -> WarnBuilder {
        Warn::builder().memory(bytes)
    }

    #[test]
    fn warns_of_single_allocations_five_times() {
        let (builder, seen) = seen(of(1000));
        let (allocator, _) = watched(Device::CPU, builder);
        for bytes in [100, 101, 102, 103, 104, 105, 106] {
            drop(allocator.allocate(&Request::new(bytes)).unwrap());
        }
        let sizes: Vec<_> = seen
            .lock()
            .iter()
            .map(|warning| match warning {
                Warning::Single { bytes, threshold: 100, .. } => *bytes,
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(sizes, [101, 102, 103, 104, 105]);
    }

    #[test]
    fn warns_of_the_total_once_and_forgets_what_was_freed() {
        let (builder, seen) = seen(of(1000));
        let (allocator, warn) = watched(Device::cuda(0), builder);
        for _ in 0..100 {
            drop(allocator.allocate(&Request::new(100)).unwrap());
        }
        assert!(seen.lock().is_empty());
        let _blocks: Vec<_> = (0..8).map(|_| allocator.allocate(&Request::new(100)).unwrap()).collect();
        assert_eq!(*seen.lock(), [Warning::Total { live: 600, threshold: 500 }]);
        assert_eq!(warn.warnings(), 1);
    }

    #[test]
    fn is_off_for_devices_of_unknown_size_and_survives_its_callback() {
        let (allocator, warn) = watched(Device::cuda(0), Warn::builder());
        drop(allocator.allocate(&Request::new(usize::MAX / 4)).unwrap());
        assert_eq!(warn.warnings(), 0);
        let (allocator, warn) = watched(Device::CPU, of(10).callback(|_| panic!("callback")));
        assert!(allocator.allocate(&Request::new(9)).is_ok());
        assert_eq!(warn.warnings(), 2);
        let (allocator, warn) = watched(Device::CPU, of(10).single(0.0, 5).total(f64::NAN, 5));
        assert!(allocator.allocate(&Request::new(90)).is_ok());
        assert_eq!(warn.warnings(), 0);
    }
}
