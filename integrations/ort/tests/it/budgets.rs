//! Refused requests are errors, and the session works afterwards.

use crate::{fixture, images};
use orlop::memory::{Budget, Error as MemoryError};
use orlop::prelude::*;
use orlop_ort::Error;

/// Every budget below a run's need, in steps, on the calling thread and on the runtime's workers.
#[test]
fn a_refused_request_is_an_error_of_the_run() {
    let Some(fixture) = fixture() else { return };
    let input = images(2);
    for threads in [1, 2] {
        let mut session = fixture.session(&fixture.classifier, threads).unwrap();
        let expected =
            fixture.memory.run(&mut session, &[("x", &input)]).unwrap()[0].1.to_vec::<f32>().unwrap();
        let need = fixture.context.stats(Device::CPU).kind(MemoryKind::Workspace).peak_bytes;
        let (mut refused, mut served) = (0, 0);
        for sixteenth in 0..=32 {
            let budget = Budget::hard(need * sixteenth / 16).strict();
            fixture.context.set_budget(Device::CPU, MemoryKind::Workspace, budget).unwrap();
            match fixture.memory.run(&mut session, &[("x", &input)]) {
                Ok(outputs) => {
                    assert_eq!(outputs[0].1.to_vec::<f32>().unwrap(), expected);
                    served += 1;
                }
                Err(Error::Refused { refusal: MemoryError::OutOfMemory(report), .. }) => {
                    assert_eq!(report.kind, MemoryKind::Workspace);
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
            assert_eq!(fixture.live(MemoryKind::Workspace), 0);
        }
        assert!(refused > 0 && served > 0, "{refused} refused, {served} served");
        fixture.context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::default()).unwrap();
    }
}

/// A refusal that was not taken is not the reason of a later error.
#[test]
fn an_unrelated_error_has_no_refusal() {
    let Some(fixture) = fixture() else { return };
    fixture.context.set_budget(Device::CPU, MemoryKind::Persistent, Budget::hard(1024).strict()).unwrap();
    fixture.session(&fixture.classifier, 1).unwrap_err();
    fixture.context.set_budget(Device::CPU, MemoryKind::Persistent, Budget::default()).unwrap();
    let mut session = fixture.session(&fixture.classifier, 1).unwrap();
    let input = images(1);
    let error = fixture.memory.run(&mut session, &[("no such input", &input)]).unwrap_err();
    assert!(matches!(error, Error::Runtime(_)), "{error}");
    assert!(fixture.memory.take_refusal().is_none());
}

#[test]
fn a_session_that_does_not_fit_is_an_error() {
    let Some(fixture) = fixture() else { return };
    fixture.context.set_budget(Device::CPU, MemoryKind::Persistent, Budget::hard(1024).strict()).unwrap();
    let error = fixture.session(&fixture.classifier, 1).unwrap_err();
    fixture.context.set_budget(Device::CPU, MemoryKind::Persistent, Budget::default()).unwrap();
    assert!(error.to_string().contains("bad_alloc"), "{error}");
    assert!(matches!(fixture.memory.take_refusal(), Some(MemoryError::OutOfMemory(_))));
    assert!(fixture.memory.take_refusal().is_none());
    assert_eq!(fixture.live(MemoryKind::Persistent) + fixture.live(MemoryKind::Workspace), 0);
    fixture.session(&fixture.classifier, 1).unwrap();
}
