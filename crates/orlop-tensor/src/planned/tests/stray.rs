//! Writes outside of lifetimes, as kernels make them, and the search for them.

use super::*;
use orlop_alloc::Allocator as _;

/// The address of a tensor's first float, as a kernel gets it.
fn kernel_address(tensor: &Tensor) -> *mut f32 {
    tensor.storage().unwrap().as_mut_ptr().unwrap().cast()
}

fn stray_write(memory: &mut PlannedMemory, step: u64) -> String {
    let error = memory.advance(step).unwrap_err();
    assert!(matches!(error, PlannedError::StrayWrite { .. }), "{error}");
    // Reported once.
    memory.advance(step).unwrap();
    error.to_string()
}

#[test]
fn a_write_after_the_lifetime_is_found() {
    let mut memory = three();
    memory.sanitize(true).unwrap();
    let kept = kernel_address(memory.tensor(0).unwrap());
    memory.advance(2).unwrap();
    memory.advance(3).unwrap();
    memory.advance(4).unwrap();
    // SAFETY: inside the block, which nothing else uses now.
    unsafe { kept.wrapping_add(3).write(1.0) };
    let expected = "tensor 2 was written after its last step, in step 4, at byte 12 of the arena";
    assert_eq!(stray_write(&mut memory, 5), expected);
}

#[test]
fn a_write_before_the_next_buffer_names_both() {
    let parts =
        [(0, 0..1), (0, 3..4)].map(|(offset, steps)| PlannedPart::new(offset, 256, [floats(64, steps)]));
    let mut memory = memory_of(256, &parts).unwrap();
    memory.sanitize(true).unwrap();
    let kept = kernel_address(memory.tensor(0).unwrap());
    memory.advance(1).unwrap();
    // SAFETY: inside the block, which nothing else uses now.
    unsafe { kept.write(1.0) };
    let expected = "tensor 0 was written after its last step, in step 1, at byte 0 of the arena; \
                    tensor 1 has this byte next, or ends below it";
    assert_eq!(stray_write(&mut memory, 2), expected);
}

#[test]
fn a_write_to_another_live_buffer_names_both() {
    let mut memory = three();
    memory.sanitize(true).unwrap();
    let kept = kernel_address(memory.tensor(0).unwrap());
    memory.advance(2).unwrap();
    memory.tensor(2).unwrap().fill_(2.0).unwrap();
    memory.advance(3).unwrap();
    // Step 3 does not use the tensor. The address is one of the tensor that had the bytes before.
    // SAFETY: inside the block, which nothing else uses now.
    unsafe { kept.wrapping_add(63).write(1.0) };
    let expected = "tensor 2 was changed in step 3, not by a use of it, at byte 25";
    let error = stray_write(&mut memory, 3);
    assert!(error.starts_with(expected), "{error}");
    assert!(error.ends_with("; tensor 0 had this byte before, or ends below it"), "{error}");
}

#[test]
fn a_write_beyond_the_end_names_both() {
    let mut memory = three();
    memory.sanitize(true).unwrap();
    memory.advance(1).unwrap();
    memory.tensor(1).unwrap().fill_(1.0).unwrap();
    memory.advance(1).unwrap();
    let kernel = kernel_address(memory.tensor(0).unwrap());
    // SAFETY: inside the block, which nothing else uses now.
    unsafe { kernel.wrapping_add(64).write(7.0) };
    let error = stray_write(&mut memory, 1);
    assert!(error.starts_with("tensor 1 was changed in step 1, not by a use of it, at byte 25"), "{error}");
    assert!(error.ends_with("; tensor 0 had this byte before, or ends below it"), "{error}");
}

