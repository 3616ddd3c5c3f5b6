//! NCCL: communicators of any size, whose collectives complete at once.
//!
//! The other ranks are not asked: each process of a dry run allocates as its rank would. In a world of one,
//! what a buffer is known to hold is also in the result.

use crate::abi::Out;
use crate::call::library_calls;
use crate::code::{Failure, Outcome};
use crate::exports::runtime::copy::copy;
use crate::machine::Machine;

/// The version: 2.28.9, of the release that comes with PyTorch 2.11.
const VERSION: i32 = 22_809;

/// `ncclInvalidArgument`.
const INVALID_ARGUMENT: Failure = Failure(4);

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

fn create(machine: &mut Machine, handle: &Out<usize>, ranks: i32, rank: i32) -> Outcome {
    if rank < 0 || rank >= ranks {
        return Err(INVALID_ARGUMENT);
    }
    let (created, device) = (machine.handle(), machine.current_device());
    machine.communicators.insert(created, Communicator { ranks, rank, device });
    handle.set(created)
}

/// Gives `received` elements to a buffer, from one that has the same values in a world of one.
fn receive(
    machine: &mut Machine,
    (to, from): (usize, usize),
    (elements, data_type): (usize, i32),
    handle: usize,
    stream: usize,
) -> Outcome {
    let bytes = usize::try_from(data_type).ok().and_then(|index| ELEMENT_BYTES.get(index).copied());
    let bytes = bytes.and_then(|bytes| elements.checked_mul(bytes)).ok_or(INVALID_ARGUMENT)?;
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
        _root: i32,
        handle: usize,
        stream: usize,
    ) |machine| { receive(machine, (to, from), (elements, data_type), handle, stream) }

    fn ncclBcast(
        buffer: usize,
        elements: usize,
        data_type: i32,
        _root: i32,
        handle: usize,
        stream: usize,
    ) |machine| { receive(machine, (buffer, buffer), (elements, data_type), handle, stream) }

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
        let is_root = communicator(machine, handle)?.rank == root;
        let to = if is_root { to } else { from };
        receive(machine, (to, from), (elements, data_type), handle, stream)
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
        from: usize,
        elements: usize,
        data_type: i32,
        _peer: i32,
        handle: usize,
        stream: usize,
    ) |machine| { receive(machine, (from, from), (elements, data_type), handle, stream) }

    fn ncclRecv(
        to: usize,
        elements: usize,
        data_type: i32,
        _peer: i32,
        handle: usize,
        stream: usize,
    ) |machine| {
        machine.forget(to, elements.saturating_mul(8));
        receive(machine, (to, to), (elements, data_type), handle, stream)
    }
}
