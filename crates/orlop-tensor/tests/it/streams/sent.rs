//! Host memory that a stream reads after the call that sends it: when it may change.

use super::{FAR, OWN, numbers, side, vec_of, with_device};
use orlop_alloc::engine_support::{DeviceOps, DevicePtr};
use orlop_core::{DType, Device, StreamId};
use orlop_tensor::{Tensor, TensorOptions};
use orlop_testkit::QueuedDevice;
use std::sync::{Arc, Mutex};

#[test]
fn a_sent_tensor_may_change_and_end_before_it_arrives() {
    with_device(|device, _| {
        let here = numbers(1000);
        let there = here.to_device(FAR).unwrap();
        assert_eq!(
            (device.pending(OWN), device.calls().synchronizations),
            (1, 0),
            "submitted, not waited for"
        );
        here.fill_(7).unwrap();
        drop(here);
        assert_eq!(vec_of(&there), (0..1000).collect::<Vec<_>>());
        assert_eq!(device.calls().synchronizations, 1);
    });
}

/// Host memory whose allocator waits for streams is read by the stream itself. The next writer waits.
#[test]
fn kept_host_memory_is_not_changed_before_it_is_read() {
    let pinned = QueuedDevice::new(Device::CPU, 64 << 20).allocator();
    with_device(|device, _| {
        let make = || {
            let here = Tensor::empty([1000], TensorOptions::from(DType::I32).allocator(&pinned)).unwrap();
            here.copy_(&numbers(1000)).unwrap();
            here
        };
        let waits = || device.calls().synchronizations;
        let here = make();
        let there = here.to_device(FAR).unwrap();
        assert_eq!(here.to_vec::<i32>().unwrap()[999], 999);
        assert_eq!((device.pending(OWN), waits()), (1, 0), "reading does not wait");
        let uses: Vec<_> = here.storage().unwrap().block().unwrap().stream_uses().collect();
        assert_eq!(uses, [OWN]);
        here.fill_(-1).unwrap();
        assert_eq!((device.pending(OWN), waits()), (0, 1));
        here.fill_(-2).unwrap();
        assert_eq!(waits(), 1, "once");
        assert_eq!(vec_of(&there), (0..1000).collect::<Vec<_>>());
        // A clone that becomes the only owner of the memory writes it in place.
        let here = make();
        let (there, before) = (here.to_device(FAR).unwrap(), waits());
        let clone = here.lazy_clone().unwrap();
        drop(here);
        clone.fill_(-1).unwrap();
        assert_eq!((vec_of(&there), waits()), ((0..1000).collect::<Vec<_>>(), before + 2));
        // Shared and exported memory is written without the storage: it is read at once.
        let here = make();
        let clone = here.lazy_clone().unwrap();
        let there = here.to_device(FAR).unwrap();
        drop(here);
        clone.fill_(-1).unwrap();
        assert_eq!(vec_of(&there), (0..1000).collect::<Vec<_>>());
        let here = make();
        let address = here.storage().unwrap().as_mut_ptr().unwrap().cast::<i32>();
        let there = here.to_device(FAR).unwrap();
        // SAFETY: the first of its elements, which nothing else accesses.
        unsafe { address.write(-1) };
        assert_eq!(vec_of(&there), (0..1000).collect::<Vec<_>>());
        // A block that leaves its storage is not being read.
        let here = make();
        let there = here.to_device(FAR).unwrap();
        let storage = here.storage().unwrap().clone();
        drop(here);
        let before = waits();
        let mut block = storage.into_block().unwrap();
        assert_eq!(waits(), before + 1);
        block.bytes_mut().unwrap().fill(0);
        assert_eq!(vec_of(&there), (0..1000).collect::<Vec<_>>());
        // Nor is one that outlives it.
        let here = make();
        let there = here.to_device(FAR).unwrap();
        let (block, before) = (here.storage().unwrap().block().unwrap(), waits());
        drop(here);
        assert_eq!(waits(), before + 1);
        block.try_into_block().unwrap().bytes_mut().unwrap().fill(0);
        assert_eq!(vec_of(&there), (0..1000).collect::<Vec<_>>());
        // Without an owner who could write it, there is no wait: its allocator waits.
        let (here, before) = (make(), waits());
        let there = here.to_device(FAR).unwrap();
        drop(here);
        assert_eq!(waits(), before);
        assert_eq!(vec_of(&there), (0..1000).collect::<Vec<_>>());
    });
}

