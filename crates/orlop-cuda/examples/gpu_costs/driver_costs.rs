//! What pages, events and steps of two streams cost, and which addresses the driver gives.

use super::calls::{Event, Handle, Region, Reservation, check};
use super::{Costs, Result, head, ns_each, row, timed};
use cudarc::driver::sys;
use orlop_alloc::{Allocator, Request};
use orlop_core::ByteSize;
use orlop_cuda::{DeviceStream, caching_allocator_with};
use orlop_device::{Policy, TorchConf};

const MIB: usize = 1 << 20;

/// A number of steps that does not fill the queues of the streams: the host does not wait for the device.
const BURST: u32 = 100;

/// Milliseconds to make memory out of handles of several sizes, and to move it to other addresses.
pub(super) fn pages(costs: &Costs) -> Result<()> {
    let total = costs.or_quick(1024 * MIB, 64 * MIB);
    costs.device.context().bind_to_thread()?;
    println!(
        "Milliseconds for {}, the second time; a move is to unmap, map and set access.\n",
        ByteSize(total as u64)
    );
    let columns = ["handles of", "create", "map", "set access", "move", "move again", "unmap", "release"];
    head(&columns);
    for bytes in [2 * MIB, 20 * MIB, 32 * MIB, 128 * MIB, total] {
        let total = total - total % bytes;
        if total == 0 {
            continue;
        }
        let mut times = [0.0; 7];
        for _ in 0..2 {
            let (from, to) = (Reservation::new(total)?, Reservation::new(total)?);
            let (create, handles) =
                timed(|| (0..total / bytes).map(|_| Handle::create(bytes)).collect::<Result<Vec<_>>>())?;
            let (map, ()) = timed(|| from.map(&handles, bytes))?;
            let (access, ()) = timed(|| from.allow())?;
            let move_to = |from: &Reservation, to: &Reservation| {
                timed(|| {
                    from.unmap(bytes)?;
                    to.map(&handles, bytes)?;
                    to.allow()
                })
            };
            let (there, ()) = move_to(&from, &to)?;
            let (back, ()) = move_to(&to, &from)?;
            let (unmap, ()) = timed(|| from.unmap(bytes))?;
            let (release, ()) = timed(|| {
                drop(handles);
                Ok(())
            })?;
            times = [create, map, access, there, back, unmap, release];
        }
        row(ByteSize(bytes as u64), times.map(|time| format!("{time:.2}")));
    }
    println!();
    head(&["`cuMemAlloc` of", "ms", "`cuMemFree`, ms"]);
    for bytes in [2 * MIB, 20 * MIB, total] {
        drop(Region::new(bytes)?);
        let (create, region) = timed(|| Region::new(bytes))?;
        let (free, ()) = timed(|| {
            drop(region);
            Ok(())
        })?;
        row(ByteSize(bytes as u64), [create, free].map(|time| format!("{time:.3}")));
    }
    Ok(())
}

/// Nanoseconds of calls on events.
pub(super) fn events(costs: &Costs) -> Result<()> {
    let rounds = costs.or_quick(20_000, 50);
    costs.device.context().bind_to_thread()?;
    let (one, two) = (costs.device.create_stream()?, costs.device.create_stream()?);
    let streams = [&one, &two].map(|stream| stream.cudarc().cu_stream());
    let event = Event::new()?;
    let mut kept = Vec::new();
    head(&["call", "ns"]);
    let created = ns_each(rounds.min(4000), || {
        kept.push(Event::new()?);
        Ok(())
    })?;
    row("`cuEventCreate`", [format!("{created:.0}")]);
    let destroyed = ns_each(rounds.min(4000), || {
        drop(kept.pop());
        Ok(())
    })?;
    row("`cuEventDestroy`", [format!("{destroyed:.0}")]);
    // SAFETY: the event and both streams are kept.
    let record = || check(unsafe { sys::cuEventRecord(event.0, streams[0]) });
    row("`cuEventRecord`, idle stream", [format!("{:.0}", ns_each(rounds, record)?)]);
    one.synchronize()?;
    // SAFETY: as above.
    let query = ns_each(rounds, || check(unsafe { sys::cuEventQuery(event.0) }))?;
    row("`cuEventQuery`, complete", [format!("{query:.0}")]);
    // SAFETY: as above.
    let wait = ns_each(rounds, || check(unsafe { sys::cuStreamWaitEvent(streams[1], event.0, 0) }))?;
    row("`cuStreamWaitEvent`, complete", [format!("{wait:.0}")]);
    let both = ns_each(rounds, || {
        record()?;
        // SAFETY: as above.
        check(unsafe { sys::cuStreamWaitEvent(streams[1], event.0, 0) })
    })?;
    row("record, and the other stream waits", [format!("{both:.0}")]);
    let (there, back) = (Event::new()?, Event::new()?);
    let in_turn = ns_each(rounds, || {
        for (event, from, to) in [(&there, streams[0], streams[1]), (&back, streams[1], streams[0])] {
            // SAFETY: the events and both streams are kept.
            check(unsafe { sys::cuEventRecord(event.0, from) })?;
            // SAFETY: as above.
            check(unsafe { sys::cuStreamWaitEvent(to, event.0, 0) })?;
        }
        Ok(())
    })?;
    row("each of two streams waits for the other, in turn", [format!("{in_turn:.0}")]);
    two.synchronize()?;
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: as above; it writes one number.
    let capturing =
        ns_each(rounds, || check(unsafe { sys::cuStreamIsCapturing(streams[0], &raw mut status) }))?;
    row("`cuStreamIsCapturing`", [format!("{capturing:.0}")]);
    let mut context = std::ptr::null_mut();
    // SAFETY: it writes one handle.
    let current = ns_each(rounds, || check(unsafe { sys::cuCtxGetCurrent(&raw mut context) }))?;
    row("`cuCtxGetCurrent`", [format!("{current:.0}")]);
    // SAFETY: the handle is that of the current context.
    let switched = ns_each(rounds, || check(unsafe { sys::cuCtxSetCurrent(context) }))?;
    row("`cuCtxSetCurrent`, the same", [format!("{switched:.0}")]);
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: it exchanges one number; an even number of exchanges restores it.
    let exchanged =
        ns_each(rounds, || check(unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }))?;
    row("`cuThreadExchangeStreamCaptureMode`", [format!("{exchanged:.0}")]);
    let information = ns_each(rounds.min(1000), || Ok(costs.device.memory().map(drop)?))?;
    row("`cuMemGetInfo`, in the device's context", [format!("{information:.0}")]);
    two.synchronize()?;
    Ok(())
}

