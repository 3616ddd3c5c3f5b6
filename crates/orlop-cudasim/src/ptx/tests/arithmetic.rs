//! What instructions compute.

use super::{ONE, Words, arguments, failure, program, value};
use crate::codes::Failure;

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
    let ended = endless.execute(ONE, 0, &arguments(), &mut Words::default());
    assert_eq!(failure(ended), Err(Failure::LAUNCH_TIMEOUT));
    let beyond = program("t: .branchtargets A; mov.u32 %a, 1; brx.idx %a, t; A: ret;");
    let beyond = beyond.unwrap_or_else(|error| panic!("{error}"));
    let ended = beyond.execute(ONE, 0, &arguments(), &mut Words::default());
    assert_eq!(failure(ended), Err(Failure::INVALID_PC));
}

#[test]
fn parameters() {
    assert_eq!(value("ld.param.u32 %a, [number]; cvt.u64.u32 %x, %a;"), 7);
    assert_eq!(value("mov.u64 %y, list; ld.param.u64 %x, [%y+8];"), 0xfedc);
    assert_eq!(value("ld.param.s8 %x, [list+8];"), 0xffff_ffff_ffff_ffdc);
    let fails = |code: &str| {
        let parsed = program(code).unwrap_or_else(|error| panic!("{error}"));
        failure(parsed.execute(ONE, 0, &arguments(), &mut Words::default()))
    };
    assert_eq!(fails("ld.param.u64 %x, [list+16];"), Err(Failure::ILLEGAL_ADDRESS));
    assert_eq!(fails("ld.param.u64 %x, [list+4];"), Err(Failure::MISALIGNED_ADDRESS));
    assert_eq!(fails("ld.param.u64 %x, [number];"), Err(Failure::MISALIGNED_ADDRESS));
}

#[test]
fn bits_and_words() {
    let word = |code: &str| value(&format!("mov.u32 %a, 0x12345678; {code} cvt.u64.u32 %x, %a;"));
    assert_eq!(word("popc.b32 %a, %a;"), 13);
    assert_eq!(word("clz.b32 %a, %a;"), 3);
    assert_eq!(word("brev.b32 %a, %a;"), 0x1e6a_2c48);
    assert_eq!(value("mov.u64 %x, 1; clz.b64 %a, %x; cvt.u64.u32 %x, %a;"), 63);
    assert_eq!(word("mul.hi.u32 %a, %a, 16;"), 1);
    assert_eq!(word("mov.s32 %b, -2; mul.hi.s32 %a, %b, 3;"), 0xffff_ffff);
    assert_eq!(value("mov.s32 %a, -2; mov.u64 %y, 10; mad.wide.s32 %x, %a, 3, %y;"), 4);
    // a & b ^ c has this table.
    assert_eq!(word("mov.u32 %b, 0xff; mov.u32 %c, 1; lop3.b32 %a, %a, %b, %c, 0x6a;"), 0x79);
    assert_eq!(word("mov.u32 %b, 0xabcdef01; shf.l.wrap.b32 %a, %a, %b, 40;"), 0xcdef_0112);
    assert_eq!(word("mov.u32 %b, 0xabcdef01; shf.l.clamp.b32 %a, %a, %b, 40;"), 0x1234_5678);
    assert_eq!(word("mov.u32 %b, 0xabcdef01; shf.r.wrap.b32 %a, %a, %b, 8;"), 0x0112_3456);
    assert_eq!(word("mov.u32 %b, 0xabcdef01; prmt.b32 %a, %a, %b, 0xf471;"), 0xff01_ab56);
    assert_eq!(word("bfe.u32 %a, %a, 4, 8;"), 0x67);
    assert_eq!(word("bfe.s32 %a, %a, 3, 5;"), 0xf);
    assert_eq!(word("bfe.s32 %a, %a, 6, 4;"), 0xffff_fff9);
    assert_eq!(word("mov.u32 %b, 0; not.b32 %b, %b; bfi.b32 %a, %a, %b, 8, 12;"), 0xfff6_78ff);
    assert_eq!(value("mov.u32 %a, 1; mov.u32 %b, 2; mov.b64 %x, {%a, %b};"), 0x2_0000_0001);
    assert_eq!(value("mov.u64 %y, 0x200000001; mov.b64 {_, %a}, %y; cvt.u64.u32 %x, %a;"), 2);
}