type Hook = Box<dyn FnOnce() + Send>;

/// The operations of a device, with a function that another thread might run at that moment.
#[derive(Clone)]
struct HookedOps {
    ops: Arc<dyn DeviceOps>,
    hook: Arc<Mutex<Option<(&'static str, Hook)>>>,
}

impl HookedOps {
    fn set(&self, call: &'static str, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().expect("no panic") = Some((call, Box::new(hook)));
    }

    fn run(&self, call: &'static str) {
        let hook = self.hook.lock().expect("no panic").take_if(|(name, _)| *name == call);
        if let Some((_, hook)) = hook {
            hook();
        }
    }
}

impl std::fmt::Debug for HookedOps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.ops.fmt(f)
    }
}

// SAFETY: as the operations that it calls.
unsafe impl DeviceOps for HookedOps {
    fn device(&self) -> Device {
        self.ops.device()
    }

    unsafe fn copy(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: usize,
        stream: StreamId,
    ) -> orlop_alloc::Result<()> {
        self.run("copy");
        // SAFETY: guaranteed by the caller.
        unsafe { self.ops.copy(to, from, bytes, stream) }
    }

    unsafe fn fill(
        &self,
        to: DevicePtr,
        pattern: &[u8],
        count: usize,
        stream: StreamId,
    ) -> orlop_alloc::Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.ops.fill(to, pattern, count, stream) }
    }

    fn wait_for(&self, stream: StreamId, earlier: StreamId) -> orlop_alloc::Result<()> {
        self.run("wait_for");
        self.ops.wait_for(stream, earlier)
    }

    fn synchronize(&self, stream: StreamId) -> orlop_alloc::Result<()> {
        let synchronized = self.ops.synchronize(stream);
        self.run("synchronize");
        synchronized
    }
}

/// A clone is made while another thread sends the same memory, at any point of either.
#[test]
fn a_lazy_clone_does_not_write_what_a_stream_still_reads() {
    let pinned = QueuedDevice::new(Device::CPU, 64 << 20).allocator();
    for (call, sends_before) in [("wait_for", false), ("copy", false), ("copy", true), ("synchronize", true)]
    {
        with_device(|_, context| {
            let hook = Arc::new(Mutex::new(None));
            let ops = HookedOps { ops: context.ops(FAR).unwrap(), hook };
            context.register_ops(FAR, Arc::new(ops.clone())).unwrap();
            let options = TensorOptions::from(DType::I32).allocator(&pinned).stream(side());
            let here = Tensor::empty([1000], options).unwrap();
            here.copy_(&numbers(1000)).unwrap();
            let first = sends_before.then(|| here.to_device(FAR).unwrap());
            let made = Arc::new(Mutex::new(None));
            let (place, other, current) = (Arc::clone(&made), here.clone(), context.clone());
            if call == "synchronize" {
                ops.set(call, move || {
                    *place.lock().unwrap() = Some(current.scope(|| other.to_device(FAR).unwrap()));
                });
                let clone = here.lazy_clone().unwrap();
                let sent = made.lock().unwrap().take();
                drop(here);
                clone.fill_(-1).unwrap();
                if let Some(sent) = sent {
                    assert_eq!(vec_of(&sent), (0..1000).collect::<Vec<_>>(), "{call}");
                }
            } else {
                ops.set(call, move || *place.lock().unwrap() = Some(other.lazy_clone().unwrap()));
                let sent = here.to_device(FAR).unwrap();
                let clone = made.lock().unwrap().take().unwrap();
                drop(here);
                clone.fill_(-1).unwrap();
                assert_eq!(vec_of(&sent), (0..1000).collect::<Vec<_>>(), "{call}");
            }
            drop(first);
            assert!(ops.hook.lock().unwrap().is_none(), "{call}");
        });
    }
}
