//! A storage knows its context: what it needs later comes from there, whichever context is current.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::backing::System;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator as _, Request};
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::{Error, Storage, Tensor, TensorOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const KIND: MemoryKind = MemoryKind::KvCache;

fn context() -> Context {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.register(Device::CPU, MemoryKind::Default, Direct::new(System::new()).into_ref()).unwrap();
    context
}

/// Returns a context with room for `bytes` bytes of [`KIND`].
fn budgeted(bytes: u64) -> Context {
    let context = context();
    context.set_budget(Device::CPU, KIND, Budget::hard(bytes).strict()).unwrap();
    context
}

fn live(context: &Context) -> u64 {
    context.stats(Device::CPU).kind(KIND).live_bytes
}

fn tensor(context: &Context, bytes: usize) -> Tensor {
    Tensor::full([bytes], 3, TensorOptions::from(DType::U8).kind(KIND).context(context)).unwrap()
}

fn is_out_of_memory<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Alloc(error)) if error.is_out_of_memory())
}

/// Registers a callback that drops `held`, and counts its calls.
fn drops_on_pressure<T: Send + 'static>(context: &Context, held: T) -> Arc<AtomicUsize> {
    let (held, calls) = (Mutex::new(Some(held)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    context.on_pressure(
        KIND,
        Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            drop(held.lock().expect("no panic").take());
            0
        }),
    );
    calls
}

#[test]
fn a_first_write_is_within_the_budget_of_the_memorys_context() {
    let (own, other) = (budgeted(6000), context());
    let first = tensor(&own, 4096);
    let second = other.scope(|| first.lazy_clone()).unwrap();
    assert!(is_out_of_memory(&other.scope(|| second.fill_(4))));
    own.set_budget(Device::CPU, KIND, Budget::hard(10_000).strict()).unwrap();
    other.scope(|| second.fill_(4)).unwrap();
    assert_eq!((live(&own), live(&other)), (8192, 0));
    assert_eq!((first.to_vec::<u8>().unwrap()[0], second.to_vec::<u8>().unwrap()[0]), (3, 4));
}

#[test]
fn growth_and_binding_are_within_the_budget_of_the_memorys_context() {
    let (own, other) = (budgeted(7000), context());
    let options = TensorOptions::new().kind(KIND).context(&own);
    let storage = Storage::new(2048, &options).unwrap();
    let unbound = Storage::unbound(&options).unwrap();
    let clone = storage.lazy_clone().unwrap();
    other.scope(|| {
        assert!(is_out_of_memory(&storage.resize(8192)) && is_out_of_memory(&unbound.bind(8192)));
        unbound.bind(1024).unwrap();
        storage.resize(3000).unwrap();
    });
    assert!(live(&own) >= 3000 + 1024 + 2048 && live(&other) == 0);
    drop((unbound, clone));
    other.scope(|| storage.reset().and_then(|()| storage.resize(4096))).unwrap();
    assert_eq!((live(&own), live(&other)), (4096, 0));
}

/// The block of a user, too: its allocator leads to the context.
#[test]
fn a_block_leads_to_its_context() {
    let (own, other) = (budgeted(6000), context());
    let block = own.allocate(Device::CPU, &Request::new(4096).kind(KIND)).unwrap();
    let storage = other.scope(|| Storage::from_block(block));
    assert!(is_out_of_memory(&other.scope(|| storage.resize(8192))));
    let block = own.allocate(Device::CPU, &Request::new(1024).kind(KIND)).unwrap();
    let bound = Storage::unbound(&TensorOptions::new().kind(KIND).context(&other)).unwrap();
    bound.bind_block(block).unwrap();
    assert!(is_out_of_memory(&other.scope(|| bound.resize(8192))));
}

