//! The calls of tests: see `crate::control` for their types. None of them is counted or takes virtual time.

use crate::abi::{In, Out};
use crate::codes::{CUresult, Failure, Outcome};
use crate::control::{
    SimAccess, SimAccessReport, SimAllocation, SimConfiguration, SimCounts, SimKernel, SimRace,
};
use crate::driver::Driver;
use crate::guard::DriverGuard;
use crate::memory::{MemoryAccess, SimMemory, bytes};
use crate::ptx::Shape;
use crate::state::config::Config;
use crate::state::host_thread::{self, as_callback};
use crate::state::kernel::{Kernel, KernelCode, Launch};
use crate::state::races::AccessRecord;
use crate::state::work::{Submission, Work};
use orlop_race::AccessKind;
use std::ffi::c_void;
use std::sync::Arc;

fn code(result: Outcome) -> CUresult {
    result.err().map_or(0, |failure| failure.0)
}

fn text(name: In<u8>, length: usize) -> Outcome<String> {
    String::from_utf8(name.list(length)?).map_err(|_| Failure::INVALID_VALUE)
}

/// Starts the simulation anew. This thread has no context then.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_reset(configuration: In<SimConfiguration>) -> CUresult {
    code(configuration.get().and_then(|found| {
        let devices = In::from_pointer(found.devices).list(found.device_count)?;
        let is_granular = found.granularity.is_power_of_two() && found.granularity >= 1 << 16;
        if !is_granular || found.bytes_per_us == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        host_thread::clear();
        DriverGuard::lock().reset(Config {
            version: found.version,
            seed: found.seed,
            call_ns: found.call_ns,
            op_ns: found.op_ns,
            bytes_per_us: found.bytes_per_us,
            granularity: found.granularity,
            pinned_limit: found.pinned_limit,
            has_poison: found.has_poison,
            has_pools: found.has_pools,
            has_vmm: found.has_vmm,
            has_rdma: found.has_rdma,
            page_handle_types: found.page_handle_types,
            has_peer_access: found.has_peer_access,
            frees_wait: found.frees_wait,
            pools_wait: found.pools_wait,
            modules_wait: found.modules_wait,
            shares_access: found.shares_access,
            has_unique_handles: found.has_unique_handles,
            launch_queue: found.launch_queue.max(1),
            devices,
        });
        Ok(())
    }))
}

/// Advances virtual time and completes what ends by then.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_advance(nanoseconds: u64) {
    let mut driver = DriverGuard::lock();
    let now = driver.now.saturating_add(nanoseconds);
    driver.now = now;
    driver.run_until(now);
}

/// Registers what the kernel of this name does, in place of an earlier registration.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_register(name: In<u8>, length: usize, kernel: SimKernel) -> CUresult {
    let kernel = Kernel::new(kernel);
    code(text(name, length).map(|name| DriverGuard::lock().modules.register(name, kernel)))
}

/// Submits a kernel of `nanoseconds` to a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_launch(
    name: In<u8>,
    length: usize,
    stream: u64,
    accesses: In<SimAccess>,
    count: usize,
    nanoseconds: u64,
    kernel: SimKernel,
) -> CUresult {
    let kernel = Arc::new(Kernel::new(kernel));
    let submit = || -> Outcome {
        let name: Arc<str> = Arc::from(text(name, length)?);
        let accesses = (0..count).map(|index| accesses.at(index).map(MemoryAccess::from));
        let accesses = accesses.collect::<Outcome<Vec<MemoryAccess>>>()?;
        let mut driver = DriverGuard::lock();
        let now = driver.now;
        driver.run_until(now);
        let id = driver.stream_of(stream)?;
        let device = driver.stream(id)?.device;
        if let Some(failure) = driver.devices[device].sticky {
            return Err(failure);
        }
        let shape = Shape { grid: [1; 3], block: [1; 3] };
        let launch = Launch::new(Arc::clone(&name), KernelCode::Registered(kernel), shape, 0, Vec::new());
        let (work, duration) = (Work::Kernel(Arc::new(launch)), Some(nanoseconds));
        driver.submit(id, Submission { name, work, accesses, duration })
    };
    code(submit())
}

/// Checks and records an access of the host to pinned or registered memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_host_access(name: In<u8>, length: usize, access: SimAccess) -> CUresult {
    code(text(name, length).map(|name| DriverGuard::lock().host_access(&name, MemoryAccess::from(access))))
}

fn report(record: &AccessRecord) -> SimAccessReport {
    SimAccessReport {
        name: record.name.as_ptr(),
        name_length: record.name.len(),
        stream: record.stream,
        is_write: record.kind != AccessKind::Read,
        is_atomic: record.kind == AccessKind::Atomic,
        address: record.address,
        bytes: record.bytes,
        time: record.time,
    }
}

