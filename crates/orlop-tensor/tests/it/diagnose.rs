//! Diagnoses, and profiles of the allocations of tensors.

use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;
use orlop_alloc::{AllocationId, Allocator, Tag};
use orlop_context::Context;
use orlop_context::profile::{LeakCheck, MemorySteps};
use orlop_core::{DType, MemoryFormat, MemoryKind, Overlap, StreamId};
use orlop_tensor::diagnose::Diagnosis;
use orlop_tensor::{Storage, Tensor, TensorOptions};
use orlop_testkit::recording_mock::RecordingMock;

fn options() -> TensorOptions<'static> {
    TensorOptions::from(DType::F16).tag(Tag::new("attention.q")).kind(MemoryKind::Persistent)
}

#[test]
fn a_view_of_a_shared_storage() {
    let image = Tensor::zeros([2, 3, 4, 4], options().memory_format(MemoryFormat::ChannelsLast)).unwrap();
    let second = image.narrow(0, 1, 1).unwrap();
    let _handle = second.clone();
    let Diagnosis { shape, strides, storage_offset, .. } = second.diagnose();
    assert_eq!((&*shape, &*strides, storage_offset), (&[1, 3, 4, 4][..], &[48, 1, 12, 3][..], 48));
    let diagnosis = second.diagnose();
    assert!(
        !diagnosis.contiguous && diagnosis.channels_last && !diagnosis.channels_last_3d && diagnosis.dense
    );
    assert_eq!(diagnosis.internal_overlap, Overlap::No);
    assert_eq!((diagnosis.itemsize, diagnosis.numel, diagnosis.tensor_bytes), (2, 48, 96));
    assert_eq!((diagnosis.storage_bytes, diagnosis.capacity), (192, Some(192)));
    assert_eq!((diagnosis.tensor_use_count, diagnosis.storage_use_count), (2, 2));
    assert_eq!((diagnosis.version, diagnosis.kind), (0, MemoryKind::Persistent));
    assert!(diagnosis.resizable && diagnosis.within_storage && !diagnosis.copy_on_write);
    let block = diagnosis.block.unwrap();
    assert_eq!(diagnosis.address, Some(block.address + 96));
    assert_eq!((block.requested, block.tag.name(), block.owners), (192, "attention.q", 1));
    assert!(block.granted >= 192 && block.id != AllocationId::NONE && block.has_allocator);
}

#[test]
fn diagnosis_during_a_write() {
    let tensor = Tensor::zeros([2, 3], options()).unwrap();
    let before = tensor.diagnose();
    let writing = tensor.as_mut_slice::<orlop_core::f16>().unwrap();
    let diagnosis = tensor.diagnose();
    assert_eq!((diagnosis.block, diagnosis.capacity, diagnosis.address), (None, None, None));
    assert!(diagnosis.unreadable.unwrap().contains("a writer"));
    assert_eq!((diagnosis.storage_bytes, diagnosis.version), (12, before.version + 1));
    drop(writing);
    assert_eq!(tensor.diagnose().block, before.block);
}

#[test]
fn flags_and_owners() {
    // An allocator that honours streams: others return an error for `record_stream`.
    let allocator = RecordingMock::new(Direct::new(System::new())).0.into_ref().erase();
    let tensor = Tensor::zeros([2, 3], options().allocator(&allocator)).unwrap();
    let lazy = tensor.lazy_clone().unwrap();
    let diagnosis = lazy.diagnose();
    assert!(diagnosis.copy_on_write);
    assert_eq!((diagnosis.storage_use_count, diagnosis.block.unwrap().owners), (1, 2));
    lazy.record_stream(StreamId::from_raw(7)).unwrap();
    lazy.storage().unwrap().refuse_access("gone");
    let diagnosis = lazy.diagnose();
    assert!(diagnosis.read_only);
    assert_eq!(diagnosis.unreadable.as_deref(), Some("the storage refuses access to its data: gone"));
    let block = diagnosis.block.unwrap();
    assert_eq!((block.owners, block.stream_uses), (2, vec![StreamId::from_raw(7)]));

    let expanded = Tensor::zeros([1], options()).unwrap().expand([5]).unwrap().diagnose();
    assert_eq!((expanded.internal_overlap, expanded.dense, expanded.tensor_bytes), (Overlap::Yes, false, 10));

    let unbound = Storage::unbound(&TensorOptions::new()).unwrap();
    let layout = orlop_core::Layout::contiguous(orlop_core::Shape::new(&[0]).unwrap());
    let mut waiting = Tensor::from_storage(unbound, layout, DType::F32).unwrap();
    waiting.set_shape([3]).unwrap();
    let diagnosis = waiting.diagnose();
    assert!(diagnosis.unbound && !diagnosis.within_storage);
    assert_eq!((diagnosis.address, diagnosis.capacity), (None, Some(0)));

    let foreign = Tensor::from_vec([2], vec![1.0f32, 2.0]).unwrap().diagnose();
    let block = foreign.block.unwrap();
    assert!(!foreign.resizable && !block.has_allocator && block.id != AllocationId::NONE);
    assert!(!Tensor::undefined().diagnose().defined);
}

