//! `orlop mcp`: the protocol's client side.

use super::testdata;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// Sends requests and returns the answers.
fn answers(requests: &[Value]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.spawn().expect("it starts");
    let mut input = server.stdin.take().expect("a pipe");
    for request in requests {
        writeln!(input, "{request}").expect("it reads");
    }
    drop(input);
    let output = server.wait_with_output().expect("it ends with its input");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("a message")).collect()
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": name, "method": "tools/call",
           "params": {"name": name, "arguments": arguments}})
}

#[test]
fn tools_answer_as_the_commands_do() {
    let snapshot = testdata().join("torch-snapshots/gpt-medium_256_inference.pickle.gz");
    let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total \
                   capacity of 8.00 GiB of which 1.00 GiB is free. Of the allocated memory 3.00 GiB is \
                   allocated by PyTorch, and 3.50 GiB is reserved by PyTorch but unallocated.";
    let found = answers(&[
        json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}),
        call("info", &json!({"path": snapshot, "top": 2})),
        call("what_if", &json!({"path": snapshot, "quick": true, "top": 3})),
        call("diff", &json!({"before": snapshot, "after": snapshot})),
        call("why_oom", &json!({"message": message})),
        call("info", &json!({"path": "no/such/file"})),
    ]);
    let tools = found[0]["result"]["tools"].as_array().expect("a list");
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["info", "what_if", "why_oom", "diff"]);
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["path"]));
    let answer = |index: usize| {
        let result = &found[index]["result"];
        assert_eq!(result["isError"], false, "{result}");
        let text = result["content"][0]["text"].as_str().expect("a text");
        assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), result["structuredContent"]["answer"]);
        result["structuredContent"]["answer"].clone()
    };
    assert_eq!(
        answer(1)[0]["devices"][0]["peak"]["held"]["by_site"]["top"].as_array().map(Vec::len),
        Some(2)
    );
    assert!(answer(2)[0]["verdict"]["finding"].is_string());
    assert!(answer(3)["devices"].is_array());
    assert!(answer(4)[0]["verdict"]["remedy"].is_string());
    let failed = &found[5]["result"];
    assert_eq!(failed["isError"], true);
    assert!(failed["content"][0]["text"].as_str().is_some_and(|text| text.contains("cannot be opened")));
}
