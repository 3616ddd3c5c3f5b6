//! Planned memory of a device: buffers that share bytes, used by several streams. The simulated driver checks
//! each access against all earlier ones.

use crate::machine::{Machine, handle, setting};
use crate::random::Random;
use orlop_alloc::Request;
use orlop_context::Context;
use orlop_core::{DType, Device, Layout, MemoryKind, Shape, StreamId};
use orlop_cuda::{DeviceStream, KernelPointer, install};
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use orlop_exec::{BufferId, BufferSpec, Execution, ExecutionPlan, PlanBuilder};
use orlop_tensor::planned::{PlannedMemory, PlannedPart, PlannedTensor};
use orlop_tensor::{Tensor, TensorOptions};
use std::time::Duration;

/// A context with a device and some streams.
struct Gpu {
    context: Context,
    device: Device,
    streams: Vec<DeviceStream>,
    /// Dropped last: the driver is another test's then.
    machine: Machine,
}

impl Gpu {
    fn new() -> Self {
        // Work takes long, so that what nothing waits for is still running.
        let config = SimulationConfig::new().operation_time(Duration::from_millis(1)).poison(false);
        let machine = Machine::new(&config);
        let context = Context::new();
        install(&context, &machine.device).unwrap();
        let streams = (0..3).map(|_| machine.device.create_stream().unwrap()).collect();
        Self { context, device: machine.device.device(), streams, machine }
    }

    /// Runs a kernel that writes all of a tensor, and announces it or not.
    fn write(&self, tensor: &Tensor, stream: usize, is_announced: bool) {
        let (stream, first) = (&self.streams[stream], tensor.storage_offset() * tensor.itemsize());
        let block = tensor.storage().unwrap().block().unwrap();
        if is_announced {
            KernelPointer::<u8>::within(&block, first, stream).unwrap();
        }
        let run = KernelRun::new("write").writes(block.address() + first, tensor.nbytes());
        self.machine.run_kernel(handle(stream), run).unwrap();
    }

    fn on_stream<R>(&self, stream: usize, f: impl FnOnce() -> R) -> R {
        self.context.scope(|| self.context.on_stream(self.device, self.streams[stream].id(), f))
    }

    fn prepare(&self, plan: &ExecutionPlan, stream: usize) -> Execution {
        self.on_stream(stream, || plan.prepare(&self.context)).unwrap()
    }

    fn calls(&self, name: &str) -> u64 {
        self.machine.take_calls().get(name).copied().unwrap_or(0)
    }

    fn spec(&self, count: usize) -> BufferSpec {
        BufferSpec::new("buffer", [count], DType::F32).unwrap().device(self.device)
    }

    /// Two buffers in the same bytes.
    fn successors(&self) -> (ExecutionPlan, [BufferId; 2]) {
        let mut plan = PlanBuilder::new();
        let buffers = [0..=0, 1..=1].map(|steps| plan.buffer(self.spec(10_000), steps).unwrap());
        let plan = plan.finish().unwrap();
        assert_eq!(plan.workspace_bytes(), 40_000);
        (plan, buffers)
    }
}

/// The next buffer in the same bytes comes after the streams that used the former one.
#[test]
fn successors_on_two_streams() {
    for is_announced in [true, false] {
        let gpu = Gpu::new();
        let (plan, [first, second]) = gpu.successors();
        let mut execution = gpu.prepare(&plan, 0);
        for run in 0..6 {
            execution.begin().unwrap();
            gpu.write(execution.step(0).unwrap().tensor(first).unwrap(), run % 3, is_announced);
            let step = execution.step(1).unwrap();
            let second = step.tensor(second).unwrap();
            match run {
                0..4 => gpu.write(second, (run + 1) % 3, is_announced),
                _ => gpu.on_stream(run % 2, || second.fill_(1.0)).unwrap(),
            }
        }
        assert_eq!(gpu.machine.races().is_empty(), is_announced);
    }
}

