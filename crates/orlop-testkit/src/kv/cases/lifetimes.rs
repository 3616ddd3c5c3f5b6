//! Blocks that are freed too early, too late or twice, or written while others read them.

use super::{KvCase, full, full_and_state, full_in_units_of_4, tokens, window};
use crate::kv::manager::{KvManager, KvRefusal};
use crate::kv::serving::Serving;

pub(super) fn all<M: KvManager>() -> Vec<KvCase<M>> {
    vec![
        KvCase {
            name: "a sequence that ends before its blocks settle is never found",
            reports: "TensorRT-LLM#15018, #12933",
            setup: full,
            blocks: 3,
            run: dropped_before_settling,
        },
        KvCase {
            name: "a window returns each block once",
            reports: "unified-cache-management#1053, vllm-ascend#10922",
            setup: window,
            blocks: 7,
            run: window_returns_once,
        },
        KvCase {
            name: "a shared partial block is copied before it is written",
            reports: "TensorRT-LLM#12306",
            setup: full_in_units_of_4,
            blocks: 6,
            run: forks_write_apart,
        },
        KvCase {
            name: "a page is not handed out while a step may access it",
            reports: "vllm#47282, #47291, #50863",
            setup: full,
            blocks: 4,
            run: reused_in_flight::<M>,
        },
        KvCase {
            name: "a state is not rewritten while a step may access it",
            reports: "vllm#45096, #37285",
            setup: full_and_state,
            blocks: 6,
            run: reused_in_flight::<M>,
        },
        KvCase {
            name: "a lookup pins nothing",
            reports: "vllm#44100",
            setup: full,
            blocks: 4,
            run: probes_pin_nothing,
        },
        KvCase {
            name: "preempted and resumed sequences",
            reports: "vllm#52211",
            setup: full_and_state,
            blocks: 12,
            run: preempted,
        },
    ]
}

fn dropped_before_settling<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 48);
    let at = serving.admit(&prompt, 1)?;
    serving.append(at, 48)?;
    serving.abort(at);
    assert_eq!(serving.probe(&[prompt.clone(), vec![1]].concat()), 0);
    serving.step();
    serving.settle_all();
    assert_eq!(serving.probe(&[prompt, vec![1]].concat()), 0, "it was never computed");
    assert_eq!(serving.free(), serving.setup.blocks);
    Ok(())
}

fn window_returns_once<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let at = serving.admit(&tokens(1, 16), 200)?;
    serving.prefill(at)?;
    for _ in 16..200 {
        serving.append(at, 1)?;
        serving.step();
    }
    let held = serving.setup.blocks - serving.free();
    assert!(held <= 6 + serving.setup.lag, "{held} blocks for a window of 4");
    serving.abort(at);
    serving.end();
    Ok(())
}

fn forks_write_apart<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let parent = serving.admit(&tokens(1, 36), 8)?;
    serving.prefill(parent)?;
    for family in 2..5 {
        let fork = serving.fork(parent, 44)?;
        let others = (0..4).map(|at| family * 100_000 + at);
        serving.running[fork].tokens.extend(others);
    }
    for _ in 0..4 {
        for at in 0..serving.running.len() {
            serving.append(at, 1)?;
        }
        serving.step();
    }
    serving.end();
    Ok(())
}

/// Steps that still run read what they were given, whatever is admitted meanwhile.
fn reused_in_flight<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    for round in 0..6 {
        let at = serving.admit(&tokens(round, 20), 2)?;
        serving.append(at, 20)?;
        serving.step();
        if round % 2 == 0 {
            serving.abort(at);
        } else {
            serving.finish(at);
        }
        let next = serving.admit(&tokens(100 + round, 17), 1)?;
        serving.append(next, 17)?;
        serving.step();
        serving.abort(next);
    }
    serving.end();
    Ok(())
}

fn probes_pin_nothing<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let cached = tokens(1, 64);
    serving.serve(&cached)?;
    for _ in 0..50 {
        serving.probe(&cached);
    }
    // All blocks are needed.
    let blocks = serving.setup.blocks;
    let at = serving.admit(&tokens(2, 16 * blocks), 1)?;
    serving.prefill(at)?;
    assert_eq!(serving.free(), 0);
    serving.end();
    Ok(())
}

fn preempted<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let mut prompt = tokens(1, 40);
    for round in 0..4 {
        let at = serving.admit(&prompt, 12)?;
        serving.prefill(at)?;
        for _ in 0..5 {
            serving.append(at, 1)?;
            serving.step();
        }
        prompt = serving.running[at].tokens.clone();
        serving.finish(at);
        // Another one takes the room.
        let other = serving.admit(&tokens(10 + round, 33), 1)?;
        serving.prefill(other)?;
        serving.abort(other);
    }
    serving.end();
    Ok(())
}
