//! NCCL: communicators of any size, whose collectives complete at once.
//!
//! The other ranks are not asked: each process of a dry run allocates as its rank would, and they are taken
//! to be alike. What a buffer is known to hold is what the others have in theirs, so that a program that
//! compares its ranks goes on.

use crate::abi::{In, Out};
use crate::call::library_calls;
use crate::code::{Failure, Outcome};
use crate::exports::runtime::copy::copy;
use crate::machine::Machine;
use crate::state::communicator::Communicator;
use crate::state::contents::Origin;

/// The version: 2.28.9, of the release that comes with PyTorch 2.11.
const VERSION: i32 = 22_809;

/// `ncclInvalidArgument`.
const INVALID_ARGUMENT: Failure = Failure(4);

/// `ncclUnhandledCudaError`: memory of a communicator does not fit.
const UNHANDLED_CUDA_ERROR: Failure = Failure(1);

/// `NCCL_SPLIT_NOCOLOR`: the rank is in no part.
const NO_COLOR: i32 = -1;

/// Bytes of an element of the data types, by their numbers.
const ELEMENT_BYTES: [usize; 12] = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1];

/// `ncclUniqueId`, which is passed by value.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct UniqueId([u8; 128]);

fn communicator(machine: &Machine, handle: usize) -> Outcome<Communicator> {
    machine.communicators.get(&handle).copied().ok_or(INVALID_ARGUMENT)
}

/// Creates a communicator on the current device.
fn create(machine: &mut Machine, handle: &Out<usize>, ranks: i32, rank: i32) -> Outcome {
    let device = machine.current_device();
    handle.set(insert(machine, Communicator::new(ranks, rank, device))?)
}

/// Creates the communicators of all ranks, one on each device.
fn create_on(machine: &mut Machine, handles: &Out<usize>, ranks: i32, devices: &[i32]) -> Outcome {
    let devices = devices.iter().map(|&device| machine.device(device)).collect::<Outcome<Vec<_>>>()?;
    for ((index, device), rank) in devices.into_iter().enumerate().zip(0..ranks) {
        handles.set_at(index, insert(machine, Communicator::new(ranks, rank, device))?)?;
    }
    Ok(())
}

/// Adds a communicator with its memory, and returns its handle.
fn insert(machine: &mut Machine, mut created: Communicator) -> Outcome<usize> {
    if !(0..created.ranks).contains(&created.rank) {
        return Err(INVALID_ARGUMENT);
    }
    let (device, bytes) = (created.device, created.bytes());
    if bytes > 0 {
        let address = machine.memory.allocate(device, bytes).map_err(|_| UNHANDLED_CUDA_ERROR)?;
        created.memory = Some(address);
    }
    let handle = machine.handle();
    machine.communicators.insert(handle, created);
    let of_device = machine.communicators.values().filter(|other| other.device == device);
    let all = of_device.map(|other| other.bytes() as u64).sum();
    machine.counters.nccl_bytes = machine.counters.nccl_bytes.max(all);
    Ok(handle)
}

