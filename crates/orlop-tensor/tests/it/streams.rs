//! Tensors on a device whose work runs late: memory that is reused too early, and bytes that are read too
//! early, have wrong contents.

use orlop_alloc::{Allocator as _, DeviceOps, DevicePtr, Error as AllocError, Request};
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryFormat, MemoryKind, StreamId};
use orlop_tensor::{Error, Storage, Tensor, TensorOptions};
use orlop_testkit::QueuedDevice;
use orlop_testkit::fake_device::FakeDeviceBacking;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

const FAR: Device = Device::custom(31, 0);
const OWN: StreamId = StreamId::default_of(FAR);

fn side() -> StreamId {
    StreamId::unique()
}

fn far(dtype: DType) -> TensorOptions<'static> {
    TensorOptions::new().dtype(dtype).device(FAR)
}

fn with_device(test: impl FnOnce(&QueuedDevice, &Context)) {
    let device = QueuedDevice::new(FAR, 64 << 20);
    let context = device.context().expect("a new context");
    context.scope(|| test(&device, &context));
}

fn numbers(count: i32) -> Tensor {
    Tensor::from_vec([count], (0..count).collect::<Vec<i32>>()).expect("as many as sizes")
}

fn vec_of(tensor: &Tensor) -> Vec<i32> {
    tensor.to_vec().expect("readable")
}

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
        let uses: Vec<_> = here.storage().unwrap().block().unwrap().uses.iter().collect();
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
        to: NonNull<u8>,
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
            context.register_ops(FAR, Arc::new(ops.clone()));
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

#[test]
fn what_a_stream_still_reads_is_not_reused() {
    with_device(|device, context| {
        let other = side();
        let source = numbers(1000).to_device(FAR).unwrap();
        let copy = context.on_stream(FAR, other, || source.duplicate().unwrap());
        drop(source);
        // On the stream of the source, which could reuse its memory at once but for the recorded use.
        let next: Vec<_> = (0..4).map(|_| Tensor::full([1000], -1, far(DType::I32)).unwrap()).collect();
        device.advance(OWN);
        assert_eq!(device.calls().synchronizations, 0);
        assert_eq!(context.on_stream(FAR, other, || vec_of(&copy)), (0..1000).collect::<Vec<_>>());
        assert!(next.iter().all(|next| vec_of(next) == [-1; 1000]));
    });
}

#[test]
fn a_stream_reuses_its_own_memory_in_order() {
    with_device(|device, _| {
        let source = numbers(1000).to_device(FAR).unwrap();
        let copy = source.duplicate().unwrap();
        drop(source);
        let next = Tensor::full([1000], -1, far(DType::I32)).unwrap();
        assert_eq!((vec_of(&copy), vec_of(&next)), ((0..1000).collect::<Vec<_>>(), vec![-1; 1000]));
        assert_eq!(device.calls().waits, 0, "one stream needs no event");
    });
}

#[test]
fn reading_waits_for_its_stream_only() {
    with_device(|device, context| {
        let (busy, here) = (side(), numbers(10));
        let there = here.to_device(FAR).unwrap();
        let kept = context.on_stream(FAR, busy, || Tensor::full([10], 1, far(DType::I32)).unwrap());
        let (pending, waits) = (device.pending(busy), device.calls().synchronizations);
        let back = there.to_device(Device::CPU).unwrap();
        assert_eq!((device.pending(busy), device.calls().synchronizations), (pending, waits + 1));
        assert!(pending > 0 && kept.is_defined());
        assert_eq!(back.as_slice::<i32>().unwrap()[..], here.as_slice::<i32>().unwrap()[..]);
    });
}

/// The first use of memory by another stream than its own comes after what that was doing with it.
#[test]
fn another_stream_comes_after_the_earlier_use_of_the_memory() {
    with_device(|device, context| {
        let other = side();
        let old = numbers(1000).to_device(FAR).unwrap();
        let address = old.storage().unwrap().block().unwrap().address();
        let copy = old.duplicate().unwrap();
        drop(old);
        let new = Tensor::empty([1000], far(DType::I32)).unwrap();
        assert_eq!(new.storage().unwrap().block().unwrap().address(), address);
        context.on_stream(FAR, other, || new.fill_(5).unwrap());
        device.advance(other);
        assert_eq!(vec_of(&copy), (0..1000).collect::<Vec<_>>());
        // Once: from then on, the caller orders the streams.
        assert_eq!(device.calls().waits, 1);
        context.on_stream(FAR, other, || new.fill_(6).unwrap());
        assert_eq!(device.calls().waits, 1);
        assert_eq!(context.on_stream(FAR, other, || vec_of(&new)), [6; 1000]);
    });
}

