//! Storages: parts, foreign memory, resizing, restrictions of access.

use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, Block, Error as AllocError, Request};
use orlop_context::Context;
use orlop_core::{Alignment, DType, Device, MemoryKind, StreamId};
use orlop_tensor::{Borrower, Error, Storage, Tensor, TensorOptions, Unresizable};
use orlop_testkit::recording_mock::RecordingMock;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

#[test]
fn parts_keep_the_whole_alive_and_stay_inside() {
    let storage = Storage::new(100, &TensorOptions::new().zeroed()).unwrap();
    let part = storage.slice(10..50).unwrap().slice(5..15).unwrap();
    assert!(storage.is_alias_of(&part) && storage.slice(90..101).is_err() && part.slice(0..11).is_err());
    part.write().unwrap().fill(1);
    assert_eq!(storage.read().unwrap().iter().position(|&byte| byte == 1), Some(15));
    assert_eq!((storage.use_count(), part.is_unique()), (2, false));
    drop(storage);
    assert_eq!(&*part.read().unwrap(), &[1; 10]);
    assert!(matches!(part.resize(5), Err(Error::NotResizable { why: Unresizable::Part })));
}

#[test]
fn capacity_rounds_up_to_the_alignment() {
    let at = |align| TensorOptions::new().align(Alignment::new(align).unwrap());
    let capacity = |bytes, align| Storage::new(bytes, &at(align)).unwrap().capacity().unwrap();
    assert_eq!(
        (capacity(1000, 64), capacity(1000, 256), capacity(257, 256), capacity(0, 256)),
        (1024, 1024, 512, 0)
    );
}

#[test]
fn resizing_keeps_contents_and_memory_while_it_fits() {
    let storage = Storage::new(100, &TensorOptions::new().kind(MemoryKind::KvCache)).unwrap();
    storage.write().unwrap().fill(7);
    let place = storage.as_ptr().unwrap();
    storage.resize(128).unwrap();
    assert_eq!((storage.as_ptr().unwrap(), storage.nbytes()), (place, 128));
    storage.resize(5000).unwrap();
    assert_eq!((&storage.read().unwrap()[..100], storage.nbytes()), (&[7u8; 100][..], 5000));
    assert_eq!(storage.memory_kind(), MemoryKind::KvCache);
    storage.reset().unwrap();
    assert_eq!((storage.nbytes(), storage.capacity().unwrap(), storage.device()), (0, 0, Device::CPU));
    storage.resize(10).unwrap();
    assert_eq!(storage.memory_kind(), MemoryKind::KvCache);
    let reader = storage.read().unwrap();
    assert!(matches!(storage.resize(20), Err(Error::Borrowed { .. })));
    drop(reader);
}

#[test]
fn tensors_change_shape_without_memory_while_it_fits() {
    let mut tensor = Tensor::zeros([4, 4], DType::F32).unwrap();
    let (clone, place) = (tensor.clone(), tensor.storage().unwrap().as_ptr().unwrap());
    tensor.resize_([2, 3]).unwrap();
    assert_eq!((tensor.sizes(), clone.sizes()), (&[2, 3][..], &[4, 4][..]));
    assert_eq!(tensor.storage().unwrap().as_ptr().unwrap(), place);
    tensor.resize_([100, 100]).unwrap();
    tensor.fill_(1.0).unwrap();
    assert_eq!(clone.to_vec::<f32>().unwrap(), [1.0; 16]);
    tensor.resize_strided_([2, 2], &[1, 2]).unwrap();
    assert_eq!(tensor.strides().as_slice(), [1, 2]);
}

#[test]
fn metadata_alone_is_checked_at_use() {
    let mut tensor = Tensor::zeros([4], DType::F32).unwrap();
    tensor.set_shape([1000]).unwrap();
    assert!(matches!(tensor.as_slice::<f32>(), Err(Error::Layout(_))));
    assert!(matches!(tensor.fill_(1.0), Err(Error::Layout(_))));
    assert!(matches!(tensor.to_vec::<f32>(), Err(Error::Layout(_))));
    assert!(matches!(tensor.accessor_mut::<f32, 1>(), Err(Error::Layout(_))));
    tensor.set_shape([2, 2]).unwrap();
    tensor.set_dtype(DType::I32).unwrap();
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [0; 4]);
    tensor.storage().unwrap().resize(8).unwrap();
    assert!(tensor.to_vec::<i32>().is_err());
}

