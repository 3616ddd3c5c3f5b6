//! The table of a context: from device and kind to an allocator, in a few loads.
//!
//! The CPU and the first CUDA devices have fixed places, so that the common look-up uses no map, no lock and
//! no reference count. Other devices are in a map.

use super::budget::BudgetAccounts;
use super::explicit::ExplicitAllocators;
use super::external::ExternalAccounts;

use dashmap::DashMap;
use orlop_alloc::engine_support::ContextHandle as _;
use orlop_alloc::{Allocator as _, AllocatorRef, MemoryBlock, engine_support::DeviceOps};
use orlop_core::{Device, MemoryKind, StreamId};
use orlop_sync::RetainingCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// CUDA devices with a fixed place.
const CUDA_PLACES: usize = 16;

/// The number of no context: contexts count from one.
const NO_CONTEXT: u64 = 0;

/// An allocator behind a budget gate.
#[derive(Debug)]
struct Gated {
    upstream: AllocatorRef,
    gate: AllocatorRef,
}

/// The allocators of one device in a context.
#[derive(Debug, Default)]
pub(super) struct DeviceRoutes {
    /// By kind, the serving allocator: the registered one, or the budget gate in front of it.
    kinds: [RetainingCell<AllocatorRef>; MemoryKind::COUNT],
    /// By kind, the registered allocator: the source of the statistics.
    registered: [RetainingCell<AllocatorRef>; MemoryKind::COUNT],
    pub(super) ops: RetainingCell<Arc<dyn DeviceOps>>,
    /// The number of the current stream; that of [`StreamId::HOST`] stands for the default stream.
    stream: AtomicU64,
    accounts: OnceLock<Arc<BudgetAccounts>>,
    /// Every gate ever created, because any of them may still have live blocks.
    gates: RetainingCell<Gated>,
    /// Allocators that were passed for single requests.
    pub(super) explicit: Arc<ExplicitAllocators>,
    /// External memory.
    pub(super) external: ExternalAccounts,
}

impl DeviceRoutes {
    /// Returns the allocator for `kind`, else the one for the default kind.
    #[inline]
    pub(super) fn get(&self, kind: MemoryKind) -> Option<&AllocatorRef> {
        self.kinds[kind.index()].get().or_else(|| self.kinds[MemoryKind::Default.index()].get())
    }

    /// Returns the allocator registered for exactly this kind.
    pub(super) fn registered(&self, kind: MemoryKind) -> Option<&AllocatorRef> {
        self.registered[kind.index()].get()
    }

    /// Registers an allocator. The mark of the context that recorded the previous one is cleared: if that
    /// allocator is passed for requests from now on, the context must determine again which gate charges it.
    pub(super) fn register(&self, kind: MemoryKind, allocator: AllocatorRef) {
        if let Some(before) = self.registered[kind.index()].set(Some(allocator)) {
            before.set_context_number(NO_CONTEXT);
        }
    }

    /// Puts a gate in front of an allocator. Handles that were taken before go through it too.
    pub(super) fn add_gate(&self, upstream: &AllocatorRef, gate: &AllocatorRef) {
        upstream.set_gate(gate);
        self.gates.set(Some(Gated { upstream: upstream.clone(), gate: gate.clone() }));
    }

    pub(super) fn serve(&self, kind: MemoryKind, allocator: AllocatorRef) {
        self.kinds[kind.index()].set(Some(allocator));
    }

    /// Returns the registered allocators, each once.
    pub(super) fn distinct(&self) -> Vec<&AllocatorRef> {
        let mut distinct: Vec<&AllocatorRef> = Vec::new();
        for allocator in self.registered.iter().filter_map(RetainingCell::get) {
            if !distinct.iter().any(|known| known.same_as(allocator)) {
                distinct.push(allocator);
            }
        }
        distinct
    }

    /// Returns all allocators that are or were registered, each once: earlier ones may still have live
    /// blocks.
    pub(super) fn counted(&self) -> Vec<&AllocatorRef> {
        let mut distinct = self.distinct();
        for allocator in self.registered.iter().flat_map(RetainingCell::all) {
            if !distinct.iter().any(|known| known.same_as(allocator)) {
                distinct.push(allocator);
            }
        }
        distinct
    }

    /// Returns what serves in place of an allocator that is or was registered or is itself a gate: the gate
    /// in front of it, or the allocator. Returns `None` for one that was replaced and has no gate.
    pub(super) fn registration_of(&self, allocator: &AllocatorRef) -> Option<&AllocatorRef> {
        let current = self.kinds.iter().zip(&self.registered).find_map(|(serving, registered)| {
            let serving = serving.get()?;
            let is_it = serving.same_as(allocator) || registered.get().is_some_and(|r| r.same_as(allocator));
            is_it.then_some(serving)
        });
        let is_it = |gated: &&Gated| gated.gate.same_as(allocator) || gated.upstream.same_as(allocator);
        let gate = || self.gates.all().into_iter().rfind(is_it).map(|gated| &gated.gate);
        current.or_else(gate)
    }