#[test]
fn a_copy_to_another_device_keeps_dtype_and_format() {
    with_device(|device, _| {
        let image = Tensor::arange(0.0, 120.0, 1.0, DType::I16).unwrap().view([2, 3, 4, 5]).unwrap();
        let last = image.contiguous(MemoryFormat::ChannelsLast).unwrap();
        let permuted = image.permute([3, 1, 0, 2]).unwrap();
        let part = image.slice(3, Some(1), None, 2).unwrap();
        for tensor in [&image, &last, &permuted, &part] {
            let before = device.calls();
            let there = tensor.to_device(FAR).unwrap();
            let expected = tensor.empty_like().unwrap();
            assert_eq!((there.dtype(), there.strides()), (DType::I16, expected.strides()));
            assert_eq!(device.calls().copies, before.copies + 1, "one run");
            let back = there.to_device(Device::CPU).unwrap();
            assert_eq!((back.dtype(), back.strides()), (DType::I16, expected.strides()));
            assert_eq!(back.to_vec::<i16>().unwrap(), tensor.to_vec::<i16>().unwrap());
        }
        let there = last.to_device(FAR).unwrap();
        assert_eq!(there.duplicate().unwrap().strides(), last.strides());
        let rows = there.contiguous(MemoryFormat::Contiguous).unwrap();
        assert_eq!(rows.strides(), image.strides());
        assert_eq!(rows.to_vec::<i16>().unwrap(), image.to_vec::<i16>().unwrap());
    });
}

#[test]
fn strided_tensors_are_copied_and_filled_there() {
    with_device(|device, _| {
        let here = numbers(48).view([6, 8]).unwrap();
        let there = here.to_device(FAR).unwrap();
        let (columns, rows) =
            (there.slice(1, Some(1), None, 3).unwrap(), there.slice(0, None, None, 2).unwrap());
        let before = device.calls();
        let copy = columns.duplicate().unwrap();
        assert_eq!(device.calls().strided_copies, before.strided_copies + 1);
        rows.fill_(-1).unwrap();
        let assigned = Tensor::zeros([8, 6], far(DType::I32)).unwrap();
        assigned.t().unwrap().copy_(&there).unwrap();
        assert_eq!(device.calls().synchronizations, before.synchronizations, "nothing waits");
        let expected = here.slice(1, Some(1), None, 3).unwrap();
        assert_eq!(vec_of(&copy), vec_of(&expected));
        here.slice(0, None, None, 2).unwrap().fill_(-1).unwrap();
        assert_eq!(vec_of(&there), vec_of(&here));
        assert_eq!(vec_of(&assigned), vec_of(&here.t().unwrap()));
        // To and from the host: packed on the device, one run.
        let before = device.calls();
        assert_eq!(vec_of(&columns), vec_of(&here.slice(1, Some(1), None, 3).unwrap()));
        assert_eq!(device.calls().copies, before.copies + 1);
        assert_eq!(device.calls().strided_copies, before.strided_copies + 1);
        let ones = Tensor::full([6, 3], 1, DType::I32).unwrap();
        columns.copy_(&ones).unwrap();
        assert_eq!(device.calls().copies, before.copies + 2);
        here.slice(1, Some(1), None, 3).unwrap().copy_(&ones).unwrap();
        assert_eq!(vec_of(&there), vec_of(&here));
        // Repeated elements travel once.
        let wide = numbers(4).to_device(FAR).unwrap().unsqueeze(0).unwrap().expand([1000, 4]).unwrap();
        assert_eq!(vec_of(&wide), [0, 1, 2, 3].repeat(1000));
    });
}

#[test]
fn casts_on_the_device_or_on_the_host() {
    for casts in [false, true] {
        with_device(|device, _| {
            if casts {
                device.enable_casts();
            }
            let here = Tensor::arange(-3.0, 5.0, 0.5, DType::F32).unwrap().view([4, 4]).unwrap().t().unwrap();
            let there = here.to_device(FAR).unwrap();
            let whole = there.to_dtype(DType::I32).unwrap();
            assert_eq!((whole.device(), whole.strides()), (FAR, here.strides()));
            assert_eq!(device.calls().casts, usize::from(casts));
            assert_eq!(device.calls().synchronizations == 0, casts, "a cast on the host reads the elements");
            assert_eq!(vec_of(&whole), vec_of(&here.to_dtype(DType::I32).unwrap()));
            let sent = here.to(far(DType::F16)).unwrap();
            assert_eq!((sent.device(), sent.dtype(), sent.strides()), (FAR, DType::F16, here.strides()));
            let back = sent.to(TensorOptions::new().dtype(DType::F64).device(Device::CPU)).unwrap();
            assert_eq!(
                back.to_vec::<f64>().unwrap(),
                here.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap()
            );
        });
    }
}

#[test]
fn zeros_are_written_by_the_stream_of_the_request() {
    with_device(|device, context| {
        let other = side();
        let full = Tensor::full([1000], 9, far(DType::I32)).unwrap();
        drop(full);
        let zeros = Tensor::zeros([1000], far(DType::I32)).unwrap();
        assert_eq!((device.pending(OWN), device.calls().synchronizations), (2, 0));
        assert_eq!(vec_of(&zeros), [0; 1000]);
        let zeros = context.on_stream(FAR, other, || Tensor::zeros([1000], far(DType::I32)).unwrap());
        assert!(device.pending(OWN) == 0 && device.pending(other) > 0);
        assert_eq!(context.on_stream(FAR, other, || vec_of(&zeros)), [0; 1000]);
        let mut block = context.allocate(FAR, &Request::new(4000)).unwrap();
        context.zero(&mut block, OWN).unwrap();
        assert_eq!((device.pending(OWN), device.calls().synchronizations), (1, 2));
    });
}

