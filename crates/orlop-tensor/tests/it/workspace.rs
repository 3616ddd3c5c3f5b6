//! Tensors in an arena.

use orlop_alloc::Allocator;
use orlop_alloc::Error as AllocError;
use orlop_alloc::backing::System;
use orlop_alloc::engine::{Arena, Reset};
use orlop_core::{DType, MemoryKind};
use orlop_tensor::{Tensor, TensorOptions};

#[test]
fn a_reset_never_leaves_a_tensor_dangling() {
    let arena = Arena::new(System::new(), 1 << 16).into_ref();
    let handle = arena.clone().erase();
    let options = TensorOptions::from(DType::F32).kind(MemoryKind::Workspace).allocator(&handle);
    let first = Tensor::full([100], 1.0, options).unwrap();
    assert_eq!(first.memory_kind(), MemoryKind::Workspace);
    let view = first.narrow(0, 50, 10).unwrap();
    drop(first);
    assert!(matches!(arena.reset(), Err(AllocError::ArenaInUse { live: 1 })));
    assert_eq!(arena.renew(), Reset::Renewed { live: 1 });
    let second = Tensor::full([100], 2.0, options).unwrap();
    assert_eq!(view.to_vec::<f32>().unwrap(), [1.0; 10]);
    drop((view, second));
    arena.reset().unwrap();
}

#[test]
fn a_tensor_keeps_the_arena_alive() {
    let tensor = {
        let arena = Arena::new(System::new(), 1 << 12).into_ref().erase();
        Tensor::full([64], 3, TensorOptions::from(DType::I32).allocator(&arena)).unwrap()
    };
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [3; 64]);
}

#[test]
fn steps_reuse_the_same_memory() {
    let arena = Arena::new(System::new(), 1 << 16).into_ref();
    let handle = arena.clone().erase();
    let mut places = Vec::new();
    for _ in 0..3 {
        let tensor = Tensor::zeros([256], TensorOptions::new().allocator(&handle)).unwrap();
        tensor.fill_(5.0).unwrap();
        places.push(tensor.storage().unwrap().as_ptr().unwrap());
        drop(tensor);
        arena.reset().unwrap();
    }
    assert!(places.iter().all(|&place| place == places[0]));
}
