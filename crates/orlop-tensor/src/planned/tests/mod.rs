//! What can be done with a tensor before, during and after its lifetime.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod attacks;
mod ends;
mod random;
mod stray;

use super::*;
use crate::{Borrower, Error, Unresizable};
use orlop_alloc::Request;
use orlop_context::Context;
use orlop_core::{DType, Layout, Shape};
use std::thread;

fn memory_of(bytes: usize, parts: &[PlannedPart]) -> Result<PlannedMemory, PlannedError> {
    let block = Context::new().allocate(Device::CPU, &Request::new(bytes)).unwrap();
    PlannedMemory::new(block, parts)
}

fn floats(count: usize, lifetime: Range<u64>) -> PlannedTensor {
    PlannedTensor::new(Layout::contiguous(Shape::new(&[count]).unwrap()), DType::F32, lifetime)
}

/// `a`, then `b` beside it, then `c` over `a`.
fn three() -> PlannedMemory {
    let parts = [(0, 0..2), (256, 1..3), (0, 2..4)]
        .map(|(offset, lifetime)| PlannedPart::new(offset, 256, [floats(64, lifetime)]));
    memory_of(512, &parts).unwrap()
}

fn address(tensor: &Tensor) -> usize {
    tensor.storage().unwrap().block().unwrap().address()
}

#[test]
fn tensors_are_lent_during_their_lifetimes() {
    let mut memory = three();
    for _ in 0..3 {
        memory.tensor(0).unwrap().fill_(1.0).unwrap();
        assert!(matches!(memory.tensor(1), Err(PlannedError::NotLive { tensor: 1, now: 0, .. })));
        memory.advance(1).unwrap();
        let (a, b) = (memory.tensor(0).unwrap(), memory.tensor(1).unwrap());
        let (read, mut write) = (a.as_slice::<f32>().unwrap(), b.as_mut_slice::<f32>().unwrap());
        write.copy_from_slice(&read);
        drop((read, write));
        memory.advance(2).unwrap();
        memory.tensor(2).unwrap().fill_(2.0).unwrap();
        assert_eq!(memory.tensor(1).unwrap().to_vec::<f32>().unwrap(), [1.0; 64]);
        memory.advance(3).unwrap();
        assert!(matches!(memory.tensor(0), Err(PlannedError::NotLive { .. })));
        assert_eq!(memory.tensor(2).unwrap().to_vec::<f32>().unwrap(), [2.0; 64]);
        assert!(matches!(memory.tensor(9), Err(PlannedError::Unknown { tensor: 9, tensors: 3 })));
        assert!(matches!(memory.advance(1), Err(PlannedError::Backwards { step: 1, now: 3 })));
        memory.restart().unwrap();
    }
}

#[test]
fn clones_and_views_end_with_the_lifetime() {
    let mut memory = three();
    let clone = memory.tensor(0).unwrap().clone();
    let view = clone.narrow(0, 3, 4).unwrap();
    clone.fill_(1.0).unwrap();
    memory.advance(1).unwrap();
    assert_eq!(view.to_vec::<f32>().unwrap(), [1.0; 4]);
    memory.advance(2).unwrap();
    for tensor in [&clone, &view] {
        assert!(matches!(tensor.as_slice::<f32>(), Err(Error::Unbound { .. })));
        assert!(matches!(tensor.fill_(1.0), Err(Error::Unbound { .. })));
        assert!(tensor.to_vec::<f32>().is_err());
        assert!(tensor.storage().unwrap().clone().into_block().is_err());
    }
    memory.tensor(2).unwrap().fill_(2.0).unwrap();
    // The tensor is a new one in the next run, at the same place.
    memory.restart().unwrap();
    let first = memory.tensor(0).unwrap();
    assert!(!first.storage().unwrap().is_alias_of(clone.storage().unwrap()));
    first.fill_(3.0).unwrap();
    // A revoked storage can be bound to memory of its own.
    clone.storage().unwrap().bind(256).unwrap();
    clone.fill_(5.0).unwrap();
    assert_eq!(memory.tensor(0).unwrap().to_vec::<f32>().unwrap(), [3.0; 64]);
}

#[test]
fn a_clone_of_the_tensor_alone_is_revoked_too() {
    let mut memory = three();
    let clone = memory.tensor(0).unwrap().clone();
    memory.advance(2).unwrap();
    assert!(matches!(clone.fill_(1.0), Err(Error::Unbound { .. })));
}