/// A write into bytes that have another owner, in a step that only reads them.
#[test]
fn a_write_in_a_step_that_reads_the_bytes_names_both() {
    let mut memory = three();
    memory.sanitize(true).unwrap();
    let kept = kernel_address(memory.tensor(0).unwrap());
    memory.advance(2).unwrap();
    kernel_address(memory.tensor(2).unwrap());
    memory.advance(3).unwrap();
    assert_eq!(memory.tensor(2).unwrap().to_vec::<f32>().unwrap().len(), 64);
    // SAFETY: inside the block, which nothing else uses now.
    unsafe { kept.wrapping_add(5).write(1.0) };
    assert_eq!(memory.tensor(2).unwrap().to_vec::<f32>().unwrap()[5], 1.0);
    let error = stray_write(&mut memory, 4);
    let expected = "tensor 2 was changed in step 3, not by a use of it, at byte 2";
    assert!(error.starts_with(expected), "{error}");
    assert!(error.ends_with("; tensor 0 had this byte before, or ends below it"), "{error}");
}

/// A write into bytes that have a new owner, before the step gives them to it, although it writes them too.
#[test]
fn a_write_at_the_hand_over_names_both() {
    for late in [false, true] {
        let mut memory = three();
        memory.sanitize(true).unwrap();
        let kept = kernel_address(memory.tensor(0).unwrap());
        memory.advance(2).unwrap();
        if late {
            memory.tensor(2).unwrap().fill_(1.0).unwrap();
            memory.advance(3).unwrap();
        }
        // SAFETY: inside the block, which nothing else uses now.
        unsafe { kept.write(1.5) };
        memory.tensor(2).unwrap().fill_(2.0).unwrap();
        let step = memory.now();
        let error = stray_write(&mut memory, step);
        let expected = format!("tensor 2 was changed in step {step}, not by a use of it, at byte ");
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.ends_with("; tensor 0 had this byte before, or ends below it"), "{error}");
    }
}

/// A tensor that was held when the clock moved may be written without a new guard.
#[test]
fn what_is_held_may_be_written() {
    let mut memory = three();
    memory.sanitize(true).unwrap();
    let clone = memory.tensor(0).unwrap().clone();
    let mut slice = clone.as_mut_slice::<f32>().unwrap();
    memory.advance(1).unwrap();
    slice.fill(1.0);
    drop(slice);
    drop(clone);
    assert_eq!(memory.tensor(0).unwrap().to_vec::<f32>().unwrap(), [1.0; 64]);
    memory.advance(1).unwrap();
    memory.tensor(0).unwrap().fill_(2.0).unwrap();
    memory.advance(2).unwrap();
}

#[test]
fn a_search_that_cannot_start_says_so() {
    let context = Context::new();
    let device = Device::cuda(0);
    let allocator = orlop_alloc::engine::Direct::new(orlop_alloc::backing::Null::new(device)).into_ref();
    context.register(device, MemoryKind::Default, allocator).unwrap();
    let block = context.allocate(device, &Request::new(256)).unwrap();
    let mut memory = PlannedMemory::new(block, &[PlannedPart::new(0, 256, [floats(64, 0..1)])]).unwrap();
    let refused = memory.sanitize(true).unwrap_err();
    assert!(matches!(refused, Unsanitizable::NotHostAccessible { device: of } if of == device), "{refused}");
    memory.sanitize(false).unwrap();
    memory.advance(1).unwrap();
}

/// Of the tensors in one part, the one is named whose time it is.
#[test]
fn the_tensor_of_the_time_is_named() {
    let tensors = || [floats(64, 0..1), floats(64, 1..3), floats(8, 1..2), floats(64, 4..5)];
    let parts = [PlannedPart::new(0, 256, tensors()), PlannedPart::new(256, 256, tensors())];
    for (step, named) in [(0, "tensor 0"), (1, "tensor 1"), (2, "tensor 1"), (4, "tensor 3"), (6, "tensor 3")]
    {
        let mut memory = memory_of(512, &parts).unwrap();
        memory.sanitize(true).unwrap();
        let first = memory.tensor(0).unwrap();
        let kept = kernel_address(first);
        memory.advance(step).unwrap();
        memory.advance(step).unwrap();
        // SAFETY: inside the block, which nothing else uses now.
        unsafe { kept.write(1.0) };
        let error = stray_write(&mut memory, step);
        assert!(error.starts_with(named), "{step}: {error}");
    }
}

