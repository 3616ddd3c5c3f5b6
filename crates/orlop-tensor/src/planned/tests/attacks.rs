//! Safe code that tries to reach the bytes of another buffer.

use super::*;

/// A clock that could not move ends nothing: what was lent before is revoked when it does.
#[test]
fn a_refused_end_ends_nothing() {
    for refused in [
        (|memory: &mut PlannedMemory| memory.restart()) as fn(&mut PlannedMemory) -> Result<(), PlannedError>,
        |memory| memory.advance(3),
        |memory| memory.divide(&[]),
    ] {
        let mut memory = three();
        memory.advance(1).unwrap();
        memory.tensor(0).unwrap().fill_(1.0).unwrap();
        let held = memory.tensor(1).unwrap().clone();
        let slice = held.as_slice::<f32>().unwrap();
        assert!(matches!(refused(&mut memory), Err(PlannedError::InUse { tensor: 1, .. })));
        assert_eq!(memory.now(), 1);
        let clone = memory.tensor(0).unwrap().clone();
        assert_eq!(clone.to_vec::<f32>().unwrap(), [1.0; 64], "its bytes are kept");
        drop(slice);
        memory.advance(2).unwrap();
        let next = memory.tensor(2).unwrap();
        next.fill_(2.0).unwrap();
        assert!(matches!(clone.fill_(1.0), Err(Error::Unbound { .. })));
        assert_eq!(next.to_vec::<f32>().unwrap(), [2.0; 64]);
    }
}

/// A tensor that never ends has its bytes in every run, also before its first step.
#[test]
fn what_never_ends_has_no_predecessor() {
    let parts = [(0, 0..5), (0, 5..u64::MAX)]
        .map(|(offset, lifetime)| PlannedPart::new(offset, 256, [floats(64, lifetime)]));
    assert!(matches!(memory_of(256, &parts), Err(PlannedError::Plan(_))));
    let late = [PlannedPart::new(0, 256, [floats(64, 5..u64::MAX)])];
    let mut memory = memory_of(256, &late).unwrap();
    assert!(memory.tensor(0).is_err());
    memory.advance(5).unwrap();
    let clone = memory.tensor(0).unwrap().clone();
    memory.restart().unwrap();
    clone.fill_(1.0).unwrap();
    memory.advance(1).unwrap();
    memory.advance(7).unwrap();
    assert_eq!(memory.tensor(0).unwrap().to_vec::<f32>().unwrap(), [1.0; 64]);
}

/// The last time of the clock is one like the others.
#[test]
fn the_clock_at_its_end() {
    let parts = [
        PlannedPart::new(0, 256, [floats(64, 0..u64::MAX)]),
        PlannedPart::new(256, 256, [floats(64, u64::MAX - 1..u64::MAX)]),
    ];
    let mut memory = memory_of(512, &parts).unwrap();
    memory.sanitize(true).unwrap();
    for _ in 0..2 {
        memory.advance(u64::MAX).unwrap();
        let clone = memory.tensor(0).unwrap().clone();
        thread::scope(|scope| {
            let writer = scope.spawn(|| (0..50).for_each(|_| clone.fill_(1.0).unwrap()));
            for _ in 0..10 {
                memory.advance(u64::MAX).unwrap();
            }
            writer.join().unwrap();
        });
        assert!(matches!(memory.advance(0), Err(PlannedError::Backwards { .. })));
        memory.restart().unwrap();
    }
}