/// Passes every kept race to `sink`, and forgets them if `clear`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_races(
    context: *mut c_void,
    sink: extern "C" fn(*mut c_void, *const SimRace),
    clear: bool,
) {
    let mut driver = DriverGuard::lock();
    for race in &driver.races.found {
        let race = SimRace { earlier: report(&race.earlier), later: report(&race.later) };
        as_callback(|| sink(context, &raw const race));
    }
    if clear {
        driver.races.found.clear();
        driver.races.count = 0;
    }
}

/// Passes every called function with its count to `sink`, and forgets them if `clear`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_calls(
    context: *mut c_void,
    sink: extern "C" fn(*mut c_void, *const u8, usize, u64),
    clear: bool,
) {
    let mut driver = DriverGuard::lock();
    for (name, calls) in driver.faults.calls() {
        as_callback(|| sink(context, name.as_ptr(), name.len(), calls));
    }
    if clear {
        driver.faults.reset_calls();
    }
}

/// Passes why the last module or launch of PTX was refused to `sink`, if one was.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_refusal(
    context: *mut c_void,
    sink: extern "C" fn(*mut c_void, *const u8, usize),
) {
    let driver = DriverGuard::lock();
    if let Some(refusal) = &driver.modules.refusal {
        as_callback(|| sink(context, refusal.as_ptr(), refusal.len()));
    }
}

/// Fails `count` calls of a function (`*`: any), beginning with the `nth` from now.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_fail(
    name: In<u8>,
    length: usize,
    nth: u64,
    count: u64,
    failure: CUresult,
) -> CUresult {
    code(text(name, length).map(|name| DriverGuard::lock().faults.add(name, nth, count, Failure(failure))))
}

/// Removes all faults that are still to come.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_clear_faults() {
    DriverGuard::lock().faults.clear();
}

/// Makes every later call on a device's context return this code; 0 ends that.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_poison(device: usize, failure: CUresult) -> CUresult {
    let mut driver = DriverGuard::lock();
    match driver.devices.get_mut(device) {
        Some(device) => {
            device.sticky = (failure != 0).then_some(Failure(failure));
            0
        }
        None => Failure::INVALID_DEVICE.0,
    }
}

/// Returns the used bytes of a device; 0 for an unknown one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_used(device: usize) -> u64 {
    DriverGuard::lock().devices.get(device).map_or(0, |device| device.used)
}

/// Passes everything that is allocated to `sink`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_allocations(
    context: *mut c_void,
    sink: extern "C" fn(*mut c_void, SimAllocation),
) {
    for allocation in allocations(&DriverGuard::lock()) {
        as_callback(|| sink(context, allocation));
    }
}

fn allocations(driver: &Driver) -> Vec<SimAllocation> {
    let linear = driver.memory.allocations.values().map(|found| SimAllocation {
        address: found.start as u64,
        bytes: found.bytes,
        device: found.device,
        kind: match found.kind {
            SimMemory::Device if found.pool != 0 => 4,
            SimMemory::Device | SimMemory::Mapped | SimMemory::Imported => 0,
            SimMemory::Managed => 1,
            SimMemory::Pinned => 2,
            SimMemory::Registered => 3,
        },
    });
    let mut all: Vec<SimAllocation> = linear.collect();
    let physical = driver.vmm.physical();
    all.extend(physical.map(|(address, bytes, device)| SimAllocation { address, bytes, device, kind: 5 }));
    let reserved = driver.vmm.reservations();
    all.extend(reserved.into_iter().map(|range| SimAllocation {
        address: range.start as u64,
        bytes: range.len(),
        device: 0,
        kind: 6,
    }));
    all.sort_by_key(|allocation| (allocation.kind, allocation.address));
    all
}

/// Writes the counts.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_counts(counts: Out<SimCounts>) {
    let driver = DriverGuard::lock();
    let own = driver.streams.iter().filter(|(id, stream)| {
        !stream.is_legacy && !stream.is_destroyed && !driver.thread_streams.values().any(|own| own == *id)
    });
    counts.set_optional(SimCounts {
        now: driver.now,
        streams: own.count() as u64,
        events: driver.events.len() as u64,
        graphs: (driver.graphs.len() + driver.executables.len()) as u64,
        operations: driver.streams.values().map(|stream| stream.operations.len() as u64).sum(),
        races: driver.races.count,
        waits: driver.waits,
        waited_ns: driver.waited_ns,
        pinned: driver.memory.pinned,
        modules: driver.modules.count() as u64,
        queues: driver.order.queues() as u64,
        ranges: driver.races.past.segments() as u64,
        rdma_pages: driver.rdma_pages,
    });
}

/// Copies simulated memory out, without a check for races.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_read(address: usize, buffer: usize, count: usize) -> CUresult {
    let driver = DriverGuard::lock();
    code(driver.check_range(address, count).map(|()| bytes::copy(buffer, address, count)))
}

/// Copies into simulated memory, without a check for races.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlopsim_write(address: usize, buffer: usize, count: usize) -> CUresult {
    let driver = DriverGuard::lock();
    code(driver.check_range(address, count).map(|()| bytes::copy(address, buffer, count)))
}
