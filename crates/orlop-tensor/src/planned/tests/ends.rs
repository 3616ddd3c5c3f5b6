//! The ends of tensors: what outlives them, what names them, and what a storage is afterwards.

use super::*;
use crate::TensorOptions;
use orlop_alloc::Allocator as _;
use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;

/// Clones and views of an output in place outlive its input, also while they are read, and end with it.
#[test]
fn an_output_in_place_outlives_its_input() {
    let tensors = [floats(64, 0..2).named("input"), floats(64, 1..4).named("output")];
    let parts = [PlannedPart::new(0, 256, tensors), PlannedPart::new(0, 256, [floats(64, 4..6)])];
    let mut memory = memory_of(256, &parts).unwrap();
    for _ in 0..2 {
        memory.tensor(0).unwrap().fill_(1.0).unwrap();
        memory.advance(1).unwrap();
        let clone = memory.tensor(1).unwrap().clone();
        let view = clone.narrow(0, 0, 8).unwrap();
        let read = clone.as_slice::<f32>().unwrap();
        memory.advance(2).unwrap();
        assert_eq!(*read, [1.0; 64]);
        drop(read);
        view.fill_(2.0).unwrap();
        assert_eq!(memory.tensor(1).unwrap().to_vec::<f32>().unwrap()[7..9], [2.0, 1.0]);
        memory.advance(4).unwrap();
        let error = view.fill_(3.0).unwrap_err().to_string();
        let expected = "the storage has no memory any more: step 4 revoked \"output\", whose last step was 3";
        assert_eq!(error, expected);
        assert!(clone.to_vec::<f32>().is_err());
        memory.tensor(2).unwrap().fill_(4.0).unwrap();
        memory.restart().unwrap();
    }
}

/// A clone of an input that has ended is revoked with its part, if nothing else is held.
#[test]
fn an_input_ends_with_its_part() {
    let parts = [PlannedPart::new(0, 256, [floats(64, 0..2), floats(64, 1..3)])];
    let mut memory = memory_of(256, &parts).unwrap();
    for _ in 0..2 {
        memory.advance(1).unwrap();
        let clone = memory.tensor(0).unwrap().clone();
        memory.advance(2).unwrap();
        memory.tensor(1).unwrap().fill_(2.0).unwrap();
        assert_eq!(clone.to_vec::<f32>().unwrap(), [2.0; 64]);
        memory.advance(3).unwrap();
        assert!(matches!(clone.to_vec::<f32>(), Err(Error::Unbound { .. })));
        memory.restart().unwrap();
        memory.tensor(0).unwrap().fill_(1.0).unwrap();
    }
}

#[test]
fn a_revoked_tensor_names_what_ended_it() {
    let mut memory = memory_of(256, &[PlannedPart::new(0, 256, [floats(64, 0..2)])]).unwrap();
    let of = |error: Error| match error {
        Error::Unbound { revoked: Some(revocation) } => revocation.as_ref().clone(),
        error => panic!("{error}"),
    };
    let clone = memory.tensor(0).unwrap().clone();
    memory.restart().unwrap();
    let revocation = of(clone.narrow(0, 0, 1).unwrap().item::<f32>().unwrap_err());
    let expected = Revocation { tensor: "tensor 0".into(), last_step: Some(1), by: RevokedBy::NextRun };
    assert_eq!(revocation, expected);
    let clone = memory.tensor(0).unwrap().clone();
    memory.divide(&[PlannedPart::new(0, 256, [floats(64, 0..u64::MAX)])]).unwrap();
    assert_eq!(of(clone.fill_(0.0).unwrap_err()).by, RevokedBy::NewPlan);
    let clone = memory.tensor(0).unwrap().clone();
    memory.divide(&[]).unwrap();
    let error = clone.fill_(0.0).unwrap_err().to_string();
    assert_eq!(error, "the storage has no memory any more: the next plan revoked tensor 0");
    // Memory of its own, and none again: nothing revoked that.
    clone.storage().unwrap().bind(256).unwrap();
    drop(clone.storage().unwrap().unbind().unwrap());
    assert!(matches!(clone.fill_(0.0), Err(Error::Unbound { revoked: None })));
}

