//! What may be reused, and what must not.

use super::{KvCase, branch, full, full_and_state, full_and_window, tokens, window};
use crate::kv::manager::{KvManager, KvPrompt, KvRefusal};
use crate::kv::serving::Serving;

pub(super) fn all<M: KvManager>() -> Vec<KvCase<M>> {
    vec![
        KvCase {
            name: "a block is found behind its own parent only",
            reports: "TensorRT-LLM#8830, #8813",
            setup: full,
            blocks: 6,
            run: own_parent,
        },
        KvCase {
            name: "a hit has no holes",
            reports: "llm-d-inference-sim#705, vllm#17398",
            setup: full_and_window,
            blocks: 16,
            run: no_holes,
        },
        KvCase {
            name: "nothing is cached that no hit can reach",
            reports: "sglang#35515, #26907, llama.cpp#24055, #25913",
            setup: full_and_state,
            blocks: 12,
            run: reachable,
        },
        KvCase {
            name: "a finished window is hit where its tokens are",
            reports: "sglang#31486",
            setup: window,
            blocks: 33,
            run: window_ends,
        },
        KvCase {
            name: "blocks are not hit before the step that writes them",
            reports: "vllm#38715, #41838, #37076, #37152",
            setup: full_and_state,
            blocks: 10,
            run: same_step,
        },
        KvCase {
            name: "tenants do not share",
            reports: "CVE-2025-46570, vllm#53347, #39082",
            setup: full,
            blocks: 6,
            run: tenants,
        },
        KvCase {
            name: "the same prompt is reused although blocks do not divide it",
            reports: "vllm#48401, #48402, #40696",
            setup: full_and_state,
            blocks: 8,
            run: twice,
        },
        KvCase {
            name: "a junction is a checkpoint for the third request",
            reports: "vllm#45238, #53749",
            setup: full_and_state,
            blocks: 24,
            run: junction,
        },
        KvCase {
            name: "every length of a prompt is reused up to its last whole unit",
            reports: "sglang#30850, llama.cpp#26063, vllm#45614",
            setup: full_and_state,
            blocks: 8,
            run: every_length,
        },
    ]
}

fn own_parent<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    serving.serve(&tokens(1, 33))?;
    let other = [tokens(2, 16), tokens(1, 33)[16..].to_vec()].concat();
    assert_eq!(serving.probe(&other), 0);
    assert_eq!(serving.probe(&tokens(1, 33)), 32);
    serving.serve(&other)?;
    assert_eq!(serving.probe(&other), 32);
    serving.end();
    Ok(())
}

/// Whatever is evicted, what is still hit has the right content.
fn no_holes<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 81);
    for evictions in 0..6 {
        serving.serve(&prompt)?;
        for _ in 0..evictions {
            serving.manager.evict();
        }
        let expected = serving.probe(&prompt);
        assert_eq!(serving.serve(&prompt)?, expected);
    }
    serving.end();
    Ok(())
}

fn reachable<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompts = [branch(1, 32, 57), branch(2, 32, 60)];
    for prompt in &prompts {
        serving.serve(prompt)?;
    }
    loop {
        let hits: u32 = prompts.iter().map(|prompt| serving.probe(prompt)).sum();
        let cached = serving.manager.books().cached;
        assert_eq!(hits > 0, cached > 0, "{cached} blocks are cached, {hits} tokens can be hit");
        if !serving.manager.evict() {
            break;
        }
    }
    serving.end();
    Ok(())
}

fn window_ends<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 512);
    serving.serve(&prompt)?;
    assert_eq!(serving.probe(&prompt[..257]), 0, "its window was returned");
    for len in [512, 300, 497, 129] {
        serving.serve(&prompt[..len])?;
    }
    serving.end();
    Ok(())
}

fn same_step<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 33);
    let first = serving.admit(&prompt, 1)?;
    serving.append(first, 33)?;
    let second = serving.admit(&prompt, 1)?;
    assert_eq!(serving.running[second].hit, 0);
    serving.append(second, 33)?;
    serving.step();
    serving.end();
    Ok(())
}

fn tenants<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 33);
    let of = |tenant| KvPrompt { tenant, tokens: &prompt, max_new: 1, drafts: 0 };
    for tenant in ["a", "b"] {
        assert_eq!(serving.manager.probe(&of(tenant)), 0);
        let at = serving.admit_by(&of(tenant))?;
        serving.prefill(at)?;
        serving.finish(at);
        serving.settle_all();
        assert_eq!(serving.manager.probe(&of(tenant)), 32);
    }
    serving.end();
    Ok(())
}

fn twice<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    let prompt = tokens(1, 59);
    serving.serve(&prompt)?;
    let hit = serving.serve(&prompt)?;
    assert!(hit >= 32, "{hit} of 59 tokens");
    serving.end();
    Ok(())
}

fn junction<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    serving.serve(&branch(1, 84, 120))?;
    serving.serve(&branch(2, 84, 120))?;
    // The pool must have kept it: smaller ones had to evict it.
    let hit = serving.probe(&branch(3, 84, 120));
    if hit < 80 {
        return Err(KvRefusal::NoRoom);
    }
    assert_eq!(serving.serve(&branch(3, 84, 120))?, 80);
    serving.end();
    Ok(())
}

fn every_length<M: KvManager>(serving: &mut Serving<M>) -> Result<(), KvRefusal> {
    for len in [15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65] {
        let prompt = tokens(len, len);
        serving.serve(&prompt)?;
        let hit = serving.serve(&prompt)?;
        let whole = (len - 1) / 16 * 16;
        assert!(hit <= whole);
        if hit < whole {
            return Err(KvRefusal::NoRoom);
        }
    }
    serving.end();
    Ok(())
}