/// The streams of copies and fills by the library are recorded, and the host does not wait for them.
#[test]
fn the_library_announces_its_work() {
    let gpu = Gpu::new();
    let (plan, [first, second]) = gpu.successors();
    let mut execution = gpu.prepare(&plan, 0);
    let waits = gpu.machine.counts().waits;
    for run in 0..6 {
        execution.begin().unwrap();
        let step = execution.step(0).unwrap();
        gpu.on_stream(run % 3, || step.tensor(first).unwrap().fill_(1.0)).unwrap();
        let step = execution.step(1).unwrap();
        gpu.on_stream((run + 1) % 3, || step.tensor(second).unwrap().zero_()).unwrap();
    }
    assert_eq!(gpu.machine.counts().waits, waits);
    let step = execution.step(1).unwrap();
    let values = gpu.on_stream(0, || step.tensor(second).unwrap().to_vec::<f32>()).unwrap();
    assert_eq!(values, [0.0; 10_000]);
    assert_eq!(gpu.machine.races(), []);
}

/// The memory of an execution is reused after the streams that used its tensors, and not before those that
/// used it earlier.
#[test]
fn the_arena_is_a_block_of_its_stream() {
    for is_announced in [true, false] {
        let gpu = Gpu::new();
        let (plan, [first, _]) = gpu.successors();
        for run in 0..6 {
            let (own, other) = (run % 3, (run + 1) % 3);
            let mut execution = gpu.prepare(&plan, own);
            let clone = {
                let step = execution.step(0).unwrap();
                gpu.write(step.tensor(first).unwrap(), other, is_announced);
                step.tensor(first).unwrap().clone()
            };
            // With and without a tensor that is used after the execution.
            if run % 2 == 0 {
                drop(clone);
                drop(execution);
            } else {
                drop(execution);
                gpu.write(&clone, other, is_announced);
                drop(clone);
            }
            let request = Request::new(40_000).stream(gpu.streams[own].id());
            let block = gpu.context.allocate(gpu.device, &request).unwrap();
            gpu.machine.write(&gpu.streams[own], &block);
        }
        assert_eq!(gpu.machine.races().is_empty(), is_announced);
    }
}

/// One stream, on which the arena was reserved, needs no events.
#[test]
fn one_stream_waits_for_nothing() {
    let gpu = Gpu::new();
    let (plan, buffers) = gpu.successors();
    let mut execution = gpu.prepare(&plan, 1);
    drop(gpu.machine.take_calls());
    for _ in 0..10 {
        execution.begin().unwrap();
        for (step, buffer) in (0..).zip(buffers) {
            let step = execution.step(step).unwrap();
            gpu.write(step.tensor(buffer).unwrap(), 1, true);
            gpu.on_stream(1, || step.tensor(buffer).unwrap().fill_(1.0)).unwrap();
        }
    }
    assert_eq!(gpu.calls("cuEventRecord"), 0);
    assert_eq!(gpu.machine.races(), []);
}

/// A step that cannot order the streams is refused, and can be repeated.
#[test]
fn a_step_that_cannot_order_streams() {
    let gpu = Gpu::new();
    let (plan, [first, second]) = gpu.successors();
    let mut execution = gpu.prepare(&plan, 0);
    gpu.write(execution.step(0).unwrap().tensor(first).unwrap(), 1, true);
    gpu.machine.fail("cuStreamWaitEvent", 1, 999).unwrap();
    assert!(execution.step(1).is_err());
    assert_eq!(execution.now(), 0);
    gpu.machine.clear_faults();
    let step = execution.step(1).unwrap();
    gpu.write(step.tensor(second).unwrap(), 2, true);
    assert_eq!(gpu.machine.races(), []);
}

