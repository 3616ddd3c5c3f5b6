//! What sessions hold, and that they compute the same.

use crate::{fixture, images};
use orlop::memory::Tag;
use orlop::prelude::*;
use ort::session::Session;
use ort::value::TensorRef;

#[test]
fn sessions_share_one_accounted_allocator() {
    let Some(fixture) = fixture() else { return };
    assert_eq!(fixture.live(MemoryKind::Persistent) + fixture.live(MemoryKind::Workspace), 0);
    let before = fixture.memory.counts();
    let mut first = fixture.session(&fixture.classifier, 1).unwrap();
    let one = fixture.live(MemoryKind::Persistent);
    let mut second = fixture.session(&fixture.classifier, 1).unwrap();
    assert!(one > 0);
    assert_eq!(fixture.live(MemoryKind::Persistent), 2 * one);
    let allocator = fixture.context.allocator(Device::CPU, MemoryKind::Persistent).unwrap();
    let tagged: u64 = allocator
        .tag_uses()
        .iter()
        .filter(|part| part.tag == Tag::new("onnxruntime"))
        .map(|part| part.bytes)
        .sum();
    assert_eq!(tagged, 2 * one);

    let input = images(2);
    for session in [&mut first, &mut second] {
        let outputs = fixture.memory.run(session, &[("x", &input)]).unwrap();
        assert_eq!(outputs.len(), 1);
        assert!(fixture.live(MemoryKind::Workspace) > 0);
    }
    assert_eq!(fixture.live(MemoryKind::Workspace), 0);
    drop((first, second));
    assert_eq!(fixture.live(MemoryKind::Persistent), 0);
    let after = fixture.memory.counts();
    let allocated = after.allocations + after.reservations - before.allocations - before.reservations;
    let freed = after.frees + after.shared_outputs - before.frees - before.shared_outputs;
    assert_eq!((allocated, after.foreign_frees), (freed, 0));
    allocator.verify().unwrap();
}

#[test]
fn results_are_those_of_the_runtimes_own_arena() {
    let Some(fixture) = fixture() else { return };
    let mut own =
        Session::builder(&fixture.environment).unwrap().commit_from_memory(&fixture.classifier).unwrap();
    let mut ours = fixture.session(&fixture.classifier, 1).unwrap();
    let input = images(3);
    let outputs = fixture.memory.run(&mut ours, &[("x", &input)]).unwrap();
    let elements = input.as_slice::<f32>().unwrap();
    let value = TensorRef::from_array_view((input.sizes(), &*elements)).unwrap();
    let expected = own.run(ort::inputs![value]).unwrap();
    let (shape, expected) = expected[0].try_extract_tensor::<f32>().unwrap();
    assert_eq!(&**shape, &[3, 2]);
    for (ours, expected) in outputs[0].1.to_vec::<f32>().unwrap().iter().zip(expected) {
        assert!((ours - expected).abs() < 1e-5, "{ours} instead of {expected}");
    }
}

#[test]
fn threads_run_their_sessions_at_once() {
    let Some(fixture) = fixture() else { return };
    let input = images(1);
    let expected = {
        let mut session = fixture.session(&fixture.classifier, 1).unwrap();
        fixture.memory.run(&mut session, &[("x", &input)]).unwrap()[0].1.to_vec::<f32>().unwrap()
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut session = fixture.session(&fixture.classifier, 1).unwrap();
                for _ in 0..5 {
                    let outputs = fixture.memory.run(&mut session, &[("x", &input)]).unwrap();
                    assert_eq!(outputs[0].1.to_vec::<f32>().unwrap(), expected);
                }
            });
        }
    });
    assert_eq!(fixture.live(MemoryKind::Workspace) + fixture.live(MemoryKind::Persistent), 0);
}
