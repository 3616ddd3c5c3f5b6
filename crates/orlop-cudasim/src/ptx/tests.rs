//! The instructions, by small programs that store into memory of the test.

use super::instruction::Parameter;
use super::memory::GlobalMemory;
use super::{Program, Recorder, Shape};
use crate::codes::{Failure, Outcome};
use crate::memory::MemoryAccess;
use std::collections::BTreeMap;

/// Words at addresses.
#[derive(Debug, Default)]
struct Words(BTreeMap<u64, u64>);

impl GlobalMemory for Words {
    fn load(&mut self, address: u64, _: usize) -> Outcome<Option<u64>> {
        Ok(Some(self.0.get(&address).copied().unwrap_or(0)))
    }

    fn store(&mut self, address: u64, _: usize, value: u64) -> Outcome {
        self.0.insert(address, value);
        Ok(())
    }
}

const ONE: Shape = Shape { grid: [1; 3], block: [1; 3] };

fn program(body: &str) -> Result<Program, String> {
    let registers = ".reg .pred %p; .reg .b16 %h; .reg .b32 %a, %b, %c; .reg .f32 %f; \
                     .reg .b64 %x, %y, %to; .reg .f64 %d;";
    let parameter = |name: &str, bytes, alignment| Parameter { name: name.to_owned(), bytes, alignment };
    let parameters = vec![parameter("number", 4, 4), parameter("list", 16, 8)];
    Program::parse(&format!("{registers} {body}"), "", parameters)
}

fn arguments() -> Vec<Vec<u8>> {
    vec![7_u32.to_le_bytes().to_vec(), [0x10_u64.to_le_bytes(), 0xfedc_u64.to_le_bytes()].concat()]
}

/// Runs code that computes `%x`, and returns it.
fn value(code: &str) -> u64 {
    let body = format!("mov.u64 %to, 64; {code} st.global.u64 [%to], %x; ret;");
    let mut words = Words::default();
    let parsed = program(&body).unwrap_or_else(|error| panic!("{error}"));
    parsed.execute(ONE, 0, &arguments(), &mut words).unwrap_or_else(|failure| panic!("{code}: {failure:?}"));
    words.0[&64]
}

#[test]
fn integers() {
    assert_eq!(value("mov.u32 %a, 5; sub.u32 %a, %a, 7; cvt.u64.u32 %x, %a;"), 0xffff_fffe);
    assert_eq!(value("mov.u32 %a, 5; sub.u32 %a, %a, 7; cvt.s64.s32 %x, %a;"), u64::MAX - 1);
    assert_eq!(value("mov.u32 %a, 0xffffffff; mul.lo.u32 %a, %a, %a; cvt.u64.u32 %x, %a;"), 1);
    assert_eq!(value("mov.s64 %x, -9; div.s64 %x, %x, 2;"), (-4_i64).cast_unsigned());
    assert_eq!(value("mov.u64 %x, -9; div.u64 %x, %x, 2;"), u64::MAX / 2 - 4);
    assert_eq!(value("mov.s64 %x, -9; max.s64 %x, %x, 3;"), 3);
    assert_eq!(value("mov.s64 %x, -9; max.u64 %x, %x, 3;"), (-9_i64).cast_unsigned());
    assert_eq!(value("mov.s64 %x, 9; min.s64 %x, %x, -3;"), (-3_i64).cast_unsigned());
    assert_eq!(value("mov.u64 %x, 1; shl.b64 %x, %x, 64;"), 0, "distances are limited to the size");
    assert_eq!(value("mov.u64 %x, 1; mov.u32 %a, 63; shl.b64 %x, %x, %a;"), 1 << 63);
    assert_eq!(value("mov.s64 %x, -5; shr.s64 %x, %x, 100;"), u64::MAX);
    assert_eq!(value("mov.s64 %x, -5; shr.u64 %x, %x, 100;"), 0);
    assert_eq!(value("mov.u64 %x, 0x1fe; cvt.u8.u64 %h, %x; cvt.u64.u16 %x, %h;"), 0xfe);
    assert_eq!(value("mov.u64 %x, 0xfe; cvt.s8.s64 %h, %x; cvt.u64.u16 %x, %h;"), 0xfffe);
    assert_eq!(value("mov.u64 %x, 12; xor.b64 %x, %x, 10; and.b64 %x, %x, 6; or.b64 %x, %x, 1;"), 7);
}