#[test]
fn the_clock_waits_for_accesses() {
    let mut memory = three();
    let clone = memory.tensor(0).unwrap().clone();
    let slice = clone.as_slice::<f32>().unwrap();
    let error = memory.advance(2).unwrap_err();
    let source = Error::Borrowed { by: Borrower::Readers };
    assert_eq!(error.to_string(), "tensor 0 is in use after its last step");
    assert!(
        matches!(error, PlannedError::InUse { tensor: 0, source: by } if by.to_string() == source.to_string())
    );
    assert_eq!(memory.now(), 0);
    assert!(memory.tensor(2).is_err());
    drop(slice);
    memory.advance(2).unwrap();
    memory.tensor(2).unwrap().fill_(1.0).unwrap();
}

#[test]
fn addresses_that_were_handed_out_keep_the_memory() {
    let mut memory = three();
    // An address alone: nothing has a handle, so using it is the caller's own risk.
    memory.tensor(0).unwrap().storage().unwrap().as_mut_ptr().unwrap();
    memory.advance(2).unwrap();
    memory.restart().unwrap();
    // With a handle it may be in use.
    let clone = memory.tensor(0).unwrap().clone();
    clone.storage().unwrap().as_mut_ptr().unwrap();
    assert!(matches!(memory.advance(2), Err(PlannedError::InUse { source: Error::MemoryInUse, .. })));
    drop(clone);
    memory.advance(2).unwrap();
    memory.restart().unwrap();
    // A share of the block.
    let block = memory.tensor(0).unwrap().storage().unwrap().block().unwrap();
    assert!(matches!(memory.advance(2), Err(PlannedError::InUse { source: Error::MemoryInUse, .. })));
    drop(block);
    memory.advance(2).unwrap();
}

#[cfg(feature = "dlpack")]
#[test]
fn exports_keep_the_memory() {
    let mut memory = three();
    let exported = crate::interchange::dlpack::export(memory.tensor(0).unwrap()).unwrap();
    assert!(matches!(memory.advance(2), Err(PlannedError::InUse { source: Error::MemoryInUse, .. })));
    drop(exported);
    memory.advance(2).unwrap();
}

#[test]
fn restrictions_end_with_the_lifetime() {
    let mut memory = three();
    memory.tensor(0).unwrap().storage().unwrap().mark_immutable("a test");
    assert!(matches!(memory.tensor(0).unwrap().fill_(1.0), Err(Error::ReadOnly { .. })));
    memory.advance(2).unwrap();
    memory.restart().unwrap();
    memory.tensor(0).unwrap().fill_(1.0).unwrap();
}

#[test]
fn leaked_guards_end_with_the_lifetime() {
    let mut memory = three();
    std::mem::forget(memory.tensor(0).unwrap().as_mut_slice::<f32>().unwrap());
    memory.tensor(0).unwrap().storage().unwrap().warn_on_write("a test");
    assert!(matches!(memory.tensor(0).unwrap().fill_(1.0), Err(Error::Borrowed { .. })));
    memory.advance(2).unwrap();
    memory.restart().unwrap();
    memory.tensor(0).unwrap().fill_(1.0).unwrap();
}

#[test]
fn lazy_clones_are_copies() {
    let mut memory = three();
    memory.tensor(0).unwrap().fill_(1.0).unwrap();
    let clone = memory.tensor(0).unwrap().storage().unwrap().lazy_clone().unwrap();
    memory.advance(2).unwrap();
    memory.tensor(2).unwrap().fill_(2.0).unwrap();
    assert_eq!(clone.read().unwrap()[..4], 1.0f32.to_ne_bytes());
}

#[test]
fn planned_memory_stays_where_it_is() {
    let memory = three();
    let planned = memory.tensor(0).unwrap().storage().unwrap();
    let other = Storage::new(256, &crate::TensorOptions::new()).unwrap();
    let refused = |result| matches!(result, Err(Error::NotResizable { why: Unresizable::Planned }));
    assert!(refused(planned.resize(100)) && refused(planned.clear()));
    assert!(refused(planned.swap_data(&other)) && refused(other.swap_data(planned)));
    assert!(planned.clone().into_block().is_err());
    assert_eq!(planned.nbytes(), 256);
}

