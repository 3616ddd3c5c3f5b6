//! A stream that is recorded on a block has not waited for the block's own stream.

use crate::machine::{Machine, handle};
use orlop_alloc::engine::UpstreamArena;
use orlop_alloc::{Allocator, AllocatorRef, Block, Error, Request, engine_support::HostOps};
use orlop_context::Context;
use orlop_core::{DType, Device, StreamId};
use orlop_cuda::{CudaOps, DeviceStream, KernelPointer, caching_allocator, install};
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use orlop_tensor::{Tensor, TensorOptions};

const BYTES: usize = 1 << 20;

/// Returns a block whose memory a kernel on its stream is still writing.
fn reused(machine: &Machine, allocator: &AllocatorRef, own: &DeviceStream) -> Block {
    let request = Request::new(BYTES).stream(own.id());
    let first = allocator.allocate(&request).unwrap();
    machine.write(own, &first);
    let address = first.as_ptr();
    drop(first);
    let second = allocator.allocate(&request).unwrap();
    assert_eq!(second.as_ptr(), address);
    second
}

#[test]
fn recorded_streams_wait_before_they_use_a_block() {
    for (way, is_recorded) in (0..3).flat_map(|way| [(way, false), (way, true)]) {
        let machine = Machine::new(&SimulationConfig::new());
        let (own, side) = (machine.device.create_stream().unwrap(), machine.device.create_stream().unwrap());
        let ops = CudaOps::new(&machine.device);
        let allocator = caching_allocator(&machine.device).unwrap().into_ref().erase();
        let mut block = reused(&machine, &allocator, &own);
        if is_recorded {
            block.record_stream(side.id()).unwrap();
        }
        match way {
            0 => block.zero_by(&ops, side.id()).unwrap(),
            1 => {
                let source = allocator.allocate(&Request::new(BYTES).stream(side.id())).unwrap();
                block.copy_by(&ops, &source, side.id()).unwrap();
            }
            _ => {
                let address = KernelPointer::<u8>::of(&block, &side).unwrap().address();
                let run = KernelRun::new("kernel").writes(usize::try_from(address).unwrap(), BYTES);
                machine.run_kernel(handle(&side), run).unwrap();
            }
        }
        side.synchronize().unwrap();
        own.synchronize().unwrap();
        assert_eq!(machine.races(), [], "{way} {is_recorded}");
    }
}

#[test]
fn recorded_streams_wait_before_they_use_a_tensor() {
    let machine = Machine::new(&SimulationConfig::new());
    let (own, side) = (machine.device.create_stream().unwrap(), machine.device.create_stream().unwrap());
    let (context, device) = (Context::new(), machine.device.device());
    install(&context, &machine.device).unwrap();
    context.scope(|| {
        let options = || TensorOptions::new().dtype(DType::U8).device(device);
        let empty = || context.on_stream(device, own.id(), || Tensor::empty([BYTES], options())).unwrap();
        let address = |tensor: &Tensor| tensor.packed_accessor_mut::<u8, 1, i64>().unwrap().data as usize;
        let first = empty();
        let at = address(&first);
        machine.run_kernel(handle(&own), KernelRun::new("old").writes(at, BYTES)).unwrap();
        drop(first);
        let second = empty();
        assert_eq!(address(&second), at);
        second.record_stream(side.id()).unwrap();
        context.on_stream(device, side.id(), || second.zero_()).unwrap();
        side.synchronize().unwrap();
        own.synchronize().unwrap();
    });
    assert_eq!(machine.races(), []);
}

#[test]
fn the_hosts_operations_do_not_write_device_memory() {
    let machine = Machine::new(&SimulationConfig::new());
    let (context, device) = (Context::new(), machine.device.device());
    install(&context, &machine.device).unwrap();
    let mut block = context.allocate(device, &Request::new(4096)).unwrap();
    let refused = block.zero_by(&HostOps, StreamId::HOST);
    assert!(matches!(refused, Err(Error::WrongOperations { .. })), "{refused:?}");
    let refused = context.register_ops(device, std::sync::Arc::new(HostOps));
    assert!(matches!(refused, Err(Error::WrongOperations { .. })), "{refused:?}");
    context.zero(&mut block, context.stream(device)).unwrap();
}

/// Tensors in a bump arena of the device's memory, on two streams, step after step.
#[test]
fn tensors_in_an_arena_are_ordered_over_its_rewinds() {
    let machine = Machine::new(&SimulationConfig::new());
    let (own, side) = (machine.device.create_stream().unwrap(), machine.device.create_stream().unwrap());
    let (context, device) = (Context::new(), machine.device.device());
    install(&context, &machine.device).unwrap();
    let upstream = caching_allocator(&machine.device).unwrap().into_ref().erase();
    let arena = UpstreamArena::new(upstream.clone(), 4 * BYTES).into_ref();
    let erased = arena.clone().erase();
    let options = || TensorOptions::new().dtype(DType::U8).device(device).allocator(&erased);
    let waits = machine.counts().waits;
    context.scope(|| {
        let empty = |stream: &DeviceStream| {
            context.on_stream(device, stream.id(), || Tensor::empty([BYTES], options()).unwrap())
        };
        let fill = |stream: &DeviceStream, tensor: &Tensor, value: u8| {
            context.on_stream(device, stream.id(), || tensor.fill_(value).unwrap());
        };
        for step in 0..8_u8 {
            let first = empty(&own);
            fill(&own, &first, step);
            let second = empty(&side);
            // Both tensors are used by a stream that is not their own.
            if step % 2 == 0 {
                fill(&side, &first, step + 1);
                fill(&own, &second, step + 2);
            }
            assert!(arena.reset().is_err(), "tensors are live");
            drop((first, second));
            arena.reset().unwrap();
        }
        assert_eq!(machine.counts().waits, waits, "the host does not wait");
        // A tensor outlives the arena's handle, and a rewind.
        let kept = empty(&own);
        fill(&own, &kept, 7);
        drop(empty(&own));
        arena.renew();
        let next = empty(&own);
        fill(&own, &next, 1);
        let host = context.on_stream(device, own.id(), || kept.to_device(Device::CPU).unwrap());
        assert_eq!(host.to_vec::<u8>().unwrap(), [7; BYTES]);
    });
    side.synchronize().unwrap();
    own.synchronize().unwrap();
    assert_eq!(machine.races(), []);
}