    /// Returns the allocator behind a gate of this device.
    pub(super) fn behind_gate(&self, gate: &AllocatorRef) -> Option<&AllocatorRef> {
        self.gates.all().into_iter().find(|gated| gated.gate.same_as(gate)).map(|gated| &gated.upstream)
    }

    /// Returns `true` if the allocator hands out blocks of a budget gate of this device, which charges them.
    pub(super) fn is_over_gate(&self, allocator: &AllocatorRef) -> bool {
        self.gates.all().into_iter().any(|gated| allocator.wraps(&gated.gate))
    }

    /// Returns `true` if a block comes from a budget gate of this device.
    pub(super) fn is_from_gate(&self, block: &MemoryBlock) -> bool {
        self.gates.all().into_iter().any(|gated| block.is_from(&gated.gate))
    }

    pub(super) fn accounts(&self) -> Option<&Arc<BudgetAccounts>> {
        self.accounts.get()
    }

    pub(super) fn accounts_or(&self, new: &Arc<BudgetAccounts>) -> &Arc<BudgetAccounts> {
        self.accounts.get_or_init(|| Arc::clone(new))
    }

    pub(super) fn new_accounts(&self) -> Arc<BudgetAccounts> {
        Arc::new(BudgetAccounts::new(Arc::clone(&self.explicit)))
    }

    /// Returns the stream that was set. Relaxed: it orders no other memory accesses.
    pub(super) fn stream(&self) -> StreamId {
        StreamId::from_raw(self.stream.load(Ordering::Relaxed))
    }

    pub(super) fn set_stream(&self, stream: StreamId) {
        self.stream.store(stream.raw(), Ordering::Relaxed);
    }
}

/// All devices of a context.
#[derive(Debug, Default)]
pub(super) struct Routes {
    cpu: OnceLock<DeviceRoutes>,
    cuda: [OnceLock<Box<DeviceRoutes>>; CUDA_PLACES],
    others: DashMap<Device, Arc<DeviceRoutes>>,
}

/// A device's routes, borrowed from a fixed place or shared from the map.
pub(super) enum RoutesRef<'a> {
    Place(&'a DeviceRoutes),
    Map(Arc<DeviceRoutes>),
}

impl Deref for RoutesRef<'_> {
    type Target = DeviceRoutes;

    #[inline]
    fn deref(&self) -> &DeviceRoutes {
        match self {
            Self::Place(routes) => routes,
            Self::Map(routes) => routes,
        }
    }
}

impl Routes {
    /// Returns the routes of a device with a fixed place.
    #[inline]
    pub(super) fn place(&self, device: Device) -> Option<&DeviceRoutes> {
        if device.is_cpu() { self.cpu.get() } else { self.cuda_place(device)?.get().map(|routes| &**routes) }
    }

    /// Returns the device's routes, if it has any.
    #[inline]
    pub(super) fn get(&self, device: Device) -> Option<RoutesRef<'_>> {
        if device.is_cpu() {
            return self.cpu.get().map(RoutesRef::Place);
        }
        match self.cuda_place(device) {
            Some(place) => place.get().map(|routes| RoutesRef::Place(routes)),
            None => self.others.get(&device).map(|routes| RoutesRef::Map(Arc::clone(&routes))),
        }
    }

    /// Returns the device's routes, which are empty at first.
    pub(super) fn get_or_new(&self, device: Device) -> RoutesRef<'_> {
        if device.is_cpu() {
            return RoutesRef::Place(self.cpu.get_or_init(DeviceRoutes::default));
        }
        match self.cuda_place(device) {
            Some(place) => RoutesRef::Place(place.get_or_init(Box::default)),
            None => RoutesRef::Map(Arc::clone(&self.others.entry(device).or_default())),
        }
    }

    fn cuda_place(&self, device: Device) -> Option<&OnceLock<Box<DeviceRoutes>>> {
        if device.is_cuda() { self.cuda.get(usize::from(device.index())) } else { None }
    }

    /// Returns the devices that have routes.
    pub(super) fn devices(&self) -> Vec<Device> {
        let cpu = self.cpu.get().map(|_| Device::CPU);
        let cuda = (0u16..).zip(&self.cuda).filter(|(_, place)| place.get().is_some());
        let others = self.others.iter().map(|entry| *entry.key());
        cpu.into_iter().chain(cuda.map(|(index, _)| Device::cuda(index))).chain(others).collect()
    }
}