#[test]
fn modes_of_floats() {
    let single = |code: &str| {
        let bits = value(&format!("{code} mov.b32 %a, %f; cvt.u64.u32 %x, %a;"));
        f32::from_bits(u32::try_from(bits).unwrap_or(0))
    };
    let ulp = f32::EPSILON;
    // One, and a little more or less.
    let little = "mov.f32 %f, 0f3f800000; mov.f32 %g, 0f2f800000;";
    assert_eq!(single(&format!("{little} add.f32 %f, %f, %g;")), 1.0);
    assert_eq!(single(&format!("{little} add.rp.f32 %f, %f, %g;")), 1.0 + ulp);
    assert_eq!(single(&format!("{little} sub.rz.f32 %f, %f, %g;")), 1.0 - ulp / 2.0);
    assert_eq!(single(&format!("{little} neg.f32 %g, %g; fma.rm.f32 %f, %f, %f, %g;")), 1.0 - ulp / 2.0);
    assert_eq!(single("mov.f32 %f, 0f00000001; mul.rn.ftz.f32 %f, %f, 0f40000000;"), 0.0);
    assert_eq!(single("mov.f32 %f, 0f40000000; add.sat.f32 %f, %f, %f;"), 1.0);
    assert_eq!(single("mov.f32 %f, 0f7fc00000; cvt.sat.f32.f32 %f, %f;").to_bits(), 0);
    assert_eq!(single("mov.f32 %f, 0f7fc00000; max.f32 %f, %f, 0fbf800000;"), -1.0);
    assert!(single("mov.f32 %f, 0f7fc00000; max.NaN.f32 %f, %f, 0fbf800000;").is_nan());
    assert_eq!(single("mov.f32 %f, 0f80000000; max.f32 %f, %f, 0f00000000;").to_bits(), 0);
    assert_eq!(single("mov.f32 %f, 0f80000000; min.f32 %f, 0f00000000, %f;"), -0.0);
    assert_eq!(single("mov.f32 %f, 0f40200000; cvt.rni.f32.f32 %f, %f;"), 2.0);
    assert_eq!(single("mov.f32 %f, 0fc0200000; cvt.rmi.f32.f32 %f, %f;"), -3.0);
    assert_eq!(single("mov.f32 %f, 0f41100000; sqrt.rn.f32 %f, %f;"), 3.0);
    assert_eq!(single("mov.f32 %f, 0f40400000; ex2.approx.ftz.f32 %f, %f;"), 8.0);
    assert_eq!(single("mov.u32 %a, 0x1000001; cvt.rp.f32.u32 %f, %a;"), 16_777_218.0);
    let is_so = |test: &str| value(&format!("mov.f32 %f, 0f7fc00000; {test} selp.b64 %x, 1, 2, %p;"));
    assert_eq!(is_so("setp.ltu.f32 %p, %f, 0f00000000;"), 1);
    assert_eq!(is_so("setp.neu.f32 %p, 0f00000000, 0f00000000;"), 2);
    assert_eq!(is_so("setp.lt.f32 %q|%p, %f, %f;"), 1, "the opposite");
    assert_eq!(is_so("setp.eq.u32 %q, 1, 1; setp.eq.and.u32 %p, 1, 1, !%q;"), 2);
    assert_eq!(is_so("setp.eq.u32 %q, 1, 1; setp.eq.xor.u32 %p, 1, 2, %q;"), 1);
}

