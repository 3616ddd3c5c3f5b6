//! Admission, rows, drafts, and one request's failure.

use super::{KvCase, full, full_and_state, full_and_window, tokens, window};
use crate::kv::manager::{KvManager, KvPrompt, KvRefusal};
use crate::kv::serving::Serving;

pub(super) fn all<M: KvManager>() -> Vec<KvCase<M>> {
    vec![
        KvCase {
            name: "what never fits is refused at once",
            reports: "vllm#39734",
            setup: full,
            blocks: 1,
            run: never,
        },
        KvCase {
            name: "the last token is not written",
            reports: "pegainfer kv-admission",
            setup: full,
            blocks: 2,
            run: last_token,
        },
        KvCase {
            name: "one failure is one request's",
            reports: "atlas#375, pegainfer#254",
            setup: full,
            blocks: 8,
            run: one_failure,
        },
        KvCase {
            name: "drafts evict like every other append",
            reports: "atlas#1114",
            setup: full,
            blocks: 3,
            run: drafts_evict,
        },
        KvCase {
            name: "rejected drafts do not move the window",
            reports: "vllm#47728",
            setup: window,
            blocks: 14,
            run: rejected_in_window,
        },
        KvCase {
            name: "a state over rejected drafts is not kept",
            reports: "vllm#53912, #57128, mlx-lm#1109",
            setup: full_and_state,
            blocks: 8,
            run: rejected_state,
        },
        KvCase {
            name: "indices are absolute",
            reports: "mlxcel#195, #196, #215",
            setup: full_and_window,
            blocks: 24,
            run: absolute,
        },
        KvCase {
            name: "two sequences that fit both finish",
            reports: "vllm#57104, #45388",
            setup: full,
            blocks: 5,
            run: both_finish,
        },
    ]
}

fn never<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 16 * (serving.setup.blocks + 1));
    assert_eq!(serving.admit(&prompt, 1), Err(KvRefusal::Never));
    let at = serving.admit(&prompt[..16 * serving.setup.blocks as usize], 1)?;
    serving.prefill(at)?;
    serving.end();
    Ok(())
}

fn last_token<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 16);
    let blocks = serving.setup.blocks;
    // One block for a token, two blocks for two.
    for (count, max_new, needed) in [(blocks, 1, 1), (blocks / 2, 2, 2)] {
        for _ in 0..count {
            serving.admit(&prompt, max_new)?;
        }
        let full = serving.admit(&prompt, max_new);
        assert_eq!(full.is_err(), (count + 1) * needed > blocks);
        serving.end();
    }
    if blocks == 1 { Err(KvRefusal::NoRoom) } else { Ok(()) }
}

fn one_failure<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    for family in 0..8 {
        let at = serving.admit(&tokens(family, 16), 1)?;
        serving.prefill(at)?;
    }
    let room = serving.free();
    let appended = (0..8).filter(|&at| serving.append(at, 1).is_ok()).count();
    assert_eq!(appended, room.min(8) as usize);
    serving.step();
    serving.end();
    Ok(())
}

fn drafts_evict<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 16);
    let request = KvPrompt { tenant: "", tokens: &prompt, max_new: 12, drafts: 4 };
    let at = serving.admit_by(&request)?;
    serving.prefill(at)?;
    // The cache takes the rest.
    for family in 2..2 + serving.setup.blocks {
        serving.serve(&tokens(family, 16))?;
    }
    serving.append_drafts(at, 4)?;
    serving.step();
    serving.truncate(at, 18)?;
    serving.append(at, 1)?;
    serving.step();
    serving.end();
    Ok(())
}

fn rejected_in_window<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 128);
    let at = serving.admit_by(&KvPrompt { tenant: "", tokens: &prompt, max_new: 40, drafts: 16 })?;
    serving.prefill(at)?;
    for _ in 0..4 {
        let len = serving.running[at].scheduled;
        serving.append_drafts(at, 16)?;
        serving.step();
        // The last ones are rejected before the step has settled, or after.
        serving.truncate(at, len + 1)?;
    }
    serving.append(at, 2)?;
    serving.step();
    serving.end();
    Ok(())
}

fn rejected_state<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 14);
    let at = serving.admit_by(&KvPrompt { tenant: "", tokens: &prompt, max_new: 30, drafts: 7 })?;
    serving.prefill(at)?;
    for accepted in [3, 1, 7] {
        let len = serving.running[at].scheduled;
        serving.append_drafts(at, 7)?;
        serving.step();
        match serving.truncate(at, len + accepted) {
            // States go back to a checkpoint, and the rest is computed again.
            Ok(()) => serving.prefill(at)?,
            Err(KvRefusal::CannotReturn) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    let text = serving.running[at].tokens.clone();
    serving.finish(at);
    serving.settle_all();
    serving.serve(&text)?;
    serving.end();
    Ok(())
}

fn absolute<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let at = serving.admit(&tokens(1, 120), 10)?;
    serving.prefill(at)?;
    for _ in 0..3 {
        serving.append(at, 1)?;
        serving.step();
    }
    let table = serving.manager.table(&serving.running[at].handle, 1);
    let tail = table.last().copied().flatten();
    assert!(table.len() == 8 && tail.is_some());
    serving.settle_all();
    serving.truncate(at, 121)?;
    let table = serving.manager.table(&serving.running[at].handle, 1);
    assert_eq!((table.len(), table.last().copied().flatten()), (8, tail), "the tail stays");
    serving.append(at, 1)?;
    serving.step();
    serving.end();
    Ok(())
}

fn both_finish<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompts = [tokens(1, 20), tokens(2, 30)];
    let mut waiting = prompts.iter();
    let mut next = waiting.next();
    let mut done = 0;
    for _ in 0..200 {
        if let Some(prompt) = next
            && serving.admit(prompt, 30).is_ok()
        {
            next = waiting.next();
        }
        if serving.running.is_empty() {
            break;
        }
        // What was admitted needs nothing more.
        for at in (0..serving.running.len()).rev() {
            let running = &serving.running[at];
            let rest = u32::try_from(running.tokens.len()).unwrap_or(0) - running.scheduled;
            if rest == 0 && running.scheduled + 1 > running.hit.max(49) {
                serving.finish(at);
                done += 1;
                continue;
            }
            let tokens = rest.max(1);
            assert_eq!(serving.append(at, tokens), Ok(()), "it was admitted");
        }
        serving.step();
    }
    serving.end();
    if done == 2 { Ok(()) } else { Err(KvRefusal::NoRoom) }
}
