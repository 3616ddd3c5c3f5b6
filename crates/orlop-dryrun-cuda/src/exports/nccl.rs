//! NCCL: communicators of any size, whose collectives complete at once.
//!
//! The other ranks are not asked: each process of a dry run allocates as its rank would. In a world of one,
//! what a buffer is known to hold is also in the result.

use crate::abi::{In, Out};
use crate::call::library_calls;
use crate::code::{Failure, Outcome};
use crate::exports::runtime::copy::copy;
use crate::machine::Machine;

/// The version: 2.28.9, of the release that comes with PyTorch 2.11.
const VERSION: i32 = 22_809;

/// `ncclInvalidArgument`.
const INVALID_ARGUMENT: Failure = Failure(4);

/// `NCCL_SPLIT_NOCOLOR`: the rank is in no part.
const NO_COLOR: i32 = -1;

/// Bytes of an element of the data types, by their numbers.
const ELEMENT_BYTES: [usize; 12] = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1];

/// `ncclUniqueId`, which is passed by value.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct UniqueId([u8; 128]);

/// A rank of a communicator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Communicator {
    ranks: i32,
    rank: i32,
    device: usize,
}

fn communicator(machine: &Machine, handle: usize) -> Outcome<Communicator> {
    machine.communicators.get(&handle).copied().ok_or(INVALID_ARGUMENT)
}

/// Creates a communicator on the current device.
fn create(machine: &mut Machine, handle: &Out<usize>, ranks: i32, rank: i32) -> Outcome {
    let device = machine.current_device();
    handle.set(insert(machine, Communicator { ranks, rank, device })?)
}

/// Creates the communicators of all ranks, one on each device.
fn create_on(machine: &mut Machine, handles: &Out<usize>, ranks: i32, devices: &[i32]) -> Outcome {
    let devices = devices.iter().map(|&device| machine.device(device)).collect::<Outcome<Vec<_>>>()?;
    for ((index, device), rank) in devices.into_iter().enumerate().zip(0..ranks) {
        handles.set_at(index, insert(machine, Communicator { ranks, rank, device })?)?;
    }
    Ok(())
}

fn insert(machine: &mut Machine, created: Communicator) -> Outcome<usize> {
    if !(0..created.ranks).contains(&created.rank) {
        return Err(INVALID_ARGUMENT);
    }
    let handle = machine.handle();
    machine.communicators.insert(handle, created);
    Ok(handle)
}

fn bytes_of(elements: usize, data_type: i32) -> Outcome<usize> {
    let bytes = usize::try_from(data_type).ok().and_then(|index| ELEMENT_BYTES.get(index).copied());
    bytes.and_then(|bytes| elements.checked_mul(bytes)).ok_or(INVALID_ARGUMENT)
}

/// Takes part in a collective without receiving anything.
fn send(machine: &mut Machine, (elements, data_type): (usize, i32), handle: usize, stream: usize) -> Outcome {
    communicator(machine, handle)?;
    bytes_of(elements, data_type)?;
    machine.work.submit(stream)
}

/// Takes part in a broadcast: the root's buffer is what it was, and the one that it has the result in, too.
fn broadcast(
    machine: &mut Machine,
    (to, from): (usize, usize),
    (elements, data_type): (usize, i32),
    (root, handle): (i32, usize),
    stream: usize,
) -> Outcome {
    if communicator(machine, handle)?.rank != root {
        return receive(machine, (to, from), (elements, data_type), handle, stream);
    }
    let bytes = bytes_of(elements, data_type)?;
    machine.work.submit(stream)?;
    if to != from {
        copy(machine, to, from, bytes);
    }
    Ok(())
}

/// Gives `received` elements to a buffer, from one that has the same values in a world of one.
fn receive(
    machine: &mut Machine,
    (to, from): (usize, usize),
    (elements, data_type): (usize, i32),
    handle: usize,
    stream: usize,
) -> Outcome {
    let bytes = bytes_of(elements, data_type)?;
    let world = communicator(machine, handle)?;
    machine.work.submit(stream)?;
    if world.ranks > 1 {
        machine.forget(to, bytes);
    } else if to != from {
        copy(machine, to, from, bytes);
    }
    Ok(())
}

