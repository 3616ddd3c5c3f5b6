//! What threads of a warp do together.

use super::{ONE, Words, arguments, failure, program};
use crate::codes::Failure;
use crate::ptx::{Fault, Shape};

/// Runs code with `%a`, the number of the thread, in one block. Returns `%b` of each thread.
fn of_threads(threads: u32, code: &str) -> Result<Vec<u64>, Fault> {
    let body =
        format!("mov.u32 %a, %tid.x; {code} mul.wide.u32 %to, %a, 4; st.global.u32 [%to+4096], %b; ret;");
    let parsed = program(&body).unwrap_or_else(|error| panic!("{error}"));
    let (mut words, shape) = (Words::default(), Shape { grid: [1; 3], block: [threads, 1, 1] });
    parsed.execute(shape, 0, &arguments(), &mut words)?;
    Ok(words.0.into_values().collect())
}

#[test]
fn shuffles_and_votes() {
    let run = |code: &str| of_threads(32, code).unwrap_or_else(|fault| panic!("{code}: {fault:?}"));
    let lanes = |from: fn(u64) -> u64| (0..32).map(from).collect::<Vec<_>>();
    let shuffled = |how: &str| run(&format!("shfl.sync.{how}, -1;"));
    assert_eq!(shuffled("down.b32 %b, %a, 4, 31"), lanes(|lane| if lane < 28 { lane + 4 } else { lane }));
    assert_eq!(shuffled("up.b32 %b, %a, 4, 0"), lanes(|lane| if lane < 4 { lane } else { lane - 4 }));
    assert_eq!(shuffled("bfly.b32 %b, %a, 5, 31"), lanes(|lane| lane ^ 5));
    assert_eq!(shuffled("idx.b32 %b, %a, 3, 31"), lanes(|_| 3));
    // Segments of eight lanes.
    assert_eq!(shuffled("idx.b32 %b, %a, 3, 0x181f"), lanes(|lane| lane / 8 * 8 + 3));
    let down = lanes(|lane| if lane % 8 < 6 { lane + 2 } else { lane });
    assert_eq!(shuffled("down.b32 %b, %a, 2, 0x181f"), down);
    let valid = "shfl.sync.down.b32 %b|%p, %a, 4, 31, -1; selp.u32 %b, 1, 0, %p;";
    assert_eq!(run(valid), lanes(|lane| u64::from(lane < 28)));

    let odd = "and.b32 %c, %a, 1; setp.eq.u32 %p, %c, 1;";
    assert_eq!(run(&format!("{odd} vote.sync.ballot.b32 %b, %p, -1;")), lanes(|_| 0xaaaa_aaaa));
    assert_eq!(run(&format!("{odd} vote.sync.ballot.b32 %b, !%p, -1;")), lanes(|_| 0x5555_5555));
    let vote = |how: &str| run(&format!("{odd} vote.sync.{how}.pred %q, %p, -1; selp.u32 %b, 1, 0, %q;"));
    assert_eq!([vote("all"), vote("any"), vote("uni")], [lanes(|_| 0), lanes(|_| 1), lanes(|_| 0)]);
    // Each half of the warp on its own.
    let halves = format!("{odd} mov.u32 %c, 0xaaaaaaaa; @!%p mov.u32 %c, 0x55555555;");
    let of_half = run(&format!("{halves} vote.sync.uni.pred %q, %p, %c; selp.u32 %b, 1, 0, %q;"));
    assert_eq!(of_half, lanes(|_| 1));
    let sums = run(&format!("{halves} redux.sync.add.u32 %b, %a, %c;"));
    assert_eq!(sums, lanes(|lane| if lane % 2 == 0 { 240 } else { 256 }));
    let smallest = "sub.u32 %c, %a, 5; redux.sync.min.s32 %b, %c, -1;";
    assert_eq!(run(smallest), lanes(|_| 0xffff_fffb));
    let same = run("shr.u32 %c, %a, 2; match.any.sync.b32 %b, %c, -1;");
    assert_eq!(same, lanes(|lane| 0xf << (lane / 4 * 4)));
    let all = "match.all.sync.b32 %b|%p, 7, -1; @!%p mov.u32 %b, 9;";
    assert_eq!(run(all), lanes(|_| 0xffff_ffff));
    assert_eq!(run("match.all.sync.b32 %b, %a, -1;"), lanes(|_| 0));
    assert_eq!(run("activemask.b32 %b; shr.u32 %b, %b, %a;"), lanes(|_| 1));
    assert_eq!(run("mov.u32 %b, %lanemask_lt; popc.b32 %b, %b;"), lanes(|lane| lane));
    assert_eq!(run("mov.u32 %b, %lanemask_ge; popc.b32 %b, %b;"), lanes(|lane| 32 - lane));
}

#[test]
fn threads_that_do_not_meet() {
    let ended = |threads: u32, code: &str| of_threads(threads, code).map_err(|fault| fault.failure);
    let some = "setp.lt.u32 %p, %a, 8; mov.u32 %b, 0;";
    // Of those that have ended, nothing is expected.
    assert!(ended(32, &format!("{some} @%p ret; bar.warp.sync -1;")).is_ok());
    assert!(ended(8, "mov.u32 %b, 0; bar.warp.sync -1;").is_ok(), "there are no others");
    assert_eq!(ended(32, &format!("{some} @%p bar.warp.sync -1; bar.sync 0;")), Err(Failure::LAUNCH_TIMEOUT));
    assert_eq!(ended(32, &format!("{some} @%p bar.warp.sync 0xff; bar.sync 0;")).map(|_| ()), Ok(()));
    assert_eq!(ended(32, "mov.u32 %b, 0; bar.warp.sync 0xff;"), Err(Failure::ILLEGAL_INSTRUCTION));
    let other =
        "setp.eq.u32 %p, %a, 0; @%p vote.sync.any.pred %q, %p, -1; @!%p bar.warp.sync -1; mov.u32 %b, 0;";
    assert_eq!(ended(32, other), Err(Failure::LAUNCH_TIMEOUT));
    // The value of a thread that does not take part is not known.
    let outside = "setp.lt.u32 %p, %a, 8; mov.u32 %b, 0; @%p shfl.sync.down.b32 %b, %a, 4, 31, 0xff; \
                   setp.eq.u32 %q, %b, 9; @%q trap;";
    assert_eq!(ended(32, outside), Err(Failure::NOT_SUPPORTED));
    for endless in ["A: bar.sync 0; bra A;", "A: bar.warp.sync -1; bra A;"] {
        let endless = program(endless).unwrap_or_else(|error| panic!("{error}"));
        let mut budget = 1 << 16;
        let ended = endless.execute_within(ONE, 0, &arguments(), &mut Words::default(), &mut budget);
        assert_eq!(failure(ended), Err(Failure::LAUNCH_TIMEOUT));
    }
}