/// A storage of the program has planned memory for a time: its uses are those of the part.
#[test]
fn bound_storages() {
    let gpu = Gpu::new();
    let layout = Layout::contiguous(Shape::new(&[10_000]).unwrap());
    let part = |steps| PlannedPart::new(0, 40_000, [PlannedTensor::new(layout.clone(), DType::F32, steps)]);
    let request = Request::new(40_000).stream(gpu.streams[0].id());
    let block = gpu.context.allocate(gpu.device, &request).unwrap();
    let mut memory = gpu.context.scope(|| PlannedMemory::new(block, &[part(0..1), part(1..2)])).unwrap();
    let options = TensorOptions::new().context(&gpu.context).device(gpu.device);
    let mine = Tensor::empty([10_000], options).unwrap();
    let storage = mine.storage().unwrap();
    drop(storage.unbind().unwrap());
    for run in 0..6 {
        memory.bind(0, storage).unwrap();
        gpu.write(&mine, run % 3, true);
        memory.advance(1).unwrap();
        assert!(storage.is_unbound());
        gpu.write(memory.tensor(1).unwrap(), (run + 1) % 3, true);
        memory.restart().unwrap();
    }
    assert_eq!(gpu.machine.races(), []);
}

/// A view that is held is used until the lifetime ends, and no longer.
#[test]
fn clones_that_are_revoked() {
    let gpu = Gpu::new();
    let (plan, [first, second]) = gpu.successors();
    let mut execution = gpu.prepare(&plan, 0);
    let clone = execution.step(0).unwrap().tensor(first).unwrap().narrow(0, 5, 100).unwrap();
    gpu.write(&clone, 1, true);
    gpu.on_stream(1, || clone.fill_(3.0)).unwrap();
    let step = execution.step(1).unwrap();
    gpu.on_stream(2, || step.tensor(second).unwrap().fill_(4.0)).unwrap();
    assert!(gpu.on_stream(1, || clone.fill_(5.0)).is_err());
    let values = gpu.on_stream(2, || step.tensor(second).unwrap().to_vec::<f32>()).unwrap();
    assert_eq!(values, [4.0; 10_000]);
    assert_eq!(gpu.machine.races(), []);
}

/// The stream of the arena ends before the arena.
#[test]
fn the_stream_of_the_arena_ends() {
    for is_by_library in [false, true] {
        let mut gpu = Gpu::new();
        let (plan, [first, second]) = gpu.successors();
        let mut execution = gpu.prepare(&plan, 2);
        drop(gpu.streams.pop());
        for run in 0..6 {
            execution.begin().unwrap();
            gpu.write(execution.step(0).unwrap().tensor(first).unwrap(), run % 2, true);
            let step = execution.step(1).unwrap();
            let second = step.tensor(second).unwrap();
            match is_by_library {
                true => gpu.on_stream((run + 1) % 2, || second.fill_(1.0)).unwrap(),
                false => gpu.write(second, (run + 1) % 2, true),
            }
        }
        drop(execution);
        let block = gpu.context.allocate(gpu.device, &Request::new(40_000)).unwrap();
        let default = gpu.machine.device.default_stream();
        let ops = gpu.context.ops(gpu.device).unwrap();
        let mut block = block;
        block.zero_by(&*ops, default).unwrap();
        assert_eq!(gpu.machine.races(), [], "{is_by_library}");
    }
}

/// Streams that end, again and again: nothing grows with them.
#[test]
fn streams_that_end() {
    let gpu = Gpu::new();
    let (plan, [first, second]) = gpu.successors();
    let mut execution = gpu.prepare(&plan, 0);
    for run in 0..300 {
        let stream = gpu.machine.device.create_stream().unwrap();
        execution.begin().unwrap();
        let step = execution.step(0).unwrap();
        let block = step.tensor(first).unwrap().storage().unwrap().block().unwrap();
        KernelPointer::<u8>::within(&block, 0, &stream).unwrap();
        let run_kernel = KernelRun::new("write").writes(block.address(), 40_000);
        gpu.machine.run_kernel(handle(&stream), run_kernel).unwrap();
        assert_eq!(block.stream_uses().count(), 1, "run {run}");
        drop(block);
        drop(stream);
        gpu.write(execution.step(1).unwrap().tensor(second).unwrap(), run % 3, true);
    }
    assert_eq!(gpu.machine.races(), []);
}