/// After its time in a plan, a storage gets memory of its former allocator, and has the kind of that.
#[test]
fn the_kind_is_that_of_the_block() {
    let context = Context::new();
    let block = context.allocate(Device::CPU, &Request::new(256).kind(MemoryKind::Workspace)).unwrap();
    let mut memory = PlannedMemory::new(block, &[PlannedPart::new(0, 256, [floats(64, 0..1)])]).unwrap();
    let options = TensorOptions::from(DType::F32).kind(MemoryKind::KvCache).context(&context);
    let mine = Tensor::unbound([64], options).unwrap();
    let storage = mine.storage().unwrap();
    let kinds = || (storage.memory_kind(), storage.block().unwrap().kind);
    assert_eq!(kinds(), (MemoryKind::KvCache, MemoryKind::KvCache));
    memory.bind(0, storage).unwrap();
    assert_eq!(kinds(), (MemoryKind::Workspace, MemoryKind::Workspace));
    memory.advance(1).unwrap();
    let (kind, of_block) = kinds();
    assert_eq!(kind, of_block);
    storage.bind(256).unwrap();
    assert_eq!(kinds(), (MemoryKind::KvCache, MemoryKind::KvCache));
    assert_eq!(context.stats(Device::CPU).kind(MemoryKind::KvCache).live_bytes, 256);
}

/// Memory that is divided again and again is freed without a deep stack.
#[test]
fn parts_of_parts_are_freed_one_after_the_other() {
    let allocator = Direct::new(System::new()).into_ref();
    let mut block = allocator.allocate(&Request::new(256).align(Alignment::PLANNED)).unwrap();
    let whole = [PlannedPart::new(0, 256, [floats(64, 0..1)])];
    for _ in 0..if cfg!(miri) { 100 } else { 100_000 } {
        let memory = PlannedMemory::new(block, &whole).unwrap();
        let storage = memory.tensor(0).unwrap().storage().unwrap().clone();
        drop(memory);
        block = storage.into_block().unwrap();
    }
    assert_eq!(allocator.stats().live(), 256);
    drop(block);
    assert_eq!(allocator.stats().live(), 0);
}

/// Of a chain of tensors, each written over the one before, only those are searched that can have clones.
#[test]
fn a_chain_in_place_is_searched_where_it_is_live() {
    let count = 200;
    let chain: Vec<_> = (0..count).map(|step| floats(64, step..step + 2)).collect();
    let mut memory = memory_of(256, &[PlannedPart::new(0, 256, chain)]).unwrap();
    let slot = |step: u64| usize::try_from(step).unwrap();
    let lent = |memory: &PlannedMemory| memory.parts[0].lent.as_ref().map_or(0, |lent| lent.lent().len());
    for _ in 0..2 {
        let mut held = None;
        for step in 0..count {
            memory.advance(step).unwrap();
            let tensor = memory.tensor(slot(step)).unwrap();
            if step == count / 2 {
                held = Some(tensor.clone());
            }
            assert!(lent(&memory) <= 4, "{} at {step}", lent(&memory));
        }
        // It has outlived its tensor by far, and ends with the part.
        memory.tensor(slot(count - 1)).unwrap().fill_(3.0).unwrap();
        let held = held.unwrap();
        assert_eq!(held.to_vec::<f32>().unwrap(), [3.0; 64]);
        memory.restart().unwrap();
        assert!(matches!(held.to_vec::<f32>(), Err(Error::Unbound { .. })));
    }
}

/// A clone from the run before is found, also of a tensor that has not begun in this one.
#[test]
fn a_clone_outlives_its_run_with_an_endless_tensor() {
    let parts = [PlannedPart::new(0, 256, [floats(64, 2..4), floats(64, 0..NEVER)])];
    let mut memory = memory_of(256, &parts).unwrap();
    memory.advance(2).unwrap();
    let clone = memory.tensor(0).unwrap().clone();
    for _ in 0..3 {
        memory.restart().unwrap();
        clone.fill_(1.0).unwrap();
        let storage = Storage::unbound(&TensorOptions::new()).unwrap();
        assert!(matches!(memory.bind(1, &storage), Err(PlannedError::InUse { .. })));
    }
    drop(clone);
    let storage = Storage::unbound(&TensorOptions::new()).unwrap();
    memory.bind(1, &storage).unwrap();
}
