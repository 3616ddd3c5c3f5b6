//! `orlop kv`.

use super::{Folder, complaint, orlop, stdout, testdata, unwrapped};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};

fn trace(name: &str) -> String {
    testdata().join("kv-traces").join(name).display().to_string()
}

fn report(arguments: &[&str]) -> Value {
    let output = orlop(&[&["kv", "--json"], arguments].concat());
    serde_json::from_str(&stdout(&output)).expect("an object")
}

/// Returns the reused share of a row, in percent.
fn reused(report: &Value, row: &str) -> f64 {
    let rows = report["rows"].as_array().expect("rows");
    let row = rows.iter().find(|found| found["name"] == row).expect("the row");
    let number = |name: &str| row["reuse"][name].as_f64().expect("a number");
    100.0 * number("reused") / number("prompt_tokens")
}

#[test]
fn the_verdict_comes_first_and_tables_fit_the_terminal() {
    let file = trace("mooncake_conversation.jsonl.gz");
    let output = orlop(&["kv", &file, "--model", "jamba-v0.1", "--pool", "1GiB"]);
    let (text, whole) = (stdout(&output), unwrapped(&output));
    let verdict: Vec<&str> = whole.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(verdict.len(), 3, "{text}");
    assert!(verdict[0].starts_with("1.00 GiB hold ") && verdict[0].ends_with("never fit."), "{text}");
    assert!(verdict[1].contains(" of the prompt tokens are reused, of "), "{text}");
    assert!(verdict[2].starts_with("In 4.00 GiB, ") && verdict[2].ends_with('.'), "{text}");
    assert!(text.contains("\n\n") && text.contains(", jamba-v0.1\n"), "{text}");
    assert!(text.contains("unified pages") && !text.contains("all layers full"), "{text}");
    // The path of the trace is not wrapped.
    let tables = text.lines().filter(|line| !line.contains(&file));
    let widest = tables.map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(widest <= 80, "{widest} columns:\n{text}");
    let line = r#"{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}"#;
    let folder = Folder::with(&[("two.jsonl", &format!("{line}\n{line}\n"))]);
    let wide = stdout(&orlop(&["kv", &folder.path("two.jsonl"), "--model", "llama-3-8b", "--wide"]));
    assert!(wide.contains("requests refused") && wide.contains("42.7%"), "{wide}");
}

/// Larger pools reuse more, until all that repeats is reused; states need checkpoints for it.
#[test]
fn the_figures_agree_with_each_other() {
    let file = trace("mooncake_conversation.jsonl.gz");
    let report = report(&[&file, "--model", "qwen3-next-80b", "--pool", "2GiB"]);
    let share = |name: &str| reused(&report, name);
    let repeated = report["repeated_tokens"].as_f64().expect("a number");
    let repeated = 100.0 * repeated / report["prompt_tokens"].as_f64().expect("a number");
    let [asked, four, sixteen] = ["as asked", "a pool of 8.00 GiB", "a pool of 32.0 GiB"].map(share);
    assert!(asked <= four && four <= sixteen && sixteen <= repeated, "{asked} {four} {sixteen} {repeated}");
    assert!(repeated - sixteen < 0.1, "everything fits: {sixteen} {repeated}");
    assert!(share("pages of 4,096 tokens") < asked);
    let occupancy = &report["occupancy"];
    let [held, needed] = ["peak_held", "peak_needed"].map(|name| occupancy[name].as_f64().expect("bytes"));
    assert!(held >= needed && held <= 1.03 * needed, "{held} of {needed}");
    let scheme = &occupancy["schemes"][0];
    assert!(scheme["scheme"] == "unified pages" && scheme["bytes"].as_f64() > Some(needed));
}

#[test]
fn a_table_of_lengths_and_a_model_from_a_file() {
    let folder = Folder::with(&[
        (
            "config.json",
            r#"{"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
                "num_key_value_heads": 8, "torch_dtype": "bfloat16"}"#,
        ),
        ("bad.json", r#"{"groups": [{"kind": "ring", "layers": 1, "bytes": 1}]}"#),
        ("bad.csv", "input_tokens,output_tokens\n1,x\n"),
    ]);
    let file = trace("azure_conv_2023.csv.gz");
    let config = folder.path("config.json");
    let (own, known) = (report(&[&file, "--model", &config]), report(&[&file, "--model", "llama-3-8b"]));
    assert!(own["occupancy"] == known["occupancy"] && own["rows"].as_array().is_some_and(Vec::is_empty));
    let text = stdout(&orlop(&["kv", &file, "--model", &config]));
    assert!(text.contains("The trace does not say what prompts share"), "{text}");

    let fails = |arguments: &[&str]| complaint(&orlop(&[&["kv"], arguments].concat()), 1);
    assert!(fails(&[&file, "--model", "no-such-model"]).contains("llama-3-8b"));
    assert!(fails(&[&file, "--model", &folder.path("bad.json")]).contains("\"ring\" are unknown"));
    assert!(fails(&[&folder.path("bad.csv"), "--model", "llama-3-8b"]).contains("line 2"));
    assert!(fails(&[&folder.path("none.csv"), "--model", "llama-3-8b"]).contains("cannot be read"));
    assert!(fails(&[&file, "--model", "llama-3-8b", "--pool", "1KiB"]).contains("large page"));
}

/// The standard input is a trace, too, and models have their common names.
#[test]
fn a_trace_comes_from_the_standard_input() {
    let line = "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 2, \"hash_ids\": [1, 2]}\n";
    let mut running = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["kv", "-", "--model", "Jamba", "--pool", "1GiB", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    running.stdin.take().expect("a pipe").write_all(line.as_bytes()).expect("it reads");
    let report: Value =
        serde_json::from_str(&stdout(&running.wait_with_output().expect("it ends"))).expect("JSON");
    assert_eq!((&report["model"], &report["requests"]), (&"jamba-v0.1".into(), &1.into()));
}
