//! The order of a block's users when safe code copies and zeroes blocks on several streams.

use crate::machine::Machine;
use orlop_alloc::{Allocator, Block, Request};
use orlop_cuda::{BlockSlice, CudaOps, DeviceStream, PinnedAllocator, caching_allocator};
use orlop_cudasim_control::{KernelAccess, SimulationConfig};

const BYTES: usize = 1 << 20;

struct Program {
    ops: CudaOps,
    one: DeviceStream,
    two: DeviceStream,
    /// Dropped last: the next test has the driver then.
    machine: Machine,
}

impl Program {
    fn new() -> Self {
        let machine = Machine::new(&SimulationConfig::new().bytes_per_microsecond(100));
        let [one, two] = [(); 2].map(|()| machine.device.create_stream().unwrap());
        Self { ops: CudaOps::new(&machine.device), one, two, machine }
    }

    fn block_for(&self, stream: &DeviceStream) -> Block {
        let allocator = caching_allocator(&self.machine.device).unwrap().into_ref();
        allocator.allocate(&Request::new(BYTES).stream(stream.id()).zeroed()).unwrap()
    }

    /// Asserts that no access raced, and finishes all work.
    fn assert_ordered(&self, what: &str) {
        assert_eq!(self.machine.races(), [], "{what}");
        self.machine.device.context().synchronize().unwrap();
    }
}

#[test]
fn copies_and_zeros_wait_for_every_stream_that_used_the_block() {
    let program = Program::new();
    let Program { ops, one, two, .. } = &program;
    let (mut block, mut out) = (program.block_for(one), program.block_for(two));
    out.copy_by(ops, &block, two.id()).unwrap();
    block.zero_by(ops, one.id()).unwrap();
    program.assert_ordered("the own stream writes after another has read");
    block.zero_by(ops, one.id()).unwrap();
    out.copy_by(ops, &block, two.id()).unwrap();
    program.assert_ordered("another stream reads after the own has written again");
    let third = program.machine.device.create_stream().unwrap();
    out.copy_by(ops, &block, two.id()).unwrap();
    block.zero_by(ops, third.id()).unwrap();
    program.assert_ordered("a third stream writes after another has read");
}

#[test]
fn copies_and_zeros_wait_for_slices() {
    let program = Program::new();
    let Program { ops, one, two, machine } = &program;
    let (mut block, mut out) = (program.block_for(one), program.block_for(one));
    let write_on_two = |block: &mut Block| {
        let mut slice = BlockSlice::<u8>::of(block, two).unwrap();
        two.cudarc().memset_zeros(&mut slice).unwrap();
    };
    machine.device.context().synchronize().unwrap();
    write_on_two(&mut block);
    out.copy_by(ops, &block, one.id()).unwrap();
    program.assert_ordered("a copy on the own stream");
    write_on_two(&mut block);
    block.zero_by(ops, one.id()).unwrap();
    program.assert_ordered("a fill on the own stream");
    let mut block = machine.device.block_of_slice(one.cudarc().alloc_zeros::<u8>(BYTES).unwrap()).unwrap();
    out.copy_by(ops, &block, two.id()).unwrap();
    block.zero_by(ops, one.id()).unwrap();
    program.assert_ordered("a block that was a slice");
}

/// Large pinned sources are read by the device itself. When the copy returns, they can be changed.
#[test]
fn a_pinned_source_is_read_in_place() {
    let program = Program::new();
    let Program { ops, one, machine, .. } = &program;
    let gpu = caching_allocator(&machine.device).unwrap().into_ref();
    let pinned = PinnedAllocator::new(&machine.device).into_ref();
    for (bytes, is_in_place) in [(4 << 20, true), (2 << 20, true), (64 << 10, false)] {
        let mut to = gpu.allocate(&Request::new(bytes).stream(one.id())).unwrap();
        let mut from = pinned.allocate(&Request::new(bytes)).unwrap();
        from.bytes_mut().unwrap().fill(7);
        let buffers = machine.calls("cuMemHostAlloc");
        to.copy_by(ops, &from, one.id()).unwrap();
        assert_eq!(machine.calls("cuMemHostAlloc") == buffers, is_in_place, "{bytes}");
        from.bytes_mut().unwrap().fill(1);
        let place = from.as_ptr().as_ptr().addr();
        machine.host_access("the host writes", KernelAccess::write(place, bytes)).unwrap();
        program.assert_ordered("the host changes the source");
        let copied = machine.read(to.as_ptr().as_ptr().addr(), bytes).unwrap();
        assert!(copied.iter().all(|&byte| byte == 7), "{bytes}");
        drop(from);
        pinned.trim(0);
        assert_eq!(pinned.usage().reserved, 0);
    }
}

/// A block that one stream uses costs no call for its order.
#[test]
fn a_block_of_one_stream_waits_for_nothing() {
    let program = Program::new();
    let Program { ops, one, machine, .. } = &program;
    let mut block = program.block_for(one);
    drop(machine.take_calls());
    block.zero_by(ops, one.id()).unwrap();
    assert_eq!((machine.calls("cuEventRecord"), machine.calls("cuStreamWaitEvent")), (0, 0));
}
