//! Allocators that fail, observers that panic and use the memory, arenas that are reset, threads that do not
//! let go.

use orlop_alloc::adaptor::{Failing, Rule};
use orlop_alloc::backing::System;
use orlop_alloc::engine::{Direct, Reset, ThreadArenas};
use orlop_alloc::{Allocator, Error as AllocError, Event, Observer, Request};
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryKind};
use orlop_exec::{BufferId, BufferSpec, ExecError, ExecutionPlan, PlanBuilder};
use orlop_tensor::Tensor;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const KINDS: [MemoryKind; 3] = [MemoryKind::Workspace, MemoryKind::KvCache, MemoryKind::Persistent];

fn floats(count: usize) -> BufferSpec {
    BufferSpec::new("buffer", [count], DType::F32).unwrap()
}

/// A buffer of each kind in two steps, and a persistent one.
fn of_all_kinds(count: usize) -> (ExecutionPlan, Vec<BufferId>) {
    let mut plan = PlanBuilder::new();
    let mut buffers: Vec<_> = KINDS.map(|kind| plan.buffer(floats(count).kind(kind), 0..=1).unwrap()).into();
    buffers.push(plan.persistent(floats(count)));
    (plan.finish().unwrap(), buffers)
}

/// Each arena in turn has no memory: what was reserved is released, and the present run goes on.
#[test]
fn every_request_fails_in_turn() {
    let (small, large) = (of_all_kinds(100), of_all_kinds(200));
    let arenas = small.0.arenas().len() as u64;
    assert_eq!(arenas, 4);
    for nth in 1..=2 * arenas + 1 {
        let context = Context::new();
        let failing = Failing::new(Direct::new(System::new()), [Rule::Nth(nth)]).into_ref();
        KINDS.into_iter().for_each(|kind| context.register(Device::CPU, kind, failing.clone()).unwrap());
        let live = || failing.stats().live();
        let prepared = small.0.prepare(&context);
        assert_eq!(prepared.is_err(), nth <= arenas);
        let Ok(mut execution) = prepared else {
            assert_eq!(live(), 0);
            continue;
        };
        let reserved = live();
        for (&buffer, value) in small.1.iter().zip([1.0, 2.0, 3.0, 4.0]) {
            execution.step(0).unwrap().tensor(buffer).unwrap().fill_(value).unwrap();
        }
        let rebound = execution.rebind(&large.0);
        assert_eq!(rebound.is_err(), nth <= 2 * arenas);
        if rebound.is_err() {
            assert_eq!(live(), reserved);
            let step = execution.step(1).unwrap();
            for (&buffer, value) in small.1.iter().zip([1.0, 2.0, 3.0, 4.0]) {
                assert_eq!(step.tensor(buffer).unwrap().to_vec::<f32>().unwrap(), [value; 100]);
            }
            assert_eq!(execution.rebind(&large.0).unwrap().reserved, 4);
        }
        execution.step(0).unwrap().tensor(large.1[0]).unwrap().fill_(1.0).unwrap();
        drop(execution);
        assert_eq!(live(), 0);
    }
}

/// Uses a tensor at each event of a block, allocates, and panics.
#[derive(Default)]
struct Meddling {
    tensor: Mutex<Option<Tensor>>,
    events: AtomicUsize,
}

impl Observer for Meddling {
    fn observe(&self, _: &Event<'_>) {
        let count = self.events.fetch_add(1, Ordering::Relaxed);
        let tensor = self.tensor.lock().map(|tensor| tensor.clone()).unwrap_or_default();
        if let Some(tensor) = tensor {
            tensor.fill_(5.0).unwrap();
            drop(tensor.narrow(0, 0, 1).unwrap().duplicate().unwrap());
        }
        assert!(count.is_multiple_of(2), "a test");
    }
}

