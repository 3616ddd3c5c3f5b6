//! Calls.

use super::{ONE, Words, arguments, failure, module};
use crate::codes::Failure;
use crate::ptx::Fault;

const ADD: &str = ".func (.param .b64 r) add(.param .b64 a, .param .align 4 .b8 b[8]) { \
    .reg .b64 %x, %y; .reg .b32 %a; ld.param.u64 %x, [a]; ld.param.u32 %a, [b+4]; \
    cvt.u64.u32 %y, %a; add.u64 %x, %x, %y; st.param.b64 [r+0], %x; ret; }";

#[test]
fn calls() {
    let run = |functions: &str, code: &str| {
        let body = format!("mov.u64 %to, 64; {code} st.global.u64 [%to], %x; ret;");
        let parsed = module(functions, &body).unwrap_or_else(|error| panic!("{error}"));
        let mut words = Words::default();
        let ended = failure(parsed.execute(ONE, 0, &arguments(), &mut words));
        ended.map(|()| words.0[&64])
    };
    let call = "{ .param .b64 a; .param .align 4 .b8 b[8]; .param .b64 r; st.param.b64 [a+0], 40; \
        st.param.b32 [b+4], 2; call.uni (r), add, (a, b); ld.param.b64 %x, [r+0]; }";
    assert_eq!(run(ADD, call), Ok(42));
    let twice = format!("{call} mov.u64 %y, %x; {call} add.u64 %x, %x, %y;");
    assert_eq!(run(ADD, &twice), Ok(84), "each block has its own names");
    // Factorials, with a local variable of each frame and its generic address.
    let factorial = ".func (.param .b64 r) f(.param .b64 n) { .local .align 8 .b8 depot[8]; \
        .reg .b64 %n, %m, %l, %g; .reg .pred %p; ld.param.b64 %n, [n]; mov.u64 %l, depot; \
        cvta.local.u64 %g, %l; st.u64 [%g], %n; setp.le.u64 %p, %n, 1; @%p bra ONE; \
        sub.u64 %m, %n, 1; { .param .b64 a; .param .b64 b; st.param.b64 [a], %m; call (b), f, (a); \
        ld.param.b64 %m, [b]; } ld.local.u64 %n, [depot]; mul.lo.u64 %n, %n, %m; \
        ONE: st.param.b64 [r], %n; ret; }";
    let of = |n: u32| {
        format!(
            "{{ .param .b64 a; .param .b64 b; st.param.b64 [a], {n}; call (b), f, (a); \
             ld.param.b64 %x, [b]; }}"
        )
    };
    assert_eq!(run(factorial, &of(10)), Ok(3_628_800));
    assert_eq!(run(factorial, &of(2000)), Err(Failure::HARDWARE_STACK_ERROR));
    let endless = ".func f() { call f; ret; }";
    assert_eq!(run(endless, "call f;"), Err(Failure::HARDWARE_STACK_ERROR));
    let exit = ".func f() { exit; }";
    let parsed = module(exit, "call f; trap;").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(parsed.execute(ONE, 0, &arguments(), &mut Words::default()), Ok(()), "of the thread");
    let trapped = module(
        "", "
 trap;",
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let ended = trapped.execute(ONE, 0, &arguments(), &mut Words::default());
    assert_eq!(ended, Err(Fault { failure: Failure::LAUNCH_FAILED, place: "main, line 2".into() }));
    // A variable of a frame that is gone.
    let dangling = ".func (.param .b64 r) f() { .local .align 8 .b8 d[8]; .reg .b64 %l; mov.u64 %l, d; \
        cvta.local.u64 %l, %l; st.param.b64 [r], %l; ret; }";
    let use_it = "{ .param .b64 r; call (r), f; ld.param.b64 %y, [r]; } ld.u64 %x, [%y];";
    assert_eq!(run(dangling, use_it), Err(Failure::ILLEGAL_ADDRESS));
}
