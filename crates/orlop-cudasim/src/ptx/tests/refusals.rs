//! What is refused.

use super::program;
use crate::ptx::{Recorder, Shape, entry_points};

#[test]
fn what_is_not_known_is_refused() {
    for code in [
        "bar.sync 1;",
        "bar.red.popc.u32 %a, 0, %p;",
        "mov.u32 %a, 1; add.sat.s32 %a, %a, 1;",
        "fma.f32 %f, %f, %f, %f;",
        "mul.wide.u64 %x, %x, %x;",
        "neg.u32 %a, %a;",
        "cvt.s64.f32 %x, %f;",
        "cvt.f32.f64 %f, %d;",
        "cvt.rn.f64.f32 %d, %f;",
        "ld.shared.u32 %a, [%f];",
        "ld.shared.nc.u32 %a, [%to];",
        "ld.volatile.u32 %a, [%to];",
        "mov.u64 %a, 1;",
        "add.u32 %f, %f, 1;",
        "mov.u32 %a, 0x100000000;",
        "mov.u32 %z, 1;",
        "ld.global.u64 %a, [%to];",
        "st.global.u32 [number], %a;",
        "bra NOWHERE;",
        "setp.lt.b32 %p, %a, %b;",
        "mov.u32 %a, 1",
        ".reg .b32 %a;",
        ".shared .align 3 .b8 s[8];",
        ".shared .b32 s[;",
        "A: ret; A: ret;",
        "add.rz.f64 %d, %d, %d;",
        "add.ftz.f64 %d, %d, %d;",
        "fma.rn.relu.f16 %h, %h, %h, %h;",
        "cvt.rn.sat.f32.u32 %f, %a;",
        "cvt.rn.e4m3x2.f32 %h, %f, %f;",
        "cvt.f32.f32 %f, %f;",
        "ex2.f32 %f, %f;",
        "atom.global.add.s64 %x, [%to], %x;",
        "atom.global.add.f32 %f, [%to];",
        "atom.cas.b32 %a, [%to], %a;",
        "red.exch.b32 [%to], %a;",
        "atom.add.noftz.f32 %f, [%to], %f;",
        "atom.global.inc.s32 %a, [%to], %a;",
        "shfl.down.b32 %a, %a, 1, 31;",
        "shfl.sync.down.b64 %x, %x, 1, 31, -1;",
        "vote.ballot.b32 %a, %p;",
        "vote.sync.ballot.b32 %a|%p, %p, -1;",
        "match.any.sync.b32 %a|%p, %b, -1;",
        "redux.sync.add.f32 %f, %f, -1;",
        "bar.warp.sync;",
        "bar.red.popc.u32 %a, 0, %p;",
        "mov.b32 {%a, %b}, %c;",
        "mov.u32 %a, {%h, %h};",
        "{ .reg .b32 %inner; } mov.u32 %inner, 1;",
        ".local .align 4 .b8 big[1048576];",
        ".param .b8 big[1048576];",
        ".reg .b32 %many<70000>;",
        ".shared .b8 big[65536];",
    ] {
        assert!(program(code).is_err(), "{code}");
    }
}

/// Returns numbers that are the same in every run.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    usize::try_from(*state >> 33).unwrap_or(0)
}

/// Words of real modules in a wrong order or number are refused, or are other programs that end.
#[test]
fn changed_modules_end() {
    let sources = [
        include_str!("../../../../../testdata/ptx/calls.nvrtc.ptx"),
        include_str!("../../../../../testdata/ptx/votes.nvrtc.ptx"),
        include_str!("../../../../../testdata/ptx/atomics.clang.ptx"),
        include_str!("../../../../../testdata/ptx/half_sum.nvrtc.ptx"),
    ];
    let mut state = 7;
    let (mut known, mut ended) = (0, 0);
    for round in 0..4 * 300 {
        let mut words: Vec<&str> =
            sources[round % sources.len()].split_inclusive([' ', '\t', ',', ';']).collect();
        for _ in 0..=random(&mut state) % 3 {
            let (one, other) = (random(&mut state) % words.len(), random(&mut state) % words.len());
            match random(&mut state) % 3 {
                0 => words.swap(one, other),
                1 => words[one] = words[other],
                _ => drop(words.remove(one)),
            }
        }
        let text = words.concat();
        for entry in entry_points(&text).into_iter().flatten() {
            let Ok(program) = entry.program else { continue };
            known += 1;
            let arguments: Vec<Vec<u8>> = entry.sizes.iter().map(|&bytes| vec![3; bytes]).collect();
            let shape = Shape { grid: [1; 3], block: [33, 1, 1] };
            let memory = &mut Recorder::default();
            let result = program.execute_within(shape, 64, &arguments, memory, &mut 100_000);
            ended += usize::from(result.is_ok());
            memory.race();
        }
    }
    assert!(known > 300 && ended > 0, "{known} programs, {ended} to their end");
}