/// A callback of the ladder drops the other owner: the memory is the writer's then, without a copy.
#[test]
fn a_copy_is_not_made_when_a_callback_made_it_unnecessary() {
    let own = budgeted(6000);
    let mut tensor = tensor(&own, 4096);
    let address = tensor.storage().unwrap().as_ptr().unwrap();
    let calls = drops_on_pressure(&own, tensor.lazy_clone().unwrap());
    // It would free more.
    let later = drops_on_pressure(&own, ());
    context().scope(|| tensor.fill_(5)).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(later.load(Ordering::Relaxed), 0, "the ladder went on");
    assert_eq!((tensor.storage().unwrap().as_ptr().unwrap(), live(&own)), (address, 4096));
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [5; 4096]);
    let calls = drops_on_pressure(&own, tensor.lazy_clone().unwrap());
    tensor.make_unique().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!((tensor.storage().unwrap().as_ptr().unwrap(), live(&own)), (address, 4096));
}

/// Growing shared memory needs a copy; memory that is no longer shared may grow where it is.
#[test]
fn growth_looks_again_after_a_callback() {
    let own = Context::with(Device::CPU, AllocatorConfig::new());
    own.register(Device::CPU, MemoryKind::Default, Bfc::new(System::new()).into_ref()).unwrap();
    own.set_budget(Device::CPU, KIND, Budget::hard(10_000).strict()).unwrap();
    let tensor = tensor(&own, 4096);
    let address = tensor.storage().unwrap().as_ptr().unwrap();
    let calls = drops_on_pressure(&own, tensor.lazy_clone().unwrap());
    // Two blocks of 4,096 and 8,192 bytes do not fit, one does.
    context().scope(|| tensor.storage().unwrap().resize(8192)).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!((tensor.storage().unwrap().as_ptr().unwrap(), live(&own)), (address, 8192));
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [3; 4096]);
}

/// A context may own tensors of itself: neither is kept alive by the other.
#[test]
fn a_context_that_holds_its_own_tensors_is_dropped() {
    let own = context();
    let id = own.id();
    let kept = tensor(&own, 100);
    let unbound = Storage::unbound(&TensorOptions::new().context(&own)).unwrap();
    drops_on_pressure(&own, (kept.clone(), unbound.clone()));
    drop(own);
    assert!(id.context().is_none());
    // The current context takes its place.
    let clone = kept.lazy_clone().unwrap();
    clone.fill_(1).unwrap();
    unbound.bind(100).unwrap();
    assert_eq!(kept.to_vec::<u8>().unwrap(), [3; 100]);
}

#[test]
fn make_unique_copies_what_is_shared_only() {
    let (own, other) = (context(), context());
    let mut tensor = tensor(&own, 100);
    let address = |tensor: &Tensor| tensor.storage().unwrap().as_ptr().unwrap();
    let before = address(&tensor);
    tensor.make_unique().unwrap();
    assert_eq!(address(&tensor), before);
    // A clone of the handle, a view, a lazy clone.
    let clone = tensor.clone();
    other.scope(|| tensor.make_unique()).unwrap();
    assert_ne!(address(&tensor), before);
    assert_eq!((address(&clone), live(&other)), (before, 0));
    let mut view = tensor.narrow(0, 10, 20).unwrap();
    view.make_unique().unwrap();
    view.fill_(7).unwrap();
    assert_eq!((view.storage().unwrap().nbytes(), tensor.to_vec::<u8>().unwrap()), (20, vec![3; 100]));
    let (lazy, before) = (tensor.lazy_clone().unwrap(), address(&tensor));
    tensor.make_unique().unwrap();
    assert!(
        address(&tensor) != before
            && address(&lazy) == before
            && !tensor.storage().unwrap().is_copy_on_write()
    );
    // Immutable memory is copied, and the copy is not immutable.
    tensor.storage().unwrap().mark_immutable("weights");
    tensor.make_unique().unwrap();
    tensor.fill_(9).unwrap();
    assert!(matches!(Tensor::undefined().make_unique(), Err(Error::Undefined)));
    let held = view.as_mut_slice::<u8>().unwrap();
    let mut same = view.clone();
    assert!(matches!(same.make_unique(), Err(Error::Borrowed { .. })));
    drop(held);
}