/// Removes a communicator and frees its memory.
fn remove(machine: &mut Machine, handle: usize) -> Outcome {
    let removed = machine.communicators.remove(&handle).ok_or(INVALID_ARGUMENT)?;
    removed.memory.map_or(Ok(()), |address| machine.free(address))
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

/// Takes part in a broadcast. What the root has is what this rank has.
fn broadcast(
    machine: &mut Machine,
    (to, from): (usize, usize),
    (elements, data_type): (usize, i32),
    (root, handle): (i32, usize),
    stream: usize,
) -> Outcome {
    let is_root = communicator(machine, handle)?.rank == root;
    let bytes = bytes_of(elements, data_type)?;
    machine.work.submit(stream)?;
    if is_root && to != from {
        copy(machine, to, from, bytes);
        machine.contents.receive(to, bytes);
    }
    Ok(())
}

/// Reduces a buffer of each rank to another.
fn reduce(
    machine: &mut Machine,
    (to, from): (usize, usize),
    (elements, data_type, operation): (usize, i32, i32),
    handle: usize,
    stream: usize,
) -> Outcome {
    let bytes = bytes_of(elements, data_type)?;
    let ranks = communicator(machine, handle)?.ranks;
    machine.work.submit(stream)?;
    let known = machine.contents.read(from, bytes);
    let reduced = known.and_then(|known| reduced(known, data_type, operation, ranks));
    machine.forget(to, bytes);
    if let Some(reduced) = reduced {
        machine.contents.write(to, reduced, Origin::Received);
    }
    Ok(())
}

/// Returns the reduction of equal values of all ranks; `None` for types and operations that no program reads.
fn reduced(values: Vec<u8>, data_type: i32, operation: i32, ranks: i32) -> Option<Vec<u8>> {
    const SUM: i32 = 0;
    const MAXIMUM: i32 = 2;
    const MINIMUM: i32 = 3;
    const AVERAGE: i32 = 4;
    if ranks == 1 {
        return Some(values);
    }
    match (operation, data_type) {
        (SUM, 2 | 3) => sums(&values, |value| i32::from_le_bytes(value).wrapping_mul(ranks).to_le_bytes()),
        (SUM, 4 | 5) => {
            sums(&values, |value| i64::from_le_bytes(value).wrapping_mul(ranks.into()).to_le_bytes())
        }
        (SUM, 8) => sums(&values, |value| (f64::from_le_bytes(value) * f64::from(ranks)).to_le_bytes()),
        #[allow(clippy::cast_possible_truncation)] // A product of f64 rounds once.
        (SUM, 7) => sums(&values, |value| {
            ((f64::from(f32::from_le_bytes(value)) * f64::from(ranks)) as f32).to_le_bytes()
        }),
        (MAXIMUM | MINIMUM | AVERAGE, _) => Some(values),
        _ => None,
    }
}

/// Maps the numbers in a buffer.
fn sums<const BYTES: usize>(values: &[u8], sum: impl Fn([u8; BYTES]) -> [u8; BYTES]) -> Option<Vec<u8>> {
    let numbers = values.chunks_exact(BYTES).map(|value| value.try_into().ok().map(&sum));
    numbers.collect::<Option<Vec<_>>>().map(|numbers| numbers.concat())
}

/// Gathers a buffer of each rank, one after the other.
fn gather(
    machine: &mut Machine,
    (to, from): (usize, usize),
    (elements, data_type): (usize, i32),
    handle: usize,
    stream: usize,
) -> Outcome {
    let world = communicator(machine, handle)?;
    let ranks = usize::try_from(world.ranks).unwrap_or(1);
    let bytes = bytes_of(elements, data_type)?;
    let all = bytes.checked_mul(ranks).ok_or(INVALID_ARGUMENT)?;
    machine.work.submit(stream)?;
    // The buffer of this rank can be its part of the others.
    let known = machine.contents.read(from, bytes);
    machine.forget(to, all);
    if let Some(known) = known.filter(|_| machine.contents.keeps(all)) {
        (0..ranks)
            .for_each(|rank| machine.contents.write(to + rank * bytes, known.clone(), Origin::Received));
    }
    Ok(())
}

/// Receives what this rank does not have, and forgets what was in the buffer.
fn receive(
    machine: &mut Machine,
    to: usize,
    (elements, data_type): (usize, i32),
    handle: usize,
    stream: usize,
) -> Outcome {
    send(machine, (elements, data_type), handle, stream)?;
    machine.forget(to, bytes_of(elements, data_type)?);
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
        part.set(insert(machine, Communicator::new(whole.ranks, rank, whole.device))?)
    }

    fn ncclCommFinalize(handle: usize) |machine| { communicator(machine, handle).map(drop) }

    fn ncclCommDestroy(handle: usize) |machine| { remove(machine, handle) }

    fn ncclCommAbort(handle: usize) |machine| { remove(machine, handle) }

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
        operation: i32,
        handle: usize,
        stream: usize,
    ) |machine| { reduce(machine, (to, from), (elements, data_type, operation), handle, stream) }

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
        operation: i32,
        root: i32,
        handle: usize,
        stream: usize,
    ) |machine| {
        if communicator(machine, handle)?.rank == root {
            reduce(machine, (to, from), (elements, data_type, operation), handle, stream)
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
    ) |machine| { gather(machine, (to, from), (elements, data_type), handle, stream) }

    fn ncclReduceScatter(
        from: usize,
        to: usize,
        elements: usize,
        data_type: i32,
        _operation: i32,
        handle: usize,
        stream: usize,
    ) |machine| {
        // In a world of one, the part of this rank is the whole.
        if communicator(machine, handle)?.ranks == 1 && to != from {
            let bytes = bytes_of(elements, data_type)?;
            copy(machine, to, from, bytes);
            machine.contents.receive(to, bytes);
            return send(machine, (elements, data_type), handle, stream);
        }
        receive(machine, to, (elements, data_type), handle, stream)
    }

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
    ) |machine| { receive(machine, to, (elements, data_type), handle, stream) }
}