#[test]
fn halves() {
    let half = |code: &str| value(&format!("{code} cvt.u64.u16 %x, %h;"));
    // 1.5 in both formats.
    assert_eq!(half("mov.f32 %f, 0f3fc00000; cvt.rn.f16.f32 %h, %f;"), 0x3e00);
    assert_eq!(half("mov.f32 %f, 0f3fc00000; cvt.rn.bf16.f32 %h, %f;"), 0x3fc0);
    assert_eq!(half("mov.b16 %h, 0x3e00; add.f16 %h, %h, %h;"), 0x4200);
    assert_eq!(half("mov.b16 %h, 0x7bff; add.f16 %h, %h, %h;"), 0x7c00, "infinity");
    assert_eq!(half("mov.b16 %h, 0x3c01; fma.rn.f16 %h, %h, %h, %h;"), 0x4002);
    assert_eq!(half("mov.b16 %h, 0x3e00; neg.f16 %h, %h;"), 0xbe00);
    let pair = |code: &str| value(&format!("{code} cvt.u64.u32 %x, %a;"));
    assert_eq!(pair("mov.b32 %a, 0x3e003c00; add.f16x2 %a, %a, %a;"), 0x4200_4000);
    assert_eq!(pair("mov.b32 %a, 0x3fc03f80; fma.rn.bf16x2 %a, %a, %a, %a;"), 0x4070_4000);
    assert_eq!(pair("mov.f32 %f, 0f3fc00000; cvt.rn.f16x2.f32 %a, %f, 0f3f800000;"), 0x3e00_3c00);
    assert_eq!(pair("mov.b32 %a, 0xbe003c00; mov.b32 %b, 0; max.f16x2 %a, %a, %b;"), 0x3c00);
}

#[test]
fn atomic_operations() {
    // The old value in `%y`, the new one in `%x`.
    let updated = |before: u64, code: &str| {
        let code = format!("mov.u64 %y, 0; mov.u64 %to, 256; st.global.u64 [%to], %x; {code}");
        value(&format!("mov.u64 %x, {before}; {code} ld.global.u64 %x, [%to]; mov.u64 %to, 64;"))
    };
    assert_eq!(updated(5, "atom.global.add.u64 %y, [%to], 3;"), 8);
    assert_eq!(updated(5, "red.relaxed.gpu.global.max.s32 [%to], -1;"), 5);
    assert_eq!(updated(5, "red.global.gpu.max.u32 [%to], 0xffffffff;"), 0xffff_ffff);
    assert_eq!(updated(5, "atom.global.cas.b64 %y, [%to], 5, 9;"), 9);
    assert_eq!(updated(5, "atom.global.cas.b64 %y, [%to], 6, 9;"), 5);
    assert_eq!(updated(5, "atom.exch.b64 %y, [%to], 9;"), 9);
    assert_eq!(updated(5, "atom.global.inc.u32 %a, [%to], 5;"), 0);
    assert_eq!(updated(5, "atom.global.inc.u32 %a, [%to], 6;"), 6);
    assert_eq!(updated(0, "atom.global.dec.u32 _, [%to], 6;"), 6);
    assert_eq!(updated(5, "atom.global.dec.u32 _, [%to], 4;"), 4);
    assert_eq!(updated(0, "atom.global.add.f32 %f, [%to], 0f00000001;"), 0, "subnormal numbers are flushed");
    let shared = ".shared .align 8 .b64 s; mov.u64 %x, 3; st.shared.u64 [s], %x; \
        atom.shared.add.u64 %y, [s], 4; ld.shared.u64 %x, [s]; mad.lo.u64 %x, %x, 100, %y;";
    assert_eq!(value(shared), 703);
    let subnormal = ".shared .f32 s; mov.f32 %f, 0f00000000; st.shared.f32 [s], %f; \
        atom.shared.add.f32 _, [s], 0f00000001; ld.shared.u32 %a, [s]; cvt.u64.u32 %x, %a;";
    assert_eq!(value(subnormal), 1);
}