/// What is allowed is not reported: writes in steps that use a tensor, and through clones that are held.
#[test]
fn proper_writes_are_not_reported() {
    let mut memory = three();
    memory.sanitize(true).unwrap();
    for _ in 0..3 {
        let clone = memory.tensor(0).unwrap().clone();
        memory.advance(1).unwrap();
        clone.fill_(1.0).unwrap();
        drop(clone);
        memory.tensor(1).unwrap().fill_(1.0).unwrap();
        let held = memory.tensor(1).unwrap().narrow(0, 0, 8).unwrap();
        memory.advance(2).unwrap();
        held.fill_(3.0).unwrap();
        memory.tensor(2).unwrap().fill_(4.0).unwrap();
        memory.advance(3).unwrap();
        assert_eq!(memory.tensor(2).unwrap().to_vec::<f32>().unwrap(), [4.0; 64]);
        memory.advance(4).unwrap();
        memory.restart().unwrap();
    }
}

#[test]
fn ended_bytes_are_overwritten() {
    let parts =
        [(0, 0..1), (0, 1..2)].map(|(offset, steps)| PlannedPart::new(offset, 256, [floats(64, steps)]));
    let mut memory = memory_of(256, &parts).unwrap();
    memory.sanitize(true).unwrap();
    memory.tensor(0).unwrap().fill_(1.0).unwrap();
    memory.advance(1).unwrap();
    assert_eq!(memory.tensor(1).unwrap().to_vec::<f32>().unwrap(), [f32::from_ne_bytes([0xDB; 4]); 64]);
    memory.sanitize(false).unwrap();
    memory.restart().unwrap();
    memory.tensor(0).unwrap().fill_(1.0).unwrap();
    memory.advance(1).unwrap();
    assert_eq!(memory.tensor(1).unwrap().to_vec::<f32>().unwrap(), [1.0; 64]);
}

/// Another thread writes through a clone while the search begins.
#[test]
fn the_search_begins_in_the_middle_of_a_run() {
    let mut memory = three();
    for _ in 0..if cfg!(miri) { 3 } else { 100 } {
        memory.sanitize(false).unwrap();
        let clone = memory.tensor(0).unwrap().clone();
        let writer = thread::spawn(move || (0..20).for_each(|_| clone.fill_(1.0).unwrap()));
        memory.sanitize(true).unwrap();
        memory.advance(1).unwrap();
        writer.join().unwrap();
        memory.advance(2).unwrap();
        memory.restart().unwrap();
    }
}

/// Another thread has a handle of the storage, and writes as soon as it is bound: that is no stray write.
#[test]
fn a_storage_is_written_while_it_is_bound() {
    let (count, rounds) = if cfg!(miri) { (1024, 2) } else { (1 << 16, 50) };
    let parts = [0..1, 1..2].map(|steps| PlannedPart::new(0, 4 * count, [floats(count, steps)]));
    for round in 0..rounds {
        let mut memory = memory_of(4 * count, &parts).unwrap();
        memory.sanitize(true).unwrap();
        memory.tensor(0).unwrap().fill_(round).unwrap();
        memory.advance(1).unwrap();
        let mine = Tensor::unbound([count], DType::F32).unwrap();
        let (theirs, is_running) = (mine.clone(), std::sync::Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                is_running.wait();
                while theirs.fill_(7.0).is_err() {
                    std::hint::spin_loop();
                }
            });
            is_running.wait();
            memory.bind(1, mine.storage().unwrap()).unwrap();
        });
        memory.advance(2).unwrap();
    }
}