#[test]
fn floats() {
    let single = |code: &str| value(&format!("{code} mov.b32 %a, %f; cvt.u64.u32 %x, %a;"));
    assert_eq!(single("mov.f32 %f, 0f3fc00000; add.rn.f32 %f, %f, %f;"), 3_f32.to_bits().into());
    assert_eq!(
        single("mov.f32 %f, 0f00000001; mul.rn.f32 %f, %f, 0f40000000;"),
        2,
        "subnormal numbers are kept"
    );
    assert_eq!(single("mov.f32 %f, 0fff800001; add.rn.f32 %f, %f, 0f00000000;"), 0x7fff_ffff, "one NaN");
    assert_eq!(single("mov.f64 %d, 0dfff0000000000001; cvt.rn.f32.f64 %f, %d;"), 0x7fff_ffff);
    assert_eq!(single("mov.u64 %x, 0x1000001; cvt.rn.f32.u64 %f, %x;"), 16_777_216_f32.to_bits().into());
    assert_eq!(single("mov.s64 %x, -3; cvt.rn.f32.s64 %f, %x;"), (-3_f32).to_bits().into());
    let integer = |bits: &str, conversion: &str| {
        value(&format!("mov.f32 %f, 0f{bits}; cvt.f64.f32 %d, %f; cvt.rzi.{conversion};"))
    };
    // -3.75, 1e10, NaN: of 64 bits or from a double, NaN is the highest bit alone.
    assert_eq!(integer("c0700000", "s64.f32 %x, %f"), (-3_i64).cast_unsigned());
    assert_eq!(integer("c0700000", "u64.f32 %x, %f"), 0);
    assert_eq!(integer("501502f9", "s32.f32 %x, %f"), 0x7fff_ffff);
    assert_eq!(integer("501502f9", "u32.f32 %x, %f"), 0xffff_ffff);
    assert_eq!(integer("7fc00000", "s32.f32 %x, %f"), 0);
    assert_eq!(integer("7fc00000", "u32.f64 %x, %d"), 1 << 31);
    assert_eq!(integer("7fc00000", "s64.f32 %x, %f"), 1 << 63);
    assert_eq!(integer("7fc00000", "u64.f64 %x, %d"), 1 << 63);
    assert_eq!(integer("7f800000", "u64.f64 %x, %d"), u64::MAX);
}

#[test]
fn predicates_and_branches() {
    let chosen = |test: &str| value(&format!("mov.f32 %f, 0f7fc00000; {test} selp.b64 %x, 1, 2, %p;"));
    assert_eq!(chosen("setp.ne.f32 %p, %f, %f;"), 2, "a NaN is not even different");
    assert_eq!(chosen("setp.nan.f32 %p, %f, %f;"), 1);
    assert_eq!(chosen("mov.s32 %a, -1; setp.lt.s32 %p, %a, 0;"), 1);
    assert_eq!(chosen("mov.s32 %a, -1; setp.lt.u32 %p, %a, 0;"), 2);
    assert_eq!(value("mov.u64 %x, 1; setp.eq.u64 %p, %x, 1; @!%p mov.u64 %x, 9; @%p add.u64 %x, %x, 1;"), 2);
    let table = "t: .branchtargets A, B, C; mov.u32 %a, 1; brx.idx %a, t; A: mov.u64 %x, 10; bra D; \
                 B: mov.u64 %x, 11; bra D; C: mov.u64 %x, 12; D:";
    assert_eq!(value(table), 11);
    let endless = program("A: bra A;").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(endless.execute(ONE, 0, &arguments(), &mut Words::default()), Err(Failure::LAUNCH_TIMEOUT));
    let beyond = program("t: .branchtargets A; mov.u32 %a, 1; brx.idx %a, t; A: ret;");
    let beyond = beyond.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(beyond.execute(ONE, 0, &arguments(), &mut Words::default()), Err(Failure::INVALID_PC));
}

#[test]
fn parameters() {
    assert_eq!(value("ld.param.u32 %a, [number]; cvt.u64.u32 %x, %a;"), 7);
    assert_eq!(value("mov.u64 %y, list; ld.param.u64 %x, [%y+8];"), 0xfedc);
    assert_eq!(value("ld.param.s8 %x, [list+8];"), 0xffff_ffff_ffff_ffdc);
    let fails = |code: &str| {
        let parsed = program(code).unwrap_or_else(|error| panic!("{error}"));
        parsed.execute(ONE, 0, &arguments(), &mut Words::default())
    };
    assert_eq!(fails("ld.param.u64 %x, [list+16];"), Err(Failure::ILLEGAL_ADDRESS));
    assert_eq!(fails("ld.param.u64 %x, [list+4];"), Err(Failure::MISALIGNED_ADDRESS));
    assert_eq!(fails("ld.param.u64 %x, [number];"), Err(Failure::MISALIGNED_ADDRESS));
}

#[test]
fn what_is_not_known_is_refused() {
    for code in [
        "bar.sync 1;",
        "bar.red.popc.u32 %a, 0, %p;",
        "mov.u32 %a, 1; add.sat.s32 %a, %a, 1;",
        "add.rz.f32 %f, %f, %f;",
        "fma.f32 %f, %f, %f, %f;",
        "mul.wide.u64 %x, %x, %x;",
        "neg.u32 %a, %a;",
        "add.rn.ftz.f32 %f, %f, %f;",
        "cvt.s64.f32 %x, %f;",
        "cvt.f32.f64 %f, %d;",
        "cvt.rn.f64.f32 %d, %f;",
        "cvt.rn.sat.f32.u32 %f, %a;",
        "cvt.rn.f16.f32 %h, %f;",
        "st.param.u32 [number], %a;",
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
    ] {
        assert!(program(code).is_err(), "{code}");
    }
}

#[test]
fn accesses_are_found_without_data() {
    let body = "mov.u32 %a, %tid.x; mov.u32 %b, %ctaid.y; mad.lo.u32 %a, %b, 4, %a; cvt.u64.u32 %x, %a; \
                shl.b64 %x, %x, 2; add.u64 %to, %x, 4096; ld.global.u32 %c, [%to+1024]; \
                st.global.u32 [%to], %c; ret;";
    let shape = Shape { grid: [1, 3, 1], block: [4, 1, 1] };
    let run = |body: &str| {
        let mut recorder = Recorder::default();
        let parsed = program(body).unwrap_or_else(|error| panic!("{error}"));
        parsed.execute(shape, 0, &arguments(), &mut recorder).map(|()| recorder.finish())
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