#[test]
fn tensors_of_one_part_share_its_storage() {
    let square = Layout::contiguous(Shape::new(&[8, 8]).unwrap());
    let tensors = [floats(64, 0..2), PlannedTensor::new(square, DType::F32, 0..3), floats(64, 2..4)];
    let mut memory = memory_of(256, &[PlannedPart::new(0, 256, tensors)]).unwrap();
    memory.tensor(0).unwrap().fill_(1.0).unwrap();
    assert_eq!(memory.tensor(1).unwrap().to_vec::<f32>().unwrap(), [1.0; 64]);
    let read = memory.tensor(0).unwrap().as_slice::<f32>().unwrap();
    assert!(matches!(memory.tensor(1).unwrap().fill_(2.0), Err(Error::Borrowed { .. })));
    drop(read);
    memory.advance(2).unwrap();
    // The output in place has the input's bytes.
    assert_eq!(memory.tensor(2).unwrap().to_vec::<f32>().unwrap(), [1.0; 64]);
    let clone = memory.tensor(1).unwrap().clone();
    memory.advance(3).unwrap();
    // The part goes on with another tensor, whose clones may not end.
    clone.fill_(2.0).unwrap();
    assert_eq!(memory.tensor(2).unwrap().to_vec::<f32>().unwrap(), [2.0; 64]);
    memory.restart().unwrap();
    assert!(matches!(clone.fill_(2.0), Err(Error::Unbound { .. })));
    memory.tensor(0).unwrap().fill_(1.0).unwrap();
}

#[test]
fn some_tensors_never_end() {
    let parts =
        [PlannedPart::new(0, 256, [floats(64, 0..u64::MAX)]), PlannedPart::new(256, 256, [floats(64, 0..1)])];
    let mut memory = memory_of(512, &parts).unwrap();
    memory.tensor(0).unwrap().fill_(1.0).unwrap();
    let clone = memory.tensor(0).unwrap().clone();
    for _ in 0..3 {
        memory.restart().unwrap();
        memory.advance(5).unwrap();
        assert!(memory.tensor(1).is_err());
        assert_eq!(clone.to_vec::<f32>().unwrap(), [1.0; 64]);
    }
    // Another division ends it.
    memory.divide(&[PlannedPart::new(128, 256, [floats(64, 0..1)])]).unwrap();
    assert!(matches!(clone.fill_(1.0), Err(Error::Unbound { .. })));
    memory.tensor(0).unwrap().fill_(2.0).unwrap();
    // A refused one changes nothing.
    assert!(memory.divide(&[PlannedPart::new(512, 4, [floats(1, 0..1)])]).is_err());
    assert_eq!(memory.tensor(0).unwrap().to_vec::<f32>().unwrap(), [2.0; 64]);
}

#[test]
fn invalid_parts_are_refused() {
    let refused = |parts: &[PlannedPart]| memory_of(512, parts).unwrap_err();
    let part = |offset, bytes, tensor: PlannedTensor| PlannedPart::new(offset, bytes, [tensor]);
    let outside = [part(256, 512, floats(64, 0..1))];
    assert!(matches!(refused(&outside), PlannedError::OutsideBlock { part: 0, bytes: 512, .. }));
    let outside = [part(usize::MAX, 2, floats(0, 0..1))];
    assert!(matches!(refused(&outside), PlannedError::OutsideBlock { .. }));
    let large = [part(0, 100, floats(64, 0..1))];
    assert!(matches!(refused(&large), PlannedError::OutsidePart { tensor: 0, .. }));
    let crooked = [part(2, 256, floats(64, 0..1))];
    assert!(matches!(refused(&crooked), PlannedError::Misaligned { tensor: 0, offset: 2, .. }));
    let never = [part(0, 256, floats(64, 3..3))];
    assert!(matches!(refused(&never), PlannedError::EmptyLifetime { tensor: 0, .. }));
    let at_once = [part(0, 256, floats(64, 0..2)), part(128, 256, floats(64, 1..3))];
    assert!(matches!(refused(&at_once), PlannedError::Plan(_)));
}

#[test]
fn tensors_without_elements_or_parts_without_tensors() {
    let parts = [PlannedPart::new(512, 0, [floats(0, 0..1)]), PlannedPart::new(0, 512, [])];
    let mut memory = memory_of(512, &parts).unwrap();
    assert_eq!(memory.tensor(0).unwrap().to_vec::<f32>().unwrap(), [0.0f32; 0]);
    memory.advance(7).unwrap();
    assert!(memory.tensor(0).is_err());
}

