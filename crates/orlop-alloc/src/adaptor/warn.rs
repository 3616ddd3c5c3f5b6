//! A word of warning before memory runs out.
//!
//! An allocation of a tenth of all memory is often a forgotten batch dimension, and a program at half of all
//! memory is worth a line in the log before the operating system ends it. Both warnings are bounded in
//! number, as in TensorFlow's `CPUAllocator`, whose shares and counts are the defaults here: a warning that
//! repeats for ever is noise.

use crate::shield::{report, shielded};
use crate::{Allocator, LookupResult, RawBlock, Request, Result, Tag};
use orlop_core::{ByteSize, MemoryKind};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What shares are taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TotalMemory {
    /// What the process may have: the machine's memory, or its control group's where that is less. Warnings
    /// are off where nobody can tell, and for allocators on devices.
    #[default]
    System,
    /// So many bytes.
    Bytes(u64),
}

/// What is warned of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// One request is for more than its share.
    Single {
        /// Bytes asked for.
        bytes: usize,
        /// The bytes above which there is a warning.
        threshold: u64,
        /// What it is for.
        kind: MemoryKind,
        /// Who asks.
        tag: Tag,
    },
    /// Live blocks together take more than their share.
    Total {
        /// Granted bytes alive, this allocation included.
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

/// A share of memory and how often to warn of it.
#[derive(Debug)]
struct Alarm {
    /// In bytes; `u64::MAX` is off.
    threshold: u64,
    most: u32,
    given: AtomicU32,
}

impl Alarm {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a size is a size; the cast saturates"
    )]
    fn new((share, most): (f64, u32), memory: Option<u64>) -> Self {
        let threshold = match memory {
            Some(bytes) if share > 0.0 => (bytes as f64 * share) as u64,
            _ => u64::MAX,
        };
        Self { threshold, most, given: AtomicU32::new(0) }
    }

    /// Whether to warn of so many bytes, and counts that.
    #[inline]
    fn rings(&self, bytes: u64) -> bool {
        bytes > self.threshold && self.count()
    }

    #[cold]
    fn count(&self) -> bool {
        let one_more = |given: u32| given.checked_add(1).filter(|&given| given <= self.most);
        self.given.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

type Callback = Box<dyn Fn(&Warning) + Send + Sync>;

/// Warns of large allocations, single and together (T13), by `tracing::warn!` and a callback.
///
/// ```
/// use orlop_alloc::adaptor::{TotalMemory, Warn};
/// use orlop_alloc::{backing::System, engine::Direct, AllocatorRef, Request};
///
/// let engine = Warn::builder(Direct::engine(System::new())).memory(TotalMemory::Bytes(10_000)).build();
/// let allocator = AllocatorRef::new(engine);
/// let _block = allocator.allocate(&Request::new(1001))?;
/// assert_eq!(allocator.warnings(), 1);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
pub struct Warn<A> {
    inner: A,
    single: Alarm,
    total: Alarm,
    live: AtomicU64,
    callback: Option<Callback>,
}

/// Settings of a [`Warn`].
pub struct WarnBuilder<A> {
    inner: A,
    memory: TotalMemory,
    single: (f64, u32),
    total: (f64, u32),
    callback: Option<Callback>,
}

impl<A: Allocator> WarnBuilder<A> {
    /// With shares of this.
    #[must_use]
    pub fn memory(mut self, memory: TotalMemory) -> Self {
        self.memory = memory;
        self
    }

    /// Warns of requests above `share` of memory, at most `most` times. A share that is not positive turns
    /// it off.
    #[must_use]
    pub fn single(mut self, share: f64, most: u32) -> Self {
        self.single = (share, most);
        self
    }

    /// Warns of live bytes above `share` of memory, likewise.
    #[must_use]
    pub fn total(mut self, share: f64, most: u32) -> Self {
        self.total = (share, most);
        self
    }

    /// Calls this too, on the thread that is warned and with nothing locked: it may use the allocator, whose requests may
    /// warn again. A panic in it is traced and goes no further: a warning must not fail what it warns of.
    #[must_use]
    pub fn callback(mut self, callback: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }

    /// The engine.
    #[must_use]
    pub fn build(self) -> Warn<A> {
        let memory = match self.memory {
            TotalMemory::Bytes(bytes) => Some(bytes),
            TotalMemory::System if self.inner.device().is_cpu() => crate::host::system_memory::total(),
            TotalMemory::System => None,
        };
        Warn {
            inner: self.inner,
            single: Alarm::new(self.single, memory),
            total: Alarm::new(self.total, memory),
            live: AtomicU64::new(0),
            callback: self.callback,
        }
    }
}

impl<A: Allocator> Warn<A> {
    /// Warns at most 5 times of requests above 10 % of the process's memory, and once above 50 % in all.
    #[must_use]
    pub fn new(inner: A) -> Self {
        Self::builder(inner).build()
    }

    /// Begins with the settings of [`Warn::new`].
    pub fn builder(inner: A) -> WarnBuilder<A> {
        WarnBuilder { inner, memory: TotalMemory::System, single: (0.1, 5), total: (0.5, 1), callback: None }
    }

    /// Warnings given so far.
    #[must_use]
    pub fn warnings(&self) -> u32 {
        let given = |alarm: &Alarm| alarm.given.load(Ordering::Relaxed);
        given(&self.single).saturating_add(given(&self.total))
    }

    /// What is watched.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Counts so many bytes more, and warns of what lives then.
    fn count_in(&self, granted: usize) {
        let live = self.live.fetch_add(granted as u64, Ordering::Relaxed) + granted as u64;
        if self.total.rings(live) {
            self.warn(&Warning::Total { live, threshold: self.total.threshold });
        }
    }

    /// Warns of one request, or of a block that grows to `bytes`, above its share.
    fn check_single(&self, bytes: usize, kind: MemoryKind, tag: Tag) {
        if self.single.rings(bytes as u64) {
            self.warn(&Warning::Single { bytes, threshold: self.single.threshold, kind, tag });
        }
    }

    #[cold]
    fn warn(&self, warning: &Warning) {
        // A block may be in hand.
        report(|| tracing::warn!(allocator = self.inner.name(), "{warning}"));
        if let Some(callback) = &self.callback
            && shielded(|| callback(warning)).is_none()
        {
            report(|| tracing::error!(allocator = self.inner.name(), "the warning callback panicked"));
        }
    }
}

// SAFETY: blocks are upstream's, unchanged, and go back to it.
unsafe impl<A: Allocator> Allocator for Warn<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        self.check_single(request.bytes, request.kind, request.tag);
        let block = self.inner.allocate(request)?;
        self.count_in(block.granted);
        Ok(block)
    }

    /// Warns of what has grown, as of a request for all of it.
    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let granted = block.granted;
        // SAFETY: the caller's promise; upstream's own block.
        if !unsafe { self.inner.grow_in_place(block, bytes) } {
            return false;
        }
        self.check_single(bytes, block.kind, block.tag);
        self.count_in(block.granted.saturating_sub(granted));
        true
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let granted = block.granted;
        // SAFETY: the caller's promises; upstream's own block.
        unsafe { self.inner.deallocate(block) }?;
        self.live.fetch_sub(granted as u64, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        // SAFETY: the caller's promises; upstream's own block.
        let found = unsafe { self.inner.deallocate_raw(ptr, requested) }?;
        self.live.fetch_sub(found.granted as u64, Ordering::Relaxed);
        Ok(found)
    }

    forward!(inner: name, device, device_memory, usage, reset_peak, semantics, trim, find, has_tracked_sizes,
        has_raw_deleter, has_opaque_handles, set_safe_frontier, describe, verify, watch_regions,
        allocated_size_slow, set_statistics);
}

