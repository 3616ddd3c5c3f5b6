//! Runs the example `decode` in this process, whose heap it counts, and checks what it found.
#![cfg(not(any(miri, loom)))]

#[path = "../examples/decode/main.rs"]
#[expect(dead_code, reason = "the program's `main` and its arguments")]
mod decode;

use orlop::kv::MissCause;

/// `run` compares the scores of every token with those of the model without plan and cache.
#[test]
fn a_decoder_with_plan_and_cache_computes_what_one_without_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("memory.html");
    let summary = decode::run(Some(&page)).expect("the scores are equal");
    println!("{summary}");
    summary.verify().expect("memory as planned, steps without allocations, eviction and preemption");
    assert!(summary.kv.hit_tokens > 0 && summary.kv.missed_tokens(MissCause::Evicted) > 0, "{summary}");
    assert!(summary.tokens > summary.steps, "several texts advance in a step: {summary}");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.contains("<title>orlop: decode</title>"));
}