/// A tensor of the caller gets planned memory, and loses it with the lifetime.
#[test]
fn a_storage_is_bound_in_place() {
    let mut memory = three();
    let mine = Tensor::full([64], 9.0, DType::F32).unwrap();
    let view = mine.narrow(0, 8, 4).unwrap();
    let storage = mine.storage().unwrap();
    let bound = |error| matches!(error, Err(PlannedError::InUse { source: Error::AlreadyBound, .. }));
    assert!(bound(memory.bind(0, storage)));
    let own = storage.unbind().unwrap();
    assert!(matches!(memory.bind(2, storage), Err(PlannedError::NotLive { tensor: 2, .. })));
    let held = memory.tensor(0).unwrap().clone();
    assert!(matches!(memory.bind(0, storage), Err(PlannedError::InUse { source: Error::MemoryInUse, .. })));
    drop(held);
    for _ in 0..2 {
        memory.bind(0, storage).unwrap();
        mine.fill_(1.0).unwrap();
        assert_eq!(memory.tensor(0).unwrap().to_vec::<f32>().unwrap(), [1.0; 64]);
        assert!(storage.unbind().is_err() && storage.clear().is_err());
        memory.advance(2).unwrap();
        assert!(matches!(view.fill_(0.0), Err(Error::Unbound { .. })));
        memory.tensor(2).unwrap().fill_(2.0).unwrap();
        memory.restart().unwrap();
        memory.tensor(0).unwrap().fill_(3.0).unwrap();
    }
    storage.bind_block(own).unwrap();
    assert_eq!(view.to_vec::<f32>().unwrap(), [9.0; 4]);
    memory.advance(5).unwrap();
}

/// What cannot be unbound or bound, with nothing lost.
#[test]
fn binding_has_conditions() {
    let mine = Tensor::full([64], 9.0, DType::F32).unwrap();
    let storage = mine.storage().unwrap();
    let read = mine.as_slice::<f32>().unwrap();
    assert!(matches!(storage.unbind(), Err(Error::Borrowed { .. })));
    drop(read);
    let lazy = storage.lazy_clone().unwrap();
    assert!(matches!(storage.unbind(), Err(Error::MemoryInUse)));
    drop(lazy);
    assert!(matches!(storage.slice(0..8).unwrap().unbind(), Err(Error::NotResizable { .. })));
    storage.refuse_writes("a test");
    assert!(matches!(storage.unbind(), Err(Error::ReadOnly { .. })));
    storage.allow_access();
    let block = storage.unbind().unwrap();
    assert!(matches!(storage.unbind(), Err(Error::Unbound { .. })));
    // Memory of the same allocator.
    storage.bind(256).unwrap();
    let refused = storage.bind_block(block).unwrap_err();
    assert!(matches!(refused.source, Error::AlreadyBound));
    drop(storage.unbind().unwrap());
    storage.bind_block(refused.block).unwrap();
    assert_eq!(mine.to_vec::<f32>().unwrap(), [9.0; 64]);
    storage.resize(512).unwrap();
}

/// Memory stays while a tensor exists, and is returned after that.
#[test]
fn tensors_keep_the_memory_alive() {
    let context = Context::new();
    let block = context.allocate(Device::CPU, &Request::new(512)).unwrap();
    let parts = [PlannedPart::new(0, 256, [floats(64, 0..1)])];
    let memory = PlannedMemory::new(block, &parts).unwrap();
    let clone = memory.tensor(0).unwrap().clone();
    drop(memory);
    let live = || context.stats(Device::CPU).totals.all.live_blocks();
    assert_eq!(live(), 1);
    clone.fill_(1.0).unwrap();
    assert_eq!(clone.to_vec::<f32>().unwrap(), [1.0; 64]);
    drop(clone);
    assert_eq!(live(), 0);
}

/// Threads hold clones beyond the lifetime, and use them whenever they can.
#[test]
fn threads_cannot_write_after_the_lifetime() {
    let mut memory = three();
    let rounds = if cfg!(miri) { 20 } else { 2000 };
    for round in 0..rounds {
        let clone = memory.tensor(0).unwrap().clone();
        let writer = thread::spawn(move || {
            let mut written = 0;
            while clone.fill_(1.0).is_ok() {
                written += 1;
            }
            written
        });
        while memory.advance(2).is_err() {
            thread::yield_now();
        }
        let c = memory.tensor(2).unwrap();
        c.fill_(2.0).unwrap();
        assert_eq!(c.to_vec::<f32>().unwrap(), [2.0; 64], "round {round}");
        writer.join().unwrap();
        memory.restart().unwrap();
    }
}

#[test]
fn the_address_is_the_planned_one() {
    let mut memory = three();
    let a = address(memory.tensor(0).unwrap());
    memory.advance(1).unwrap();
    assert_eq!(address(memory.tensor(1).unwrap()), a + 256);
    memory.advance(2).unwrap();
    assert_eq!(address(memory.tensor(2).unwrap()), a);
}