#[test]
fn lazy_copies_and_growth_do_not_wait() {
    with_device(|device, _| {
        let first = numbers(100).to_device(FAR).unwrap();
        let second = first.lazy_clone().unwrap();
        second.fill_(4).unwrap();
        let mut third = first.clone();
        third.resize_([100_000]).unwrap();
        third.narrow(0, 100, 100).unwrap().fill_(3).unwrap();
        assert_eq!(device.calls().synchronizations, 0);
        let expected: Vec<_> = (0..100).chain([3; 100]).collect();
        assert_eq!((vec_of(&third.narrow(0, 0, 200).unwrap()), vec_of(&second)), (expected, vec![4; 100]));
    });
}

#[test]
fn blocks_of_contexts_are_copied_without_a_wait() {
    with_device(|device, context| {
        let mut here = context.allocate(Device::CPU, &Request::new(1000)).unwrap();
        here.bytes_mut().unwrap().fill(3);
        let there = context.duplicate(&here, FAR, OWN).unwrap();
        here.bytes_mut().unwrap().fill(4);
        let other = side();
        let copy = context.duplicate(&there, FAR, other).unwrap();
        drop(there);
        let mut next = context.allocate(FAR, &Request::new(1000)).unwrap();
        context.zero(&mut next, OWN).unwrap();
        assert_eq!(device.calls().synchronizations, 0);
        device.advance(OWN);
        context.copy(&mut here, &copy, other).unwrap();
        assert_eq!((here.bytes().unwrap(), device.calls().synchronizations), (&[3; 1000][..], 1));
    });
}

/// An allocator that reuses memory at once cannot keep it for a stream.
#[test]
fn other_allocators_are_waited_for() {
    let device = QueuedDevice::new(FakeDeviceBacking::DEVICE, 1 << 20);
    let context = Context::new();
    let direct = orlop_alloc::engine::Direct::new(FakeDeviceBacking::new());
    context.register(FakeDeviceBacking::DEVICE, MemoryKind::Default, direct.into_ref()).unwrap();
    context.register_ops(FakeDeviceBacking::DEVICE, Arc::new(device.clone()));
    context.scope(|| {
        let there = numbers(100).to_device(FakeDeviceBacking::DEVICE).unwrap();
        assert_eq!(device.calls().synchronizations, 1);
        there.fill_(1).unwrap();
        assert_eq!(device.calls().synchronizations, 2);
        let copy = there.duplicate().unwrap();
        drop(there);
        assert_eq!((vec_of(&copy), device.calls().synchronizations), (vec![1; 100], 4));
    });
}

#[test]
fn a_failed_operation_is_an_error_and_loses_nothing() {
    with_device(|device, context| {
        let there = numbers(100).to_device(FAR).unwrap();
        let live = |context: &Context| context.allocator(FAR, MemoryKind::Default).unwrap().stats().live();
        let before = live(context);
        let strided = there.slice(0, None, None, 3).unwrap();
        let host = Tensor::zeros([34], DType::I32).unwrap();
        let operations: [&dyn Fn() -> orlop_tensor::Result<()>; 6] = [
            &|| there.fill_(1),
            &|| strided.fill_(1),
            &|| there.duplicate().map(drop),
            &|| strided.copy_(&host),
            &|| host.copy_(&strided),
            &|| strided.contiguous(MemoryFormat::Contiguous).map(drop),
        ];
        for operation in operations {
            device.fail_next();
            let failed = operation();
            assert!(matches!(failed, Err(Error::Alloc(AllocError::Backend(_)))), "{failed:?}");
            assert_eq!(live(context), before);
        }
        assert_eq!(vec_of(&there), (0..100).collect::<Vec<_>>());
    });
}

/// Strided memory can be read and written when the device has no room for packed elements.
#[test]
fn a_full_device_is_read_and_written() {
    let device = QueuedDevice::new(FAR, 4 << 20);
    device.context().unwrap().scope(|| {
        let there = Storage::new((4 << 20) - 512, &far(DType::U8)).unwrap();
        let there = Tensor::from_storage(
            there,
            orlop_core::Layout::contiguous(orlop_core::Shape::new(&[1 << 10, 1 << 10]).unwrap()),
            DType::U16,
        );
        let there = there.unwrap();
        there.fill_(1u8).unwrap();
        let column = there.slice(1, None, Some(1), 1).unwrap();
        assert!(Tensor::empty([1 << 20], far(DType::I32)).is_err());
        let here = Tensor::arange(0.0, 1024.0, 1.0, DType::U16).unwrap().unsqueeze(1).unwrap();
        column.copy_(&here).unwrap();
        assert_eq!(column.to_vec::<u16>().unwrap(), here.to_vec::<u16>().unwrap());
        assert_eq!(there.select(1, 1).unwrap().to_vec::<u16>().unwrap(), [1; 1024]);
    });
}
