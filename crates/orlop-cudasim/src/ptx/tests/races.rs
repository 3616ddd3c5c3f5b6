//! The accesses of a launch, and races between its threads.

use super::{arguments, failure, program};
use crate::codes::Failure;
use crate::memory::MemoryAccess;
use crate::ptx::{Recorder, Shape};

#[test]
fn accesses_are_found_without_data() {
    let body = "mov.u32 %a, %tid.x; mov.u32 %b, %ctaid.y; mad.lo.u32 %a, %b, 4, %a; cvt.u64.u32 %x, %a; \
                shl.b64 %x, %x, 2; add.u64 %to, %x, 4096; ld.global.u32 %c, [%to+1024]; \
                st.global.u32 [%to], %c; ret;";
    let shape = Shape { grid: [1, 3, 1], block: [4, 1, 1] };
    let run = |body: &str| {
        let mut recorder = Recorder::default();
        let parsed = program(body).unwrap_or_else(|error| panic!("{error}"));
        failure(parsed.execute(shape, 0, &arguments(), &mut recorder)).map(|()| recorder.finish())
    };
    assert_eq!(run(body), Ok(vec![MemoryAccess::read(5120, 48), MemoryAccess::write(4096, 48)]));
    // Without the data it is unknown where these go.
    let indirect = "mov.u64 %to, 64; ld.global.u64 %x, [%to]; st.global.u64 [%x], %to;";
    assert_eq!(run(indirect), Err(Failure::NOT_SUPPORTED));
    let branch = "mov.u64 %to, 64; ld.global.u64 %x, [%to]; setp.eq.u64 %p, %x, 0; @%p bra A; A: ret;";
    assert_eq!(run(branch), Err(Failure::NOT_SUPPORTED));
    assert_eq!(run("mov.u64 %to, 66; ld.global.u32 %a, [%to];"), Err(Failure::MISALIGNED_ADDRESS));
}

#[test]
fn threads_that_write_the_same_bytes_are_found() {
    let written = |body: &str| {
        let mut recorder = Recorder::default();
        let parsed = program(body).unwrap_or_else(|error| panic!("{error}"));
        let shape = Shape { grid: [1; 3], block: [4, 1, 1] };
        parsed.execute(shape, 0, &arguments(), &mut recorder).unwrap_or_else(|failure| panic!("{failure:?}"));
        recorder.race()
    };
    let of = |shift: u32| {
        format!(
            "mov.u32 %a, %tid.x; shr.u32 %a, %a, {shift}; cvt.u64.u32 %x, %a; shl.b64 %x, %x, 3; \
             add.u64 %to, %x, 4096; st.global.u32 [%to+4], %a; st.global.u64 [%to], %x; ret;"
        )
    };
    assert_eq!(written(&of(0)), None, "a thread writes four of its bytes twice");
    let both = MemoryAccess::write(4096, 8);
    assert_eq!(written(&of(1)), Some((both, both)), "the first of them");
}

/// Returns a race between the threads of two blocks of 64.
fn race_of(code: &str) -> Option<(MemoryAccess, MemoryAccess)> {
    let registers = "mov.u32 %a, %tid.x; mov.u32 %b, %ctaid.x; mov.u64 %to, 4096; mul.wide.u32 %x, %a, 4; \
                     mul.wide.u32 %y, %b, 256; add.u64 %x, %x, %y; add.u64 %x, %x, 8192;";
    let mut recorder = Recorder::default();
    let parsed = program(&format!("{registers} {code}")).unwrap_or_else(|error| panic!("{error}"));
    let shape = Shape { grid: [2, 1, 1], block: [64, 1, 1] };
    parsed.execute(shape, 0, &arguments(), &mut recorder).unwrap_or_else(|fault| panic!("{fault:?}"));
    recorder.race()
}

#[test]
fn races_of_atomic_operations() {
    let (update, write) = (MemoryAccess::atomic(4096, 4), MemoryAccess::write(4096, 4));
    assert_eq!(race_of("red.global.add.u32 [%to], 1; red.global.max.u32 [%to], %a;"), None);
    assert_eq!(race_of("red.global.add.u32 [%to], 1; st.global.u32 [%to], %a;"), Some((write, write)));
    let one_writes = "red.global.add.u32 [%to], 1; add.u32 %c, %a, %b; setp.eq.u32 %p, %c, 0;";
    assert_eq!(race_of(&format!("{one_writes} @%p st.global.u32 [%to], 1;")), Some((write, update)));
    let read = MemoryAccess::read(4096, 4);
    assert_eq!(race_of(&format!("{one_writes} @%p ld.global.u32 %c, [%to];")), Some((read, update)));
    // Of a block only, and of other bytes.
    assert_eq!(race_of("red.global.cta.add.u32 [%to], 1;"), Some((update, update)));
    assert_eq!(race_of("setp.eq.u32 %p, %b, 0; @%p red.global.cta.add.u32 [%to], 1;"), None);
    let longer = MemoryAccess::atomic(4096, 4);
    let mixed = "red.global.add.u32 [%to], 1; red.global.add.u64 [%to], 1;";
    assert_eq!(race_of(mixed), Some((longer, longer)));
    let shared = ".shared .u32 s; setp.eq.u32 %p, %a, 0; @%p st.shared.u32 [s], 0;";
    let add = "atom.shared.add.u32 %c, [s], 1;";
    assert_eq!(race_of(&format!("{shared} bar.sync 0; {add}")), None);
    assert!(race_of(&format!("{shared} {add}")).is_some());
}

#[test]
fn races_within_a_warp() {
    // Each thread writes a word, and reads that of its neighbour.
    let neighbour = |order: &str, bit: u32| {
        let read = format!(
            "xor.b32 %c, %a, {bit}; mul.wide.u32 %to, %c, 4; add.u64 %to, %to, %y; \
             ld.global.u32 %c, [%to+8192];"
        );
        race_of(&format!("st.global.u32 [%x], %a; {order} {read}"))
    };
    assert!(neighbour("", 1).is_some());
    assert_eq!(neighbour("bar.sync 0;", 1), None);
    assert_eq!(neighbour("bar.warp.sync -1;", 1), None);
    assert!(neighbour("bar.warp.sync -1;", 32).is_some(), "of another warp");
    assert_eq!(neighbour("bar.sync 0; bar.warp.sync -1;", 32), None);
    assert!(neighbour("vote.sync.any.pred %q, %q, -1;", 1).is_some(), "a vote orders nothing");
    // Of the even and the odd lanes, each with itself.
    let parts = "and.b32 %c, %a, 1; setp.eq.u32 %p, %c, 1; mov.u32 %c, 0x55555555; \
        @%p mov.u32 %c, 0xaaaaaaaa; bar.warp.sync %c;";
    assert!(neighbour(parts, 1).is_some());
    assert_eq!(neighbour(parts, 2), None);
    assert_eq!(neighbour(&format!("{parts} bar.warp.sync -1;"), 1), None);
}
