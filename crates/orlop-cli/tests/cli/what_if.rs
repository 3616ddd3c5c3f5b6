//! `what-if`, and `replay --policy`.

use super::{complaint, json, orlop, stdout, testdata};
use serde_json::Value;

fn snapshot(name: &str) -> String {
    testdata().join("torch-snapshots").join(format!("{name}.pickle.gz")).display().to_string()
}

#[test]
fn all_settings_are_ranked_and_the_best_is_there_to_paste() {
    let text = stdout(&orlop(&["what-if", &snapshot("gpt-medium_256_inference")]));
    for words in [
        "1,280 of 1,280 by PyTorch's rules",
        "a perfect plan",
        "torch, default settings (as recorded)",
        "tensorflow",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "with the settings of the recorded run it takes",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
}

#[test]
fn as_json_it_is_an_answer_for_each_device() {
    let answers = json(&orlop(&["what-if", "--json", &snapshot("gpt-medium_512_inference")]));
    let answer = &answers[0];
    assert_eq!(answer["fidelity"]["same"], 1666);
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 24);
    let find = |name: &str| rows.iter().find(|row| row["rules"] == name).expect("a row");
    assert!(find("orlop")["ratio"].as_f64().is_some_and(|ratio| ratio < 1.01));
    assert_eq!(find("torch, default settings")["is_baseline"], Value::Bool(true));
    assert!(rows.iter().all(|row| row["smallest"]["runs"].is_u64()));
}

#[test]
fn without_memory_it_says_who_asked_for_how_much() {
    let text = stdout(&orlop(&[
        "what-if",
        "--memory",
        "1.5GiB",
        "--top",
        "2",
        &snapshot("gpt-medium_512_inference"),
    ]));
    assert!(
        text.contains("out of memory") && text.contains("No settings of PyTorch's run in this memory."),
        "{text}"
    );
}

#[test]
fn a_replay_runs_by_any_rules() {
    let file = snapshot("gpt-medium_128_training");
    for policy in ["torch", "orlop", "orlop-segments", "tensorflow"] {
        let outcomes = json(&orlop(&["replay", "--json", "--policy", policy, "--repeat", "2", &file]));
        assert_eq!(outcomes[0]["out_of_memory"], Value::Null);
        let less = stdout(&orlop(&["replay", "--policy", policy, "--memory", "6 GiB", &file]));
        assert!(less.contains("out of memory at event"), "{less}");
    }
    let conf =
        ["replay", "--policy", "torch", "--conf", "expandable_segments:True", "--memory", "80GiB", &file];
    assert!(stdout(&orlop(&conf)).contains("torch, expandable_segments:True"));
}

#[test]
fn settings_that_are_none_are_refused() {
    let file = snapshot("gpt-medium_128_training");
    let told = complaint(&orlop(&["replay", "--policy", "torch", "--conf", "colour:blue", &file]), 1);
    assert!(told.contains("colour is not a setting of PyTorch's CUDA allocator"), "{told}");
    let told = complaint(&orlop(&["what-if", "--device", "7", &file]), 1);
    assert!(told.contains("nothing was recorded on that device"), "{told}");
}