impl<A: fmt::Debug> fmt::Debug for Warn<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warn")
            .field("inner", &self.inner)
            .field("single", &self.single)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

impl<A: fmt::Debug> fmt::Debug for WarnBuilder<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WarnBuilder")
            .field("inner", &self.inner)
            .field("memory", &self.memory)
            .field("single", &self.single)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::AllocatorRef;
    use crate::backing::Null;
    use crate::engine::Direct;
    use orlop_core::Device;
    use orlop_sync::Mutex;
    use std::sync::Arc;

    type Seen = Arc<Mutex<Vec<Warning>>>;

    fn watched(device: Device, memory: TotalMemory) -> (AllocatorRef<Warn<Direct<Null>>>, Seen) {
        let seen = Seen::default();
        let callback = {
            let seen = seen.clone();
            move |warning: &Warning| seen.lock().push(*warning)
        };
        let engine =
            Warn::builder(Direct::engine(Null::new(device))).memory(memory).callback(callback).build();
        (AllocatorRef::new(engine), seen)
    }

    #[test]
    fn warns_of_single_allocations_five_times() {
        let (allocator, seen) = watched(Device::CPU, TotalMemory::Bytes(1000));
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
        let (allocator, seen) = watched(Device::cuda(0), TotalMemory::Bytes(1000));
        for _ in 0..100 {
            drop(allocator.allocate(&Request::new(100)).unwrap());
        }
        assert!(seen.lock().is_empty());
        let _blocks: Vec<_> = (0..8).map(|_| allocator.allocate(&Request::new(100)).unwrap()).collect();
        assert_eq!(*seen.lock(), [Warning::Total { live: 600, threshold: 500 }]);
        assert_eq!(allocator.warnings(), 1);
    }

    #[test]
    fn is_off_for_devices_of_unknown_size_and_survives_its_callback() {
        let (allocator, _) = watched(Device::cuda(0), TotalMemory::System);
        drop(allocator.allocate(&Request::new(usize::MAX / 4)).unwrap());
        assert_eq!(allocator.warnings(), 0);
        let builder = Warn::builder(Direct::engine(Null::new(Device::CPU))).memory(TotalMemory::Bytes(10));
        let allocator = AllocatorRef::new(builder.callback(|_| panic!("callback")).build());
        assert!(allocator.allocate(&Request::new(9)).is_ok());
        assert_eq!(allocator.warnings(), 2);
        let builder = Warn::builder(Direct::engine(Null::new(Device::CPU))).memory(TotalMemory::Bytes(10));
        let allocator = AllocatorRef::new(builder.single(0.0, 5).total(f64::NAN, 5).build());
        assert!(allocator.allocate(&Request::new(90)).is_ok());
        assert_eq!(allocator.warnings(), 0);
    }
}
