//! Pools that are full: what is refused leaves nothing behind, and does not stop what fits.

use super::{KvCase, branch, full, full_and_state, full_and_window, tokens};
use crate::kv::manager::{KvManager, KvRefusal};
use crate::kv::serving::Serving;

pub(super) fn all<M: KvManager>() -> Vec<KvCase<M>> {
    vec![
        KvCase {
            name: "an admission that fails takes no state",
            reports: "sglang#15840, #16067",
            setup: full_and_state,
            blocks: 4,
            run: refused_states,
        },
        KvCase {
            name: "a request that does not fit does not stop smaller ones",
            reports: "vllm#31731, #36390, kestrel#135",
            setup: full,
            blocks: 3,
            run: smaller_ones,
        },
        KvCase {
            name: "a queue drains in every pool that holds its largest request",
            reports: "inference-sim#297, mistral.rs#1470",
            setup: full,
            blocks: 3,
            run: queue_drains,
        },
        KvCase {
            name: "evictions do not take what a running sequence reads",
            reports: "TensorRT-LLM#699, LMCache#443",
            setup: full_and_window,
            blocks: 12,
            run: evicted_under_use,
        },
        KvCase {
            name: "tails that were evicted are computed again",
            reports: "sglang#27586, #29860",
            setup: full_and_window,
            blocks: 20,
            run: tails_again,
        },
        KvCase {
            name: "a prompt that comes again while its steps are in flight",
            reports: "LMCache#5248, sglang#29471",
            setup: full_and_state,
            blocks: 12,
            run: again_in_flight,
        },
        KvCase {
            name: "a sequence that ends beside its last step is freed once",
            reports: "sglang#17797, #18694, sglang-jax#982",
            setup: full,
            blocks: 3,
            run: ends_beside_its_step,
        },
    ]
}

fn refused_states<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let mut admitted = 0;
    for family in 0..40 {
        if serving.admit(&tokens(family, 17), 1).is_ok() {
            admitted += 1;
        }
    }
    for at in 0..admitted {
        serving.append(at, 17)?;
        serving.step();
    }
    serving.end();
    if admitted == 0 { Err(KvRefusal::NoRoom) } else { Ok(()) }
}

fn smaller_ones<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let blocks = serving.setup.blocks;
    if blocks < 3 {
        return Err(KvRefusal::NoRoom);
    }
    let running = serving.admit(&tokens(1, 16 * (blocks - 1)), 1)?;
    serving.prefill(running)?;
    assert_eq!(serving.admit(&tokens(2, 16 * (blocks - 1)), 1), Err(KvRefusal::NoRoom));
    let small = serving.admit(&tokens(3, 16), 1)?;
    serving.prefill(small)?;
    serving.end();
    Ok(())
}

fn queue_drains<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let lengths = [40, 10, 33, 16, 40, 1, 25, 40];
    let mut waiting: Vec<Vec<u32>> = (1..).zip(lengths).map(|(family, len)| tokens(family, len)).collect();
    waiting.reverse();
    for _ in 0..100 {
        while let Some(prompt) = waiting.last() {
            match serving.admit(prompt, 8) {
                Ok(_) => waiting.pop(),
                Err(KvRefusal::Never) => return Err(KvRefusal::Never),
                Err(_) => break,
            };
        }
        for at in (0..serving.running.len()).rev() {
            let running = &serving.running[at];
            let rest = u32::try_from(running.tokens.len()).unwrap_or(0) - running.scheduled;
            if rest > 0 {
                assert_eq!(serving.append(at, rest), Ok(()), "it was admitted");
            } else if !running.tokens.len().is_multiple_of(8) {
                assert_eq!(serving.append(at, 1), Ok(()), "it was admitted");
            } else {
                serving.finish(at);
            }
        }
        serving.step();
    }
    assert!(waiting.is_empty() && serving.running.is_empty(), "{} requests wait", waiting.len());
    serving.end();
    Ok(())
}

fn evicted_under_use<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 65);
    serving.serve(&prompt)?;
    let at = serving.admit(&[prompt, tokens(2, 15)].concat(), 1)?;
    while serving.manager.evict() {}
    serving.prefill(at)?;
    // What is evicted goes to others at once.
    let free = serving.free();
    let other = serving.admit(&tokens(3, (8 * free).clamp(1, 16)), 1);
    if let Ok(other) = other {
        serving.prefill(other)?;
    }
    serving.end();
    Ok(())
}

fn tails_again<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompts = [branch(1, 50, 81), branch(2, 50, 90), branch(3, 20, 70)];
    for evictions in 0..8 {
        for prompt in &prompts {
            let expected = serving.probe(prompt);
            assert!(serving.serve(prompt)? <= expected);
            for _ in 0..evictions {
                serving.manager.evict();
            }
        }
    }
    serving.end();
    Ok(())
}

fn again_in_flight<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 50);
    for round in 0..6 {
        let at = serving.admit(&prompt, 4)?;
        let rest = 50 - serving.running[at].scheduled;
        serving.append(at, rest.min(10 + 8 * round))?;
        serving.step();
        // It is preempted, and comes back at once.
        serving.abort(at);
        let at = serving.admit(&prompt, 4)?;
        serving.append(at, 1)?;
        serving.step();
        serving.abort(at);
    }
    serving.serve(&prompt)?;
    serving.end();
    Ok(())
}

fn ends_beside_its_step<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    for len in [15, 16, 17, 31, 32] {
        let at = serving.admit(&tokens(len, len), 3)?;
        serving.append(at, len)?;
        serving.step();
        serving.append(at, 1)?;
        // Its last step is closed by its end, and may be in flight.
        serving.finish(at);
        let next = serving.admit(&tokens(100 + len, 16), 1);
        if let Ok(next) = next {
            serving.append(next, 16)?;
            serving.abort(next);
        }
        serving.end();
    }
    Ok(())
}
