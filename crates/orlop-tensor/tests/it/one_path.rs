//! Every function that creates a tensor makes one request, with the options that were set; handles and views
//! make none, and the last of them returns the block.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use crate::mock_device::{FAR, with_device};
use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, AllocatorRef, Tag};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Alignment, DType, Device, MemoryFormat, MemoryKind};
use orlop_tensor::{Result, Storage, Tensor, TensorOptions};
use orlop_testkit::recording_mock::{CallLog, RecordedCall, RecordingMock};
use std::sync::Arc;

fn recorded() -> (AllocatorRef, Arc<CallLog>) {
    let (mock, log) = RecordingMock::new(Direct::new(System::new()));
    (mock.into_ref().erase(), log)
}

type Creation = fn(TensorOptions<'_>) -> Result<Tensor>;

type Derivation<'a> = &'a dyn Fn() -> Result<Tensor>;

/// Each creates six elements of `F32`.
const CREATIONS: [(&str, Creation); 10] = [
    ("empty", |options| Tensor::empty([2, 3], options)),
    ("empty_strided", |options| Tensor::empty_strided([2, 3], &[1, 2], options)),
    ("zeros", |options| Tensor::zeros([2, 3], options)),
    ("ones", |options| Tensor::ones([2, 3], options)),
    ("full", |options| Tensor::full([2, 3], 4.0, options)),
    ("arange", |options| Tensor::arange(0.0, 6.0, 1.0, options)),
    ("eye", |options| Tensor::eye(2, 3, options)),
    ("from_slice_in", |options| Tensor::from_slice_in([2, 3], &[1.0f32; 6], options)),
    ("empty_like_with", |options| elsewhere().empty_like_with(options)),
    ("to", |options| elsewhere().to(options)),
];

#[cfg(feature = "rand")]
const RANDOM: [(&str, Creation); 2] = [
    ("rand", |options| Tensor::rand([2, 3], 1, options)),
    ("randn", |options| Tensor::randn([2, 3], 1, options)),
];
#[cfg(not(feature = "rand"))]
const RANDOM: [(&str, Creation); 0] = [];

fn elsewhere() -> Tensor {
    Tensor::zeros([2, 3], DType::F32).unwrap()
}

#[test]
fn each_creation_is_one_request_with_all_options() {
    let (page, tag) = (Alignment::new(4096).unwrap(), Tag::new("one path"));
    for (name, create) in CREATIONS.into_iter().chain(RANDOM) {
        let (allocator, log) = recorded();
        let options = TensorOptions::from(DType::F32).kind(MemoryKind::KvCache).align(page).tag(tag);
        let tensor = create(options.allocator(&allocator)).unwrap();
        let calls = log.take();
        let [RecordedCall::Allocated { request, id, address, .. }] = calls[..] else {
            panic!("{name}: {calls:?}")
        };
        let properties = (request.kind, request.align, request.tag);
        assert_eq!(properties, (MemoryKind::KvCache, page, tag), "{name}");
        // The capacity is a multiple of the alignment.
        assert_eq!((request.bytes, tensor.nbytes()), (4096, 24), "{name}");
        assert_eq!(
            (tensor.memory_kind(), tensor.storage().unwrap().as_ptr().unwrap().addr()),
            (MemoryKind::KvCache, address),
            "{name}"
        );
        drop(tensor);
        let calls = log.take();
        let [RecordedCall::Returned { id: returned, .. }] = calls[..] else { panic!("{name}: {calls:?}") };
        assert_eq!(returned, id, "{name}");
    }
}

/// What is made from a tensor has its kind, and is counted under it in the current context.
#[test]
fn what_is_made_from_a_tensor_has_its_kind() {
    let kind = MemoryKind::KvCache;
    let options = TensorOptions::from(DType::F32).kind(kind);
    let tensor = Tensor::ones([3, 4], options).unwrap();
    let turned = tensor.t().unwrap();
    let derivations: [(&str, Derivation<'_>); 8] = [
        ("empty_like", &|| tensor.empty_like()),
        ("empty_like_in", &|| tensor.empty_like_in(MemoryFormat::Contiguous, DType::F64)),
        ("duplicate", &|| tensor.duplicate()),
        ("duplicate_in", &|| turned.duplicate_in(MemoryFormat::Contiguous)),
        ("contiguous", &|| turned.contiguous(MemoryFormat::Contiguous)),
        ("to_dtype", &|| tensor.to_dtype(DType::I64)),
        ("reshape", &|| turned.reshape([12])),
        ("lazy_clone", &|| {
            let clone = tensor.lazy_clone()?;
            clone.fill_(2.0)?;
            Ok(clone)
        }),
    ];
    for (name, derive) in derivations {
        let context = Context::with(Device::CPU, AllocatorConfig::new());
        let made = context.scope(derive).unwrap();
        assert!(!made.is_alias_of(&tensor), "{name}");
        assert_eq!(
            (made.memory_kind(), made.storage().unwrap().block().unwrap().kind),
            (kind, kind),
            "{name}"
        );
        let stats = context.stats(Device::CPU);
        assert_eq!(stats.kind(MemoryKind::Default).live_bytes, 0, "{name}");
        if name != "lazy_clone" {
            assert!(stats.kind(kind).live_bytes >= 48, "{name}");
        }
    }
}

#[test]
fn handles_and_views_allocate_nothing_and_the_last_one_returns_the_block() {
    let (allocator, log) = recorded();
    let tensor = Tensor::zeros([4, 6], TensorOptions::from(DType::F32).allocator(&allocator)).unwrap();
    let RecordedCall::Allocated { id, address, .. } = log.take()[0] else { panic!("no request") };
    let clone = tensor.clone();
    assert_eq!((tensor.use_count(), clone.use_count()), (2, 2));
    let views = [
        tensor.view([24]).unwrap(),
        tensor.narrow(0, 1, 2).unwrap(),
        clone.t().unwrap(),
        tensor.select(1, 3).unwrap().unsqueeze(0).unwrap(),
        tensor.view_dtype(DType::U8).unwrap(),
    ];
    assert!(views.iter().all(|view| view.is_alias_of(&tensor)));
    assert_eq!(tensor.storage().unwrap().use_count(), 6, "of the tensor, with two handles, and five views");
    drop((tensor, clone));
    let [first, rest @ ..] = views;
    drop(rest);
    assert_eq!(log.take(), []);
    drop(first);
    let calls = log.take();
    let [RecordedCall::Returned { id: returned, address: at, accepted: true, .. }] = calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!((returned, at), (id, address));
}

#[test]
fn nothing_is_allocated_for_no_elements_and_the_place_is_known() {
    let (allocator, log) = recorded();
    let options = TensorOptions::from(DType::F64).kind(MemoryKind::KvCache).allocator(&allocator);
    for sizes in [&[0usize][..], &[3, 0, 5], &[0, usize::MAX >> 8]] {
        let tensor = Tensor::zeros(sizes, options).unwrap();
        assert_eq!((tensor.device(), tensor.memory_kind()), (Device::CPU, MemoryKind::KvCache));
        assert_eq!((tensor.nbytes(), tensor.to_vec::<f64>().unwrap().len()), (0, 0));
    }
    let storage = Storage::new(0, &options).unwrap();
    assert_eq!((storage.device(), storage.memory_kind()), (Device::CPU, MemoryKind::KvCache));
    assert!(storage.is_resizable());
    let late = Storage::unbound(&options).unwrap();
    assert_eq!(log.take(), []);
    // What is resizable has its allocator from the beginning.
    storage.resize(64).unwrap();
    late.bind(32).unwrap();
    let bytes: Vec<_> = log
        .take()
        .iter()
        .map(|call| match call {
            RecordedCall::Allocated { request, .. } => (request.bytes, request.kind),
            other => panic!("{other:?}"),
        })
        .collect();
    // At the default alignment, of which the capacity is a multiple.
    assert_eq!(bytes, [(64, MemoryKind::KvCache), (64, MemoryKind::KvCache)]);
    with_device(|_| {
        let tensor = Tensor::empty([0, 2], TensorOptions::new().device(FAR)).unwrap();
        assert_eq!((tensor.device(), tensor.nbytes()), (FAR, 0));
        assert_eq!(Storage::new(0, &TensorOptions::new().device(FAR)).unwrap().device(), FAR);
    });
}

#[test]
fn the_default_tensor_is_undefined() {
    let nothing = Tensor::default();
    assert!(!nothing.is_defined() && !Tensor::undefined().clone().is_defined());
    assert!(nothing.storage().is_err() && nothing.fill_(1.0).is_err() && nothing.to_vec::<f32>().is_err());
    assert!(Tensor::zeros([0], DType::F32).unwrap().is_defined());
}
