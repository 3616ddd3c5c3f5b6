//! The table behind a context: device and kind to allocator, in a handful of loads.
//!
//! The CPU and the first CUDA devices have places of their own, so that the common look-up touches no map,
//! no lock and no reference count. Other devices, backends made elsewhere among them, are in a map.

use super::budget::Accounts;
use super::explicit::Passed;
use super::external::OutsideAccounts;
use super::retaining_cell::Replaceable;
use crate::{Allocator as _, AllocatorRef, DeviceOps, MemoryBlock};
use dashmap::DashMap;
use orlop_core::{Device, MemoryKind};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// CUDA devices with a place of their own.
const CUDA_PLACES: usize = 16;

/// The number of no context: they count from one.
const NO_CONTEXT: u64 = 0;

/// An allocator behind a budget's gate.
#[derive(Debug)]
struct Gated {
    upstream: AllocatorRef,
    gate: AllocatorRef,
}

/// What a context knows of one device.
#[derive(Debug, Default)]
pub(super) struct DeviceRoutes {
    /// Who serves a kind: the registered allocator, or a budget's gate before it.
    kinds: [Replaceable<AllocatorRef>; MemoryKind::COUNT],
    /// Who was registered: where the figures come from.
    registered: [Replaceable<AllocatorRef>; MemoryKind::COUNT],
    pub(super) ops: Replaceable<Arc<dyn DeviceOps>>,
    stream: AtomicU64,
    accounts: OnceLock<Arc<Accounts>>,
    /// Every gate there ever was, because blocks may still come from any of them.
    gates: Replaceable<Gated>,
    /// Allocators that were passed for requests.
    pub(super) passed: Arc<Passed>,
    /// Memory from outside.
    pub(super) outside: OutsideAccounts,
}

impl DeviceRoutes {
    /// The allocator for `kind`, else the one for the default kind.
    #[inline]
    pub(super) fn get(&self, kind: MemoryKind) -> Option<&AllocatorRef> {
        self.kinds[kind.index()].get().or_else(|| self.kinds[MemoryKind::Default.index()].get())
    }

    /// The allocator registered for exactly this kind.
    pub(super) fn registered(&self, kind: MemoryKind) -> Option<&AllocatorRef> {
        self.registered[kind.index()].get()
    }

    /// Registers an allocator. The one before is noted by no context then: if it is passed for requests from now on, who
    /// charges it is to be looked for again.
    pub(super) fn register(&self, kind: MemoryKind, allocator: AllocatorRef) {
        if let Some(before) = self.registered[kind.index()].set(Some(allocator)) {
            before.set_noted_by(NO_CONTEXT);
        }
    }

    /// Notes which gate stands before an allocator.
    pub(super) fn add_gate(&self, upstream: AllocatorRef, gate: AllocatorRef) {
        self.gates.set(Some(Gated { upstream, gate }));
    }

    pub(super) fn serve(&self, kind: MemoryKind, allocator: AllocatorRef) {
        self.kinds[kind.index()].set(Some(allocator));
    }

    /// The registered allocators, each once.
    pub(super) fn distinct(&self) -> Vec<&AllocatorRef> {
        let mut distinct: Vec<&AllocatorRef> = Vec::new();
        for allocator in self.registered.iter().filter_map(Replaceable::get) {
            if !distinct.iter().any(|known| known.same_as(allocator)) {
                distinct.push(allocator);
            }
        }
        distinct
    }

    /// All allocators that are or were registered, each once: those from before have blocks still, perhaps.
    pub(super) fn counted(&self) -> Vec<&AllocatorRef> {
        let mut distinct = self.distinct();
        for allocator in self.registered.iter().flat_map(Replaceable::all) {
            if !distinct.iter().any(|known| known.same_as(allocator)) {
                distinct.push(allocator);
            }
        }
        distinct
    }

    /// Who serves here for an allocator that is registered or serves itself, or was and did: the gate before it, or the
    /// allocator. One that was registered without a gate is like any other.
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

    /// Whether what the allocator hands out comes by way of a budget's gate of this device, and is charged there.
    pub(super) fn is_over_gate(&self, allocator: &AllocatorRef) -> bool {
        self.gates.all().into_iter().any(|gated| allocator.is_over(&gated.gate))
    }

    /// Whether a block comes from a budget's gate of this device.
    pub(super) fn is_from_gate(&self, block: &MemoryBlock) -> bool {
        self.gates.all().into_iter().any(|gated| block.is_from(&gated.gate))
    }

    pub(super) fn accounts(&self) -> Option<&Arc<Accounts>> {
        self.accounts.get()
    }

    pub(super) fn accounts_or_new(&self) -> &Arc<Accounts> {
        self.accounts.get_or_init(|| Arc::new(Accounts::new(Arc::clone(&self.passed))))
    }

    /// The stream, as a number. Relaxed: a stream is named by it, nothing is read because of it.
    pub(super) fn stream(&self) -> u64 {
        self.stream.load(Ordering::Relaxed)
    }

    pub(super) fn set_stream(&self, stream: u64) {
        self.stream.store(stream, Ordering::Relaxed);
    }
}

/// All devices of a context.
#[derive(Debug, Default)]
pub(super) struct Routes {
    cpu: OnceLock<DeviceRoutes>,
    cuda: [OnceLock<Box<DeviceRoutes>>; CUDA_PLACES],
    others: DashMap<Device, Arc<DeviceRoutes>>,
}

/// A device's routes, borrowed from their place or shared from the map.
pub(super) enum Found<'a> {
    Place(&'a DeviceRoutes),
    Map(Arc<DeviceRoutes>),
}

impl Deref for Found<'_> {
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
    /// The routes of a device with a place of its own.
    #[inline]
    pub(super) fn place(&self, device: Device) -> Option<&DeviceRoutes> {
        if device.is_cpu() { self.cpu.get() } else { self.cuda_place(device)?.get().map(|routes| &**routes) }
    }

    /// The device's routes, if anything was ever said about it.
    #[inline]
    pub(super) fn get(&self, device: Device) -> Option<Found<'_>> {
        if device.is_cpu() {
            return self.cpu.get().map(Found::Place);
        }
        match self.cuda_place(device) {
            Some(place) => place.get().map(|routes| Found::Place(routes)),
            None => self.others.get(&device).map(|routes| Found::Map(Arc::clone(&routes))),
        }
    }

    /// The device's routes, empty at first.
    pub(super) fn get_or_new(&self, device: Device) -> Found<'_> {
        if device.is_cpu() {
            return Found::Place(self.cpu.get_or_init(DeviceRoutes::default));
        }
        match self.cuda_place(device) {
            Some(place) => Found::Place(place.get_or_init(Box::default)),
            None => Found::Map(Arc::clone(&self.others.entry(device).or_default())),
        }
    }

    fn cuda_place(&self, device: Device) -> Option<&OnceLock<Box<DeviceRoutes>>> {
        if device.is_cuda() { self.cuda.get(usize::from(device.index())) } else { None }
    }

    /// Every device that something was said about.
    pub(super) fn devices(&self) -> Vec<Device> {
        let cpu = self.cpu.get().map(|_| Device::CPU);
        let cuda = (0u16..).zip(&self.cuda).filter(|(_, place)| place.get().is_some());
        let others = self.others.iter().map(|entry| *entry.key());
        cpu.into_iter().chain(cuda.map(|(index, _)| Device::cuda(index))).chain(others).collect()
    }
}
