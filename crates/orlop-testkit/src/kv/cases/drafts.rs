//! Drafts, and tokens that are taken back.

use super::{KvCase, full, full_and_window, full_in_units_of_4, tokens};
use crate::kv::manager::{KvManager, KvPrompt, KvRefusal};
use crate::kv::serving::Serving;

pub(super) fn all<M: KvManager>() -> Vec<KvCase<M>> {
    vec![
        KvCase {
            name: "drafts have slots of their own",
            reports: "vllm#16370",
            setup: full,
            blocks: 2,
            run: draft_slots,
        },
        KvCase {
            name: "a rejection comes after the next step was scheduled",
            reports: "openvino.genai#4190, vllm#18668",
            setup: full_in_units_of_4,
            blocks: 7,
            run: late_rejections,
        },
        KvCase {
            name: "tokens that are replaced leave no key behind",
            reports: "vllm#49449",
            setup: full,
            blocks: 4,
            run: replaced_tokens,
        },
        KvCase {
            name: "what a window has given back is refused, or computed again",
            reports: "llama.cpp#19225, #20671, #29045, mlx-vlm#1715",
            setup: full_and_window,
            blocks: 24,
            run: rewound_windows,
        },
    ]
}

/// Wherever the last block ends: a row has the blocks of all drafts.
fn draft_slots<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    for len in 12..=17 {
        let prompt = tokens(len, len);
        let request = KvPrompt { tenant: "", tokens: &prompt, max_new: 8, drafts: 4 };
        let at = serving.admit_by(&request)?;
        serving.prefill(at)?;
        serving.append_drafts(at, 4)?;
        serving.step();
        serving.abort(at);
        serving.end();
    }
    Ok(())
}

fn late_rejections<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompts = [tokens(1, 13), tokens(2, 14)];
    for prompt in &prompts {
        serving.admit_by(&KvPrompt { tenant: "", tokens: prompt, max_new: 32, drafts: 4 })?;
    }
    serving.prefill(0)?;
    serving.prefill(1)?;
    for accepted in 0..=4 {
        let before = serving.running[0].scheduled;
        serving.append_drafts(0, 4)?;
        serving.step();
        // The other sequence goes on before the result is known.
        serving.append(1, 1)?;
        serving.step();
        serving.truncate(0, before + 1 + accepted)?;
    }
    serving.append(0, 3)?;
    serving.step();
    let text = serving.running[0].tokens[..serving.running[0].scheduled as usize].to_vec();
    serving.finish(0);
    serving.settle_all();
    serving.serve(&[text, vec![1]].concat())?;
    serving.end();
    Ok(())
}

fn replaced_tokens<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let at = serving.admit(&tokens(1, 15), 20)?;
    serving.prefill(at)?;
    serving.append(at, 1)?;
    serving.step();
    let before = serving.running[at].tokens.clone();
    // Another text follows the prompt, if the manager takes back what is cached.
    match serving.truncate(at, 15) {
        Err(KvRefusal::CannotReturn) => return Ok(()),
        result => result?,
    }
    serving.append(at, 4)?;
    serving.step();
    let after = serving.running[at].tokens[..19].to_vec();
    assert!(before.len() == 16 && before[15] != after[15]);
    serving.finish(at);
    serving.settle_all();
    assert_eq!(serving.serve(&[after, vec![1]].concat())?, 16);
    // The first text may be cached in a block of its own, not in that of the other.
    serving.serve(&[before, vec![1]].concat())?;
    serving.end();
    Ok(())
}

fn rewound_windows<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 120);
    for len in [119, 113, 112, 111, 97, 96, 64, 33, 8, 1] {
        let at = serving.admit(&prompt, 24)?;
        serving.prefill(at)?;
        match serving.truncate(at, len) {
            // Whatever it returned to, the kernels find its tokens.
            Ok(()) => serving.prefill(at)?,
            Err(KvRefusal::CannotReturn) => serving.append(at, 1)?,
            Err(refusal) => return Err(refusal),
        }
        serving.step();
        serving.abort(at);
        serving.end();
    }
    Ok(())
}