#[test]
fn observers_use_what_is_planned() {
    let context = Context::new();
    let meddling = Arc::new(Meddling::default());
    context.add_observer(Arc::clone(&meddling) as Arc<dyn Observer>);
    let (small, buffers) = of_all_kinds(100);
    let (large, _) = of_all_kinds(300);
    let mut execution = small.prepare(&context).unwrap();
    let kept = execution.tensor(buffers[3]).unwrap().clone();
    *meddling.tensor.lock().unwrap() = Some(kept.clone());
    for plan in [&large, &small, &large] {
        execution.begin().unwrap();
        execution.step(0).unwrap().tensor(buffers[0]).unwrap().fill_(1.0).unwrap();
        execution.rebind(plan).unwrap();
    }
    // The arena of the first plan is kept by the clone alone.
    assert_eq!(kept.to_vec::<f32>().unwrap(), [5.0; 100]);
    drop(execution);
    *meddling.tensor.lock().unwrap() = None;
    drop(kept);
    assert!(meddling.events.load(Ordering::Relaxed) > 8);
    assert_eq!(context.stats(Device::CPU).totals.all.live_blocks(), 0);
}

/// Plans in an arena that is reset: not while they are there, and what is renewed leaves them their memory.
#[test]
fn plans_in_arenas_of_threads() {
    let context = Context::new();
    let arenas = ThreadArenas::new(System::new(), 1 << 12).into_ref();
    context.register(Device::CPU, MemoryKind::Workspace, arenas.clone()).unwrap();
    let (plan, buffers) = of_all_kinds(300);
    for round in 0..4_u8 {
        let mut execution = plan.prepare(&context).unwrap();
        assert!(matches!(arenas.reset(), Err(AllocError::ArenaInUse { live: 1 })));
        execution.step(0).unwrap().tensor(buffers[0]).unwrap().fill_(f64::from(round)).unwrap();
        assert!(matches!(arenas.renew(), Reset::Renewed { live: 1 }));
        let others: Vec<_> =
            (0..8).map(|_| arenas.allocate_copy(&Request::new(0), &[0xFF; 1500]).unwrap()).collect();
        let first = buffers[0];
        let check = move || {
            let tensor = execution.step(1).unwrap().tensor(first).unwrap().clone();
            drop(execution);
            assert_eq!(tensor.to_vec::<f32>().unwrap(), [f32::from(round); 300]);
        };
        thread::spawn(check).join().unwrap();
        drop(others);
        arenas.reset().unwrap();
    }
}

/// Other threads hold clones of everything that was lent, and use them all the time.
#[test]
fn threads_that_do_not_let_go() {
    let mut plan = PlanBuilder::new();
    let buffers: Vec<_> = (0..6u64).map(|step| plan.buffer(floats(32), step..=step + 1).unwrap()).collect();
    let plan = plan.finish().unwrap();
    let mut execution = plan.prepare(&Context::new()).unwrap();
    let lent = Mutex::new(Vec::<Tensor>::new());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let mut lent = lent.lock().unwrap();
                    let last = lent.pop();
                    drop(lent);
                    // It works until its steps are over.
                    while last.as_ref().is_some_and(|tensor| tensor.fill_(9.0).is_ok()) {
                        thread::yield_now();
                    }
                    thread::yield_now();
                }
            });
        }
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            while execution.begin().is_err() {
                thread::yield_now();
            }
            for step in 0..plan.steps() {
                while execution.step(step).is_err() {
                    thread::yield_now();
                }
                let tensors = execution.step(step).unwrap();
                let Some(&buffer) = buffers.get(usize::try_from(step).unwrap()) else { continue };
                let tensor = tensors.tensor(buffer).unwrap();
                // Before anyone else has a handle.
                tensor.fill_(1.0).unwrap();
                assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0; 32]);
                lent.lock().unwrap().push(tensor.clone());
            }
        }
        is_over.store(true, Ordering::Relaxed);
        lent.lock().unwrap().clear();
        while execution.begin().is_err() {
            thread::yield_now();
        }
        assert!(!matches!(execution.step(7), Err(ExecError::InUse { .. })));
    });
}
