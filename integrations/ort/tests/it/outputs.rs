//! Outputs become tensors: without a copy if nothing else is in their memory, with one otherwise.

use crate::fixture;
use crate::small_model::{OUTPUTS, WEIGHT, aliased_outputs};
use orlop::prelude::*;
use ort::session::Session;
use ort::value::TensorRef;

#[test]
fn an_output_is_a_block_of_the_allocator() {
    let Some(fixture) = fixture() else { return };
    let mut session = fixture.session(&fixture.classifier, 1).unwrap();
    let input = crate::images(1);
    let before = fixture.memory.counts();
    let (_, output) = fixture.memory.run(&mut session, &[("x", &input)]).unwrap().remove(0);
    let after = fixture.memory.counts();
    assert_eq!(after.shared_outputs - before.shared_outputs, 1);
    assert_eq!(after.copied_outputs, before.copied_outputs);
    let allocator = output.storage().unwrap().block().unwrap().allocator().unwrap();
    assert!(allocator.same_as(&fixture.context.allocator(Device::CPU, MemoryKind::Workspace).unwrap()));
    // It outlives the session, and is written to.
    drop(session);
    output.fill_(2.0).unwrap();
    assert_eq!(output.to_vec::<f32>().unwrap(), [2.0, 2.0]);
    drop((output, allocator));
    assert_eq!(fixture.live(MemoryKind::Workspace), 0);
}

#[test]
fn outputs_in_shared_memory_are_copies() {
    let Some(fixture) = fixture() else { return };
    let mut session = fixture.session(&aliased_outputs(), 1).unwrap();
    let input = Tensor::from_slice(&[-1.0f32, 2.0, -3.0, 4.0]).unwrap();
    for _ in 0..2 {
        let outputs = fixture.memory.run(&mut session, &[("x", &input)]).unwrap();
        assert!(outputs.iter().map(|(name, _)| name.as_str()).eq(OUTPUTS));
        let values: Vec<Vec<f32>> = outputs.iter().map(|(_, output)| output.to_vec().unwrap()).collect();
        assert_eq!(values[0], [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(values[1], values[0]);
        assert_eq!(values[2], [-1.0, 2.0, -3.0, 4.0]);
        assert_eq!(values[3], WEIGHT);
        // Writing to one changes nothing else: neither another output, nor the input or the weight, which the
        // second run reads.
        for (at, (_, output)) in outputs.iter().enumerate() {
            output.fill_(100.0).unwrap();
            for (_, later) in &outputs[at + 1..] {
                assert!(later.to_vec::<f32>().unwrap().iter().all(|&value| value < 100.0));
            }
        }
        assert_eq!(input.to_vec::<f32>().unwrap(), [-1.0, 2.0, -3.0, 4.0]);
    }
    drop(session);
    assert_eq!(fixture.live(MemoryKind::Workspace) + fixture.live(MemoryKind::Persistent), 0);
}

#[test]
fn an_output_of_the_runtimes_own_allocator_is_copied() {
    let Some(fixture) = fixture() else { return };
    let mut session =
        Session::builder(&fixture.environment).unwrap().commit_from_memory(&aliased_outputs()).unwrap();
    let before = fixture.memory.counts();
    let data = [-1.0f32, 2.0, -3.0, 4.0];
    let mut outputs =
        session.run(ort::inputs![TensorRef::from_array_view(([4], &data[..])).unwrap()]).unwrap();
    let output = fixture.memory.tensor("y", outputs.remove("y").unwrap()).unwrap();
    assert_eq!(output.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(fixture.memory.counts().copied_outputs - before.copied_outputs, 1);
}

#[test]
fn inputs_that_the_runtime_has_no_type_for_are_refused() {
    let Some(fixture) = fixture() else { return };
    let mut session = fixture.session(&aliased_outputs(), 1).unwrap();
    let input = Tensor::zeros([4], DType::BF16).unwrap();
    let error = fixture.memory.run(&mut session, &[("x", &input)]).unwrap_err();
    assert!(matches!(error, orlop_ort::Error::UnsupportedDType(DType::BF16)), "{error}");
    let wrong = Tensor::zeros([3], DType::F32).unwrap();
    let error = fixture.memory.run(&mut session, &[("x", &wrong)]).unwrap_err();
    assert!(matches!(error, orlop_ort::Error::Runtime(_)), "{error}");
}
