//! Kernels: registration and launches that do nothing.

use crate::abi::{Dimensions, In, Out, Text};
use crate::call::{enter_uninitialized, runtime_calls};
use crate::code::Outcome;
use crate::machine::Machine;
use crate::state::sizes::{MaskReduction, distinct_elements_argument};
use std::cell::RefCell;

/// A launch that the compiler's code prepared: grid, block, shared memory, stream.
type Configuration = (Dimensions, Dimensions, usize, usize);

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// The handle of every registered module.
static MODULE: u64 = 0;

/// Registers the kernels of a library; returns a handle.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterFatBinary(_binary: usize) -> *const u64 {
    &raw const MODULE
}

/// Ends the registration.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterFatBinaryEnd(_module: usize) {}

/// Undoes it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaUnregisterFatBinary(_module: usize) {}

/// Registers a variable of a device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterVar(_module: usize, _host: usize) {}

/// Prepares a module.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaInitModule(_module: usize) -> i8 {
    1
}

/// Registers a kernel. The name is the library's, and is copied.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterFunction(_module: usize, stub: usize, _device: usize, name: Text) {
    let name = name.get();
    let _ = enter_uninitialized(|machine| {
        machine.kernels.register(stub, name);
        Ok(())
    });
}

/// Keeps a launch of this thread until [`__cudaPopCallConfiguration`]. Creating the thread's list takes the
/// loader's lock: the machine is not locked.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaPushCallConfiguration(
    grid: Dimensions,
    block: Dimensions,
    shared: usize,
    stream: usize,
) -> i32 {
    CONFIGURATIONS.with_borrow_mut(|all| all.push((grid, block, shared, stream)));
    0
}

/// Returns the launch that was kept last.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaPopCallConfiguration(
    grid: Out<Dimensions>,
    block: Out<Dimensions>,
    shared: Out<usize>,
    stream: Out<usize>,
) -> i32 {
    let found = CONFIGURATIONS.with_borrow_mut(Vec::pop).unwrap_or_default();
    grid.set_optional(found.0);
    block.set_optional(found.1);
    shared.set_optional(found.2);
    stream.set_optional(found.3);
    0
}

/// Launches a kernel on a stream.
fn launch(machine: &mut Machine, kernel: usize, arguments: In<usize>, stream: usize) -> Outcome {
    begin(machine, kernel, arguments)?;
    machine.work.submit(stream)
}

/// Notes a kernel that is launched, with the addresses of its arguments.
fn begin(machine: &mut Machine, kernel: usize, arguments: In<usize>) -> Outcome {
    machine.begin_kernel(kernel);
    let name = machine.kernels.name(kernel);
    if let Some(index) = distinct_elements_argument(name) {
        if let Some(&elements) = arguments.list(index + 1).last() {
            // It has 32 or 64 bits; no tensor has more elements than 32 bits count.
            let elements = In::<u32>::from_address(elements).get()?;
            machine.count_distinct(elements.into());
        }
        return Ok(());
    }
    let Some(mask) = MaskReduction::named(name) else { return Ok(()) };
    // An iterator, whose first field is the address of the mask; where the count goes; the number of
    // elements.
    let &[iterator, _, elements] = arguments.list(3).as_slice() else { return Ok(()) };
    let address = In::<usize>::from_address(iterator).get()?;
    let elements = match mask.is_long {
        true => In::<u64>::from_address(elements).get()?,
        false => In::<u32>::from_address(elements).get()?.into(),
    };
    machine.count_mask(address, elements, mask.is_bytes);
    Ok(())
}

runtime_calls! {
    fn __cudaGetKernel(kernel: Out<usize>, stub: usize) |_machine| { kernel.set(stub) }

    fn __cudaLaunchKernel(
        kernel: usize,
        _grid: Dimensions,
        _block: Dimensions,
        arguments: In<usize>,
        _shared: usize,
        stream: usize,
    ) |machine| { launch(machine, kernel, arguments, stream) }

    fn cudaLaunchKernel(
        stub: usize,
        _grid: Dimensions,
        _block: Dimensions,
        arguments: In<usize>,
        _shared: usize,
        stream: usize,
    ) |machine| { launch(machine, stub, arguments, stream) }

    fn cudaLaunchCooperativeKernel(
        stub: usize,
        _grid: Dimensions,
        _block: Dimensions,
        _arguments: usize,
        _shared: usize,
        stream: usize,
    ) |machine| { machine.launch(stub, stream) }

    fn cudaLaunchKernelExC(_configuration: usize, stub: usize, arguments: In<usize>) |machine| {
        begin(machine, stub, arguments)
    }

    fn cudaFuncGetAttributes(attributes: Out<u64>, _stub: usize) |machine| {
        let (major, minor) = machine.gpu().capability;
        let version = u64::from(major) * 10 + u64::from(minor);
        // Shared, constant and local bytes; threads and registers; versions; dynamic shared memory.
        let fields = [0, 0, 0, 1024 | 32 << 32, version | version << 32, (48 << 10) << 32];
        fields.into_iter().enumerate().try_for_each(|(index, field)| attributes.set_at(index, field))
    }

    fn cudaFuncSetAttribute(_stub: usize, _attribute: i32, _value: i32) |_machine| { Ok(()) }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>,
        _stub: usize,
        threads: i32,
        _shared: usize,
    ) |machine| { blocks.set(resident_blocks(machine.gpu().limits().threads, threads)) }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<i32>,
        _stub: usize,
        threads: i32,
        _shared: usize,
        _flags: u32,
    ) |machine| { blocks.set(resident_blocks(machine.gpu().limits().threads, threads)) }

    fn cudaGetSymbolAddress(address: Out<usize>, symbol: usize) |machine| {
        address.set(machine.symbol(symbol)?)
    }
}

/// Returns the blocks of this size that fit by their registers (32 for each thread) and their threads.
fn resident_blocks(resident: u32, threads: i32) -> i32 {
    let resident = i32::try_from(resident.min(65_536 / 32)).unwrap_or(i32::MAX);
    (resident / threads.max(1)).clamp(1, 32)
}