#[test]
fn memory_from_outside_goes_back_once() {
    let owner = Arc::new(vec![5u8; 64]);
    let ptr = NonNull::from(owner.as_slice()).cast();
    // SAFETY: the vector is valid as long as its owner, and is not written (the storage refuses).
    let storage = unsafe { Storage::foreign(ptr, 64, MemoryKind::Persistent, Arc::clone(&owner)) };
    storage.refuse_writes("borrowed");
    assert_eq!((storage.memory_kind(), storage.nbytes()), (MemoryKind::Persistent, 64));
    let tensor = Tensor::bind(&storage, 8, [8], DType::U8).unwrap();
    drop(storage);
    assert_eq!((Arc::strong_count(&owner), tensor.to_vec::<u8>().unwrap()), (2, vec![5; 8]));
    assert!(
        matches!(tensor.fill_(1), Err(Error::ReadOnly { reason: Some(reason) }) if &*reason == "borrowed")
    );
    assert!(matches!(tensor.storage().unwrap().resize(1), Err(Error::NotResizable { .. })));
    drop(tensor);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn misaligned_memory_is_copied_or_refused_but_never_read_wrongly() {
    let bytes: Vec<u8> = (0..65).collect();
    let odd = usize::from(bytes.as_ptr().addr().is_multiple_of(2));
    let ptr = NonNull::from(&bytes[odd..]).cast();
    // SAFETY: the vector outlives the tensors below, and is only read.
    let storage = unsafe { Storage::borrowed(ptr, 64, MemoryKind::Default) };
    let layout = orlop_core::Layout::contiguous(orlop_core::Shape::new(&[16]).unwrap());
    let tensor = Tensor::from_storage(storage, layout, DType::I32).unwrap();
    assert!(matches!(tensor.as_slice::<i32>(), Err(Error::Misaligned { align: 4, .. })));
    assert!(matches!(tensor.accessor::<i32, 1>(), Err(Error::Misaligned { .. })));
    let expected = i32::from_ne_bytes(bytes[odd..odd + 4].try_into().unwrap());
    assert_eq!(tensor.to_vec::<i32>().unwrap()[0], expected);
    assert_eq!(tensor.duplicate().unwrap().as_slice::<i32>().unwrap()[0], expected);
}

#[test]
fn access_is_refused_with_the_owners_words() {
    let tensor = Tensor::zeros([4], DType::F32).unwrap();
    let storage = tensor.storage().unwrap();
    storage.refuse_access("on its way to the device");
    let refused = tensor.to_vec::<f32>().unwrap_err().to_string();
    assert!(refused.contains("on its way to the device"), "{refused}");
    assert!(matches!(tensor.fill_(0.0), Err(Error::AccessRefused { .. })));
    assert_eq!(storage.capacity().unwrap(), 64);
    storage.allow_access();
    storage.warn_on_write("slow");
    tensor.fill_(1.0).unwrap();
    storage.refuse_writes("done");
    assert!(tensor.to_vec::<f32>().is_ok() && tensor.fill_(0.0).is_err() && storage.is_read_only());
}

/// Collects log messages.
#[derive(Debug, Clone, Default)]
struct LogCollector(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for LogCollector {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = event.metadata().level().to_string();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            text += &format!(" {field}={value:?}");
        });
        let panics = text.contains("a subscriber that panics");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        assert!(!panics);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A storage with a warning logs it at its first write, once, and allows the write.
#[test]
fn the_first_write_is_warned_of() {
    let told = LogCollector::default();
    tracing::subscriber::with_default(told.clone(), || {
        let warnings = || std::mem::take(&mut *told.0.lock().unwrap());
        let tensor = Tensor::zeros([4], DType::F32).unwrap();
        let storage = tensor.storage().unwrap();
        storage.warn_on_write("shared with the cache");
        let version = storage.version();
        tensor.to_vec::<f32>().unwrap();
        let refused = (storage.read().unwrap(), storage.write().is_err());
        assert!(refused.1 && !storage.is_read_only());
        drop(refused);
        assert_eq!(warnings(), Vec::<String>::new(), "there was no write");
        tensor.fill_(1.0).unwrap();
        let [warning] = &warnings()[..] else { panic!() };
        let words = ["WARN", "shared with the cache", "bytes=16", "device=cpu"];
        assert!(words.iter().all(|word| warning.contains(word)), "{warning}");
        tensor.fill_(2.0).unwrap();
        storage.write().unwrap().fill(0);
        assert_eq!((warnings().len(), storage.version()), (0, version + 3));
        // Set again, and reverted.
        storage.warn_on_write("once more");
        storage.write().unwrap().fill(1);
        assert!(warnings()[0].contains("once more"));
        storage.warn_on_write("never mind");
        storage.allow_access();
        tensor.fill_(3.0).unwrap();
        assert_eq!(warnings(), Vec::<String>::new());
        storage.warn_on_write("a subscriber that panics");
        tensor.fill_(3.0).unwrap();
        assert_eq!(warnings().len(), 1);
        // The warning comes before the deferred copy.
        let clone = tensor.lazy_clone().unwrap();
        clone.storage().unwrap().warn_on_write("a copy is made");
        clone.fill_(4.0).unwrap();
        assert_eq!((warnings().len(), tensor.to_vec::<f32>().unwrap()), (1, vec![3.0; 4]));
    });
}

/// CPU engines do not wait for streams before they reuse memory, nor does foreign memory: recording a stream
/// is an error.
#[test]
fn stream_uses_without_honour_are_errors() {
    let refused = |result: Result<(), Error>| {
        matches!(result, Err(Error::Alloc(AllocError::StreamsNotHonoured { .. })))
    };
    let stream = StreamId::from_raw(7);
    for kind in MemoryKind::ALL {
        let tensor = Tensor::zeros([4], TensorOptions::new().kind(kind).stream(stream)).unwrap();
        let storage = tensor.storage().unwrap();
        assert!(
            refused(tensor.record_stream(stream)) && refused(storage.record_stream(StreamId::from_raw(9)))
        );
        let block = storage.block().unwrap();
        assert!(refused(block.record_stream(stream).map_err(Error::from)), "{kind}");
        assert_eq!(block.stream_uses().count(), 0);
    }
    let outside = Tensor::from_vec([2], vec![1.0f32, 2.0]).unwrap();
    assert!(refused(outside.record_stream(stream)));
    // No bytes, so there is nothing to wait for.
    Tensor::zeros([0], DType::F32).unwrap().record_stream(stream).unwrap();
    let honoured = RecordingMock::new(Direct::new(System::new())).0.into_ref().erase();
    let tensor = Tensor::zeros([4], TensorOptions::new().allocator(&honoured)).unwrap();
    tensor.record_stream(stream).unwrap();
    assert!(tensor.storage().unwrap().block().unwrap().stream_uses().eq([stream]));
}

#[test]
fn another_processs_memory_is_marked() {
    let storage = Storage::new(64, &TensorOptions::new()).unwrap();
    storage.mark_foreign_process();
    assert!(storage.write().is_ok() && storage.is_foreign_process());
    assert!(matches!(storage.resize(128), Err(Error::ForeignProcess { operation: "resizing" })));
    assert!(matches!(storage.swap_data(&storage.clone()), Err(Error::ForeignProcess { .. })));
}

#[test]
fn swapped_memory_is_seen_by_all_tensors() {
    let (first, second) =
        (Tensor::full([4], 1, DType::U8).unwrap(), Tensor::full([8], 2, DType::U8).unwrap());
    let view = first.narrow(0, 1, 2).unwrap();
    first.storage().unwrap().swap_data(second.storage().unwrap()).unwrap();
    assert_eq!(view.to_vec::<u8>().unwrap(), [2, 2]);
    assert!(second.to_vec::<u8>().is_err(), "four bytes are left for eight elements");
    let reader = view.as_slice::<u8>().unwrap();
    assert!(first.storage().unwrap().swap_data(second.storage().unwrap()).is_err());
    drop(reader);
}

#[test]
fn sizes_that_come_late() {
    let storage = Storage::unbound(&TensorOptions::new().kind(MemoryKind::Workspace)).unwrap();
    assert!(
        matches!(storage.read(), Err(Error::Unbound { .. }))
            && matches!(storage.write(), Err(Error::Unbound { .. }))
    );
    assert!(matches!(storage.resize(10), Err(Error::Unbound { .. })));
    storage.bind(100).unwrap();
    assert!(matches!(storage.bind(100), Err(Error::AlreadyBound)));
    storage.write().unwrap().fill(3);
    assert_eq!((storage.nbytes(), storage.memory_kind()), (100, MemoryKind::Workspace));
}

#[test]
fn blocks_become_storages() {
    let context = Context::new();
    let block: Block = context.allocate(Device::CPU, &Request::new(100).kind(MemoryKind::Workspace)).unwrap();
    let storage = Storage::from_block(block);
    assert_eq!(
        (storage.nbytes(), storage.memory_kind(), storage.is_resizable()),
        (100, MemoryKind::Workspace, true)
    );
    drop(context);
    storage.write().unwrap().fill(1);
}

#[test]
fn what_cannot_be_written_never_is() {
    static WORDS: [u32; 4] = [1, 2, 3, 4];
    let memory = || {
        // SAFETY: the words are static, and are not written: the storage refuses.
        let storage = unsafe { Storage::borrowed(NonNull::from(&WORDS).cast(), 16, MemoryKind::Persistent) };
        storage.mark_immutable("a constant");
        storage
    };
    let storage = memory();
    storage.allow_access();
    assert!(matches!(storage.write(), Err(Error::ReadOnly { .. })) && storage.is_read_only());
    assert!(storage.as_mut_ptr().is_err());
    let clone = storage.lazy_clone().unwrap();
    clone.write().unwrap().fill(0);
    assert_eq!(storage.read().unwrap()[0], 1);
    let other = Storage::new(16, &TensorOptions::new()).unwrap();
    assert!(matches!(other.swap_data(&storage), Err(Error::ReadOnly { .. })));
    other.write().unwrap().fill(9);
    assert_eq!(WORDS, [1, 2, 3, 4]);
}

#[test]
fn what_is_immutable_is_not_resized_into_what_is_not() {
    let storage = || Storage::new(100, &TensorOptions::new()).unwrap();
    let (constant, other) = (storage(), storage());
    constant.mark_immutable("a constant");
    let refused = |storage: &Storage| {
        let result = [0, 50, 100, 100_000].map(|bytes| storage.resize(bytes).and(storage.write().map(drop)));
        let is_read_only = |result| match result {
            Err(Error::ReadOnly { reason }) => reason.as_deref() == Some("a constant"),
            _ => false,
        };
        !storage.is_resizable() && result.into_iter().all(is_read_only)
    };
    assert!(refused(&constant) && other.is_resizable());
    // Nor is its memory replaced or released: it is read without a guard that would see that.
    let is_refused = |result| matches!(result, Err(Error::ReadOnly { reason: Some(_) }));
    assert!(is_refused(constant.swap_data(&other)) && is_refused(other.swap_data(&constant)));
    assert!(is_refused(constant.clear()) && is_refused(constant.reset()));
    assert_eq!((constant.nbytes(), constant.version()), (100, 0));
    other.write().unwrap().fill(1);
    // It can be inspected, even if access is refused.
    constant.refuse_access("later");
    assert!(constant.read().is_err() && constant.capacity().is_ok() && constant.would_free().unwrap() > 0);
    let constant = constant.into_block().unwrap_err();
    assert!(constant.block().is_ok());
}

#[test]
fn a_mark_comes_during_accesses() {
    let storage = Storage::new(100, &TensorOptions::new().zeroed()).unwrap();
    let part = storage.slice(0..10).unwrap();
    // Counted before, and uncounted after.
    let (whole, reader) = (storage.read().unwrap(), part.read().unwrap());
    storage.mark_immutable("a constant");
    drop((whole, reader));
    assert_eq!((storage.read().unwrap().len(), part.read().unwrap().len()), (100, 10));

    let storage = Storage::new(100, &TensorOptions::new().zeroed()).unwrap();
    let (part, rest) = (storage.slice(0..10).unwrap(), storage.slice(10..20).unwrap());
    let mut writer = part.write().unwrap();
    storage.mark_immutable("a constant");
    assert!(matches!(storage.read(), Err(Error::Borrowed { by: Borrower::Writer })));
    assert!(matches!(part.read(), Err(Error::Borrowed { by: Borrower::Writer })));
    assert_eq!(rest.read().unwrap().len(), 10);
    assert!(matches!(rest.write(), Err(Error::ReadOnly { .. })));
    writer.fill(7);
    drop(writer);
    assert_eq!(storage.read().unwrap()[..12], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
    assert!(part.write().is_err());
}

#[test]
fn a_clone_of_an_empty_storage_grows_where_the_storage_does() {
    let direct = Direct::new(System::new()).into_ref().erase();
    let storage = Storage::new(64, &TensorOptions::new().allocator(&direct)).unwrap();
    storage.reset().unwrap();
    let clone = storage.lazy_clone().unwrap();
    for storage in [storage, clone] {
        storage.resize(64).unwrap();
        assert!(storage.block().unwrap().is_from(&direct));
    }
}
