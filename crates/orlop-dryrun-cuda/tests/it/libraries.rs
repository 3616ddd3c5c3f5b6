//! cuDNN's recurrent layers and NCCL.

use super::process::Process;
use super::{is_dry, run_dry, settings};

/// Calls with up to six arguments reach these: communicators are created without an identifier by value.
fn communicator(process: &Process, ranks: usize, rank: usize) -> Result<usize, i32> {
    let mut handle = 0_usize;
    let at = (&raw mut handle).expose_provenance();
    match process.call4("ncclCommInitRankScalable", at, ranks, rank, 1) {
        0 => Ok(handle),
        code => Err(code),
    }
}

#[test]
fn a_world_of_one_keeps_what_is_known_and_a_larger_one_does_not() {
    if !is_dry() {
        run_dry("libraries::a_world_of_one_keeps_what_is_known_and_a_larger_one_does_not", &settings());
        return;
    }
    let process = Process::new();
    assert_eq!(communicator(&process, 2, 2), Err(4));
    let buffer = process.allocate(4096).expect("it fits");
    for (ranks, expected) in [(1, [1, 2, 3, 4]), (8, [0; 4])] {
        let world = communicator(&process, ranks, 0).expect("a communicator");
        process.copy(buffer, &mut [1, 2, 3, 4]);
        // Four elements of one byte.
        assert_eq!(process.call("ncclBcast", [buffer, 4, 1, 0, world, 0]), 0);
        let mut read = [9; 4];
        process.read(&mut read, buffer);
        assert_eq!(read, expected, "{ranks} ranks");
        assert_eq!(process.call1("ncclCommDestroy", world), 0);
        assert_eq!(process.call("ncclBcast", [buffer, 4, 1, 0, world, 0]), 4);
    }
}

#[test]
fn cudnn_names_its_version_in_parts() {
    if !is_dry() {
        run_dry("libraries::cudnn_names_its_version_in_parts", &settings());
        return;
    }
    let process = Process::new();
    let parts = [0, 1, 2].map(|part| {
        let mut value = 0_i32;
        let at = (&raw mut value).expose_provenance();
        assert_eq!(process.call2("cudnnGetProperty", part, at), 0);
        value
    });
    assert_eq!(parts, [9, 19, 0]);
}