/// Nanoseconds of a step in which two streams use each other's blocks.
pub(super) fn two_streams(costs: &Costs) -> Result<()> {
    let rounds = costs.or_quick(20_000, 50);
    let streams = [costs.device.create_stream()?, costs.device.create_stream()?];
    head(&[
        "allocator",
        "a pair on one stream, ns",
        "a step of two streams, ns",
        "of these, on the host",
        "reserved",
    ]);
    for policy in [Policy::orlop(), Policy::torch(&TorchConf::default())] {
        let name = policy.name;
        let allocator = caching_allocator_with(&costs.device, policy)?.into_ref();
        let request = |which: usize| Request::new(MIB).stream(streams[which].id());
        let pair = || Ok(allocator.allocate(&request(0)).map(drop)?);
        let step = || {
            for which in 0..2 {
                let block = allocator.allocate(&request(which))?;
                block.record_stream(streams[1 - which].id())?;
            }
            Ok(())
        };
        let alone = ns_each(rounds, pair).and_then(|_| ns_each(rounds, pair))?;
        let both = ns_each(rounds, step).and_then(|_| ns_each(rounds, step))?;
        let bursts = rounds.div_ceil(BURST);
        let mut on_host = 0.0;
        for _ in 0..bursts {
            streams.iter().try_for_each(DeviceStream::synchronize)?;
            on_host += ns_each(BURST, step)? / f64::from(bursts);
        }
        let times = [alone, both, on_host].map(|time| format!("{time:.0}"));
        let reserved = ByteSize(allocator.usage().reserved).to_string();
        row(format!("`{name}`"), times.into_iter().chain([reserved]));
    }
    Ok(())
}

/// The distances between the addresses that the driver gives.
pub(super) fn addresses(costs: &Costs) -> Result<()> {
    let count = costs.or_quick(40, 8);
    costs.device.context().bind_to_thread()?;
    println!("The first address, and each next one's distance from the one before, in MiB.\n");
    let distances = |addresses: &[u64]| {
        let pairs = addresses.windows(2).map(|pair| (pair[1].cast_signed() - pair[0].cast_signed()) as f64);
        pairs.map(|bytes| format!("{}", bytes / MIB as f64)).collect::<Vec<_>>().join(" ")
    };
    for bytes in [MIB, 2 * MIB, 20 * MIB, 40 * MIB, 100 * MIB] {
        let count = costs.or_quick(count, 4);
        let regions = (0..count).map(|_| Region::new(bytes)).collect::<Result<Vec<_>>>()?;
        let found: Vec<_> = regions.iter().map(|region| region.0).collect();
        println!("- `cuMemAlloc` of {}: {:#x}: {}", ByteSize(bytes as u64), found[0], distances(&found));
        let mut kept: Vec<_> = regions.into_iter().map(Some).collect();
        kept.iter_mut().skip(1).step_by(2).for_each(|region| *region = None);
        let again = (0..count / 2).map(|_| Region::new(bytes)).collect::<Result<Vec<_>>>()?;
        let reused = again.iter().filter(|region| found.contains(&region.0)).count();
        let first = again.iter().take(6).filter_map(|region| found.iter().position(|at| *at == region.0));
        let first: Vec<_> = first.map(|index| index.to_string()).collect();
        println!(
            "  - after every second one was freed: {reused} of {} are at freed addresses, first of {}",
            again.len(),
            first.join(", ")
        );
    }
    for bytes in [2 * MIB, 32 * MIB, 1024 * MIB, 90 << 30] {
        let reservations = (0..8).map(|_| Reservation::new(bytes)).collect::<Result<Vec<_>>>()?;
        let found: Vec<_> = reservations.iter().map(|reservation| reservation.start).collect();
        println!(
            "- `cuMemAddressReserve` of {}: {:#x}: {}",
            ByteSize(bytes as u64),
            found[0],
            distances(&found)
        );
    }
    Ok(())
}