/// The buffers of a random plan with their steps; those without steps are persistent.
type Buffers = Vec<(BufferId, Option<(u64, u64)>)>;

fn random_plan(gpu: &Gpu, random: &mut Random) -> (ExecutionPlan, Buffers) {
    let mut plan = PlanBuilder::new();
    let mut buffers = Buffers::new();
    for _ in 0..12 {
        let spec = gpu.spec(1 + random.below(20_000));
        if random.below(6) == 0 {
            buffers.push((plan.persistent(spec.kind(MemoryKind::Persistent)), None));
        } else {
            let start = random.below(8) as u64;
            let end = start + random.below(4) as u64;
            buffers.push((plan.buffer(spec, start..=end).unwrap(), Some((start, end))));
        }
    }
    (plan.finish().unwrap(), buffers)
}

/// Each use of a buffer comes after its former use, as in any program; the order between buffers is that of
/// the plan. Plans are replaced, dropped and prepared on any stream, while blocks come and go.
#[test]
fn random_programs_have_no_races() {
    let mut races_of_control = 0;
    for seed in 1..=setting("ORLOP_PLANNED_PROGRAMS", 12) {
        let is_announced = seed % 3 != 0;
        let gpu = Gpu::new();
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut plan, mut buffers) = random_plan(&gpu, &mut random);
        let mut execution = gpu.prepare(&plan, 0);
        let mut last_of: Vec<Option<StreamId>> = vec![None; buffers.len()];
        for _ in 0..25 {
            execution.begin().unwrap();
            for step in 0..plan.steps() {
                let tensors = execution.step(step).unwrap();
                for (last, (_, steps)) in last_of.iter_mut().zip(&buffers) {
                    // What used its bytes before was another buffer: the library orders that.
                    last.take_if(|_| steps.is_some_and(|(start, _)| step == start));
                }
                for (index, &(buffer, steps)) in buffers.iter().enumerate() {
                    if steps.is_some_and(|(start, end)| step < start || step > end) || random.below(3) == 0 {
                        continue;
                    }
                    let (tensor, stream) = (tensors.tensor(buffer).unwrap(), random.below(3));
                    let used = &gpu.streams[stream];
                    if let Some(last) = last_of[index].replace(used.id())
                        && last != used.id()
                    {
                        used.wait_for(last).unwrap();
                    }
                    match random.below(4) {
                        0 => gpu.on_stream(stream, || tensor.fill_(2.0)).unwrap(),
                        1 => {
                            let source = random.below(buffers.len());
                            let Ok(from) = tensors.tensor(buffers[source].0) else { continue };
                            if let Some(last) = last_of[source].replace(used.id())
                                && last != used.id()
                            {
                                used.wait_for(last).unwrap();
                            }
                            let count = tensor.numel().min(from.numel());
                            let parts = [tensor, from].map(|tensor| tensor.narrow(0, 0, count).unwrap());
                            // A copy of a tensor to itself is nothing to do.
                            gpu.on_stream(stream, || parts[0].copy_(&parts[1])).unwrap();
                        }
                        _ => gpu.write(tensor, stream, is_announced),
                    }
                }
            }
            let stream = random.below(3);
            let request = Request::new(1 + random.below(200_000)).stream(gpu.streams[stream].id());
            let block = gpu.context.allocate(gpu.device, &request).unwrap();
            gpu.machine.write(&gpu.streams[stream], &block);
            drop(block);
            match random.below(6) {
                0 => {
                    (plan, buffers) = random_plan(&gpu, &mut random);
                    execution.rebind(&plan).unwrap();
                }
                1 => {
                    drop(execution);
                    execution = gpu.prepare(&plan, random.below(3));
                }
                _ => continue,
            }
            // What the program did with other tensors is no former use of these: the library orders it.
            last_of = vec![None; buffers.len()];
        }
        match is_announced {
            true => assert_eq!(gpu.machine.races(), [], "seed {seed}"),
            false => races_of_control += gpu.machine.races().len(),
        }
    }
    assert!(races_of_control > 0, "a use that nothing records is a race");
}