#[test]
fn in_two_columns() {
    let tensor = Tensor::zeros([64, 32], options()).unwrap();
    let diagnosis = tensor.select(0, 3).unwrap().diagnose();
    let block = diagnosis.block.clone().unwrap();
    let expected = format!(
        "shape             [32]\n\
         strides           [1]\n\
         storage offset    96\n\
         dtype             float16\n\
         device            cpu\n\
         kind              persistent\n\
         order             contiguous\n\
         internal overlap  no\n\
         element           2 B\n\
         tensor            64 B\n\
         storage           4.00 KiB (4096)\n\
         capacity          4.00 KiB (4096)\n\
         address           {:#x}\n\
         tensor uses       1\n\
         storage uses      1\n\
         version           0\n\
         flags             resizable\n\
         block             4.00 KiB (4096), 4.00 KiB (4096) granted\n\
         block address     {:#x}\n\
         alignment         64\n\
         access            host\n\
         tag               attention.q\n\
         allocation        {}\n\
         returns to        {}\n\
         owners            1\n\
         stream            default\n\
         stream uses       none",
        block.address + 192,
        block.address,
        block.id,
        block.allocator.as_deref().unwrap(),
    );
    assert_eq!(
        tensor.select(0, 3).unwrap().diagnose().to_string().replace("uses      2", "uses      1"),
        expected
    );

    let _writing = tensor.storage().unwrap().write().unwrap();
    let text = tensor.diagnose().to_string();
    assert!(text.ends_with(
        "unreadable        the storage is borrowed by a writer: drop that accessor or slice first\n\
         block             unknown"
    ));
    assert_eq!(Tensor::undefined().diagnose().to_string(), "undefined");
}

#[test]
fn tensors_that_are_still_alive_have_names() {
    let context = Context::new();
    let (check, steps) = (LeakCheck::on(&context), MemorySteps::on(&context).record_shapes());
    let cache = context.scope(|| {
        let _step = steps.step("forward");
        let hidden = Tensor::zeros([256, 256], DType::F32).unwrap();
        let cache = TensorOptions::from(DType::F16).kind(MemoryKind::KvCache).tag(Tag::new("layer 3"));
        let cache = Tensor::zeros([1024], cache).unwrap();
        // A lazy copy allocates nothing before it is written.
        let copy = hidden.lazy_clone().unwrap();
        assert_eq!(check.so_far().blocks().len(), 2);
        copy.fill_(1.0).unwrap();
        assert_eq!(check.so_far().blocks().len(), 3);
        cache.select(0, 5).unwrap()
    });
    let forward = &steps.finished()[0];
    assert_eq!((forward.all.allocations, forward.all.frees), (3, 2));
    assert!(forward.all.peak_bytes >= 2 * 256 * 256 * 4 + 2048);
    let shapes: Vec<_> = forward.shapes.iter().map(|it| it.shape.to_string()).collect();
    assert_eq!(shapes, ["float32 [256, 256]", "float16 [1024]"]);
    let leaks = check.finish();
    let [leak] = leaks.blocks() else { panic!("{leaks}") };
    assert_eq!(leak.shape.as_ref().map(ToString::to_string).as_deref(), Some("float16 [1024]"));
    assert_eq!((leak.tag.name(), leak.kind, leak.requested), ("layer 3", MemoryKind::KvCache, 2048));
    assert_eq!(cache.diagnose().block.map(|block| block.id), Some(leak.id));
}

#[test]
fn what_grows_is_for_its_new_shape() {
    let context = Context::new();
    let check = LeakCheck::on(&context);
    let grown = context.scope(|| {
        let mut tensor = Tensor::zeros([4], DType::F32).unwrap();
        tensor.resize_([64, 64]).unwrap();
        tensor
    });
    let leaks = check.finish();
    let shapes: Vec<_> = leaks.blocks().iter().map(|leak| leak.shape.as_ref().unwrap().to_string()).collect();
    assert_eq!((shapes, grown.ndim()), (vec!["float32 [64, 64]".to_owned()], 2));
}
