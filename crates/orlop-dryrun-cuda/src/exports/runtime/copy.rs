//! Copies and fills.

use crate::abi::{fill_bytes, move_bytes, read_bytes, write_bytes};
use crate::call::runtime_calls;
use crate::caller::{Guess, note};
use crate::code::{Failure, Outcome};
use crate::machine::Machine;
use crate::state::contents::Origin;
use crate::state::kernels::is_healthy_if_true;
use crate::state::sizes::is_of_sizes;

/// The sizes of the numbers that programs read as sizes.
const SIZE_BYTES: [usize; 2] = [4, 8];

/// Copies bytes. Which side is a device's follows from the addresses, not from the kind that the caller
/// names.
pub(in crate::exports) fn copy(machine: &mut Machine, to: usize, from: usize, bytes: usize) {
    match (machine.memory.is_device(to), machine.memory.is_device(from)) {
        (false, false) => move_bytes(to, from, bytes),
        (true, false) => {
            machine.forget(to, bytes);
            if machine.contents.keeps(bytes) {
                machine.contents.write(to, read_bytes(from, bytes), Origin::Copied);
            }
        }
        (false, true) => answer(machine, to, from, bytes),
        (true, true) => {
            let kept = machine.contents.read_with_origin(from, bytes);
            machine.forget(to, bytes);
            if let Some((kept, origin)) = kept {
                machine.contents.write(to, kept, origin);
            }
        }
    }
}

/// Answers a read of device memory: what the host computed or copied there, true after an and-reduction or
/// `isfinite`, the size that a kernel found, else zeros.
fn answer(machine: &mut Machine, to: usize, from: usize, bytes: usize) {
    let thread = machine.thread();
    let (expected, size, last_kernel) = (thread.expected.take(), thread.size_result, thread.last_kernel);
    let kernel = machine.kernels.name(last_kernel).to_owned();
    if let Some((_, values)) = expected.filter(|(address, values)| (*address, values.len()) == (from, bytes))
    {
        machine.counters.kept += 1;
        write_bytes(to, &values);
    } else if bytes == 1 && is_healthy_if_true(&kernel) {
        machine.counters.true_after_and += 1;
        write_bytes(to, &[1]);
    } else if let Some(size) = size.filter(|_| SIZE_BYTES.contains(&bytes)) {
        match size.guess {
            Some(guess) => note(guess),
            None => machine.counters.masks_counted += 1,
        }
        write_bytes(to, &size.value.to_le_bytes()[..bytes]);
    } else if let Some(kept) = machine.contents.read_copied(from, bytes) {
        machine.counters.kept += 1;
        write_bytes(to, &kept);
    } else {
        note(if is_of_sizes(&kernel) { Guess::Size } else { Guess::Zero });
        *machine.counters.zero.entry(kernel).or_default() += 1;
        fill_bytes(to, 0, bytes);
    }
}

/// Fills bytes of a device or of the host.
pub(in crate::exports) fn fill(machine: &mut Machine, to: usize, value: u8, bytes: usize) {
    if !machine.memory.is_device(to) {
        fill_bytes(to, value, bytes);
    } else if machine.contents.keeps(bytes) {
        machine.contents.write(to, vec![value; bytes], Origin::Copied);
    } else {
        machine.forget(to, bytes);
    }
}

/// Copies rows.
fn copy_rows(
    machine: &mut Machine,
    (to, to_pitch): (usize, usize),
    (from, from_pitch): (usize, usize),
    (width, rows): (usize, usize),
) -> Outcome {
    if width > to_pitch || width > from_pitch {
        return Err(Failure::INVALID_VALUE);
    }
    for row in 0..rows {
        copy(machine, to + row * to_pitch, from + row * from_pitch, width);
    }
    Ok(())
}

runtime_calls! {
    fn cudaMemcpy(to: usize, from: usize, bytes: usize, _kind: i32) |machine| {
        machine.work.wait_for_stream(0)?;
        copy(machine, to, from, bytes);
        Ok(())
    }

    fn cudaMemcpyAsync(to: usize, from: usize, bytes: usize, _kind: i32, stream: usize) |machine| {
        machine.work.submit(stream)?;
        copy(machine, to, from, bytes);
        Ok(())
    }

    fn cudaMemcpy2DAsync(
        to: usize,
        to_pitch: usize,
        from: usize,
        from_pitch: usize,
        width: usize,
        rows: usize,
        _kind: i32,
        stream: usize,
    ) |machine| {
        machine.work.submit(stream)?;
        copy_rows(machine, (to, to_pitch), (from, from_pitch), (width, rows))
    }

    fn cudaMemcpyPeerAsync(
        to: usize,
        _to_device: i32,
        from: usize,
        _from_device: i32,
        bytes: usize,
        stream: usize,
    ) |machine| {
        machine.work.submit(stream)?;
        copy(machine, to, from, bytes);
        Ok(())
    }

    fn cudaMemset(to: usize, value: i32, bytes: usize) |machine| {
        fill(machine, to, value.to_le_bytes()[0], bytes);
        Ok(())
    }

    fn cudaMemsetAsync(to: usize, value: i32, bytes: usize, stream: usize) |machine| {
        machine.work.submit(stream)?;
        fill(machine, to, value.to_le_bytes()[0], bytes);
        Ok(())
    }

    fn cudaMemcpyToSymbol(_symbol: usize, _from: usize, _bytes: usize, _offset: usize) |_machine| { Ok(()) }
}