library_calls! {
    fn ncclGetVersion(version: Out<i32>) |_machine| { version.set(VERSION) }

    fn ncclGetUniqueId(id: Out<u8>) |machine| {
        id.write(&[0; 128]);
        id.write(&machine.handle().to_le_bytes());
        Ok(())
    }

    fn ncclCommInitRank(handle: Out<usize>, ranks: i32, _id: UniqueId, rank: i32) |machine| {
        create(machine, &handle, ranks, rank)
    }

    fn ncclCommInitRankConfig(
        handle: Out<usize>,
        ranks: i32,
        _id: UniqueId,
        rank: i32,
        _configuration: usize,
    ) |machine| { create(machine, &handle, ranks, rank) }

    fn ncclCommInitRankScalable(
        handle: Out<usize>,
        ranks: i32,
        rank: i32,
        _ids: i32,
        _id: usize,
        _configuration: usize,
    ) |machine| { create(machine, &handle, ranks, rank) }

    fn ncclCommInitAll(handles: Out<usize>, ranks: i32, devices: In<i32>) |machine| {
        let mut named = devices.list(usize::try_from(ranks).map_err(|_| INVALID_ARGUMENT)?);
        if named.is_empty() {
            named.extend(0..ranks);
        }
        create_on(machine, &handles, ranks, &named)
    }

    // The other ranks are not asked for their colors: a part has the ranks of the whole, the maximum. PyTorch
    // passes the rank in the part as the key.
    fn ncclCommSplit(
        handle: usize,
        color: i32,
        key: i32,
        part: Out<usize>,
        _configuration: usize,
    ) |machine| {
        let whole = communicator(machine, handle)?;
        if color == NO_COLOR {
            return part.set(0);
        }
        let rank = if (0..whole.ranks).contains(&key) { key } else { whole.rank };
        part.set(insert(machine, Communicator { rank, ..whole })?)
    }

    fn ncclCommFinalize(handle: usize) |machine| { communicator(machine, handle).map(drop) }

    fn ncclCommDestroy(handle: usize) |machine| {
        machine.communicators.remove(&handle).map(drop).ok_or(INVALID_ARGUMENT)
    }

    fn ncclCommAbort(handle: usize) |machine| {
        machine.communicators.remove(&handle).map(drop).ok_or(INVALID_ARGUMENT)
    }

    fn ncclCommCount(handle: usize, ranks: Out<i32>) |machine| {
        ranks.set(communicator(machine, handle)?.ranks)
    }

    fn ncclCommUserRank(handle: usize, rank: Out<i32>) |machine| {
        rank.set(communicator(machine, handle)?.rank)
    }

    fn ncclCommCuDevice(handle: usize, device: Out<i32>) |machine| {
        device.set(i32::try_from(communicator(machine, handle)?.device).unwrap_or(i32::MAX))
    }

    fn ncclCommGetAsyncError(_handle: usize, error: Out<i32>) |_machine| { error.set(0) }

    fn ncclGroupStart() |_machine| { Ok(()) }

    fn ncclGroupEnd() |_machine| { Ok(()) }

    fn ncclCommRegister(_handle: usize, _buffer: usize, _bytes: usize, registered: Out<usize>) |machine| {
        registered.set(machine.handle())
    }

    fn ncclCommDeregister(_handle: usize, _registered: usize) |_machine| { Ok(()) }

    fn ncclRedOpCreatePreMulSum(
        operation: Out<i32>,
        _scalar: usize,
        _data_type: i32,
        _residence: i32,
        _handle: usize,
    ) |_machine| { operation.set(5) }

    fn ncclRedOpDestroy(_operation: i32, _handle: usize) |_machine| { Ok(()) }

    fn ncclAllReduce(
        from: usize,
        to: usize,
        elements: usize,
        data_type: i32,
        _operation: i32,
        handle: usize,
        stream: usize,
    ) |machine| { receive(machine, (to, from), (elements, data_type), handle, stream) }

    fn ncclBroadcast(
        from: usize,
        to: usize,
        elements: usize,
        data_type: i32,
        root: i32,
        handle: usize,
        stream: usize,
    ) |machine| { broadcast(machine, (to, from), (elements, data_type), (root, handle), stream) }

    fn ncclBcast(
        buffer: usize,
        elements: usize,
        data_type: i32,
        root: i32,
        handle: usize,
        stream: usize,
    ) |machine| { broadcast(machine, (buffer, buffer), (elements, data_type), (root, handle), stream) }

    fn ncclReduce(
        from: usize,
        to: usize,
        elements: usize,
        data_type: i32,
        _operation: i32,
        root: i32,
        handle: usize,
        stream: usize,
    ) |machine| {
        if communicator(machine, handle)?.rank == root {
            receive(machine, (to, from), (elements, data_type), handle, stream)
        } else {
            send(machine, (elements, data_type), handle, stream)
        }
    }

    fn ncclAllGather(
        from: usize,
        to: usize,
        elements: usize,
        data_type: i32,
        handle: usize,
        stream: usize,
    ) |machine| {
        let ranks = usize::try_from(communicator(machine, handle)?.ranks).unwrap_or(1);
        let elements = elements.checked_mul(ranks).ok_or(INVALID_ARGUMENT)?;
        receive(machine, (to, from), (elements, data_type), handle, stream)
    }

    fn ncclReduceScatter(
        from: usize,
        to: usize,
        elements: usize,
        data_type: i32,
        _operation: i32,
        handle: usize,
        stream: usize,
    ) |machine| { receive(machine, (to, from), (elements, data_type), handle, stream) }

    fn ncclSend(
        _from: usize,
        elements: usize,
        data_type: i32,
        _peer: i32,
        handle: usize,
        stream: usize,
    ) |machine| { send(machine, (elements, data_type), handle, stream) }

    fn ncclRecv(
        to: usize,
        elements: usize,
        data_type: i32,
        _peer: i32,
        handle: usize,
        stream: usize,
    ) |machine| {
        send(machine, (elements, data_type), handle, stream)?;
        machine.forget(to, bytes_of(elements, data_type)?);
        Ok(())
    }
}
