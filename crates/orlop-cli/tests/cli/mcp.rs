//! `orlop mcp`: the protocol's client side.

use super::testdata;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Sends messages, each after the answer to the one before, and returns the answers to the requests.
fn answers(messages: &[Value]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.spawn().expect("it starts");
    let mut input = server.stdin.take().expect("a pipe");
    let mut output = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut found = Vec::new();
    for message in messages {
        writeln!(input, "{message}").expect("it reads");
        if message["id"].is_null() {
            continue;
        }
        let mut line = String::new();
        output.read_line(&mut line).expect("UTF-8");
        found.push(serde_json::from_str(&line).expect("a message"));
    }
    drop(input);
    assert!(server.wait().expect("it ends with its input").success());
    found
}

/// The handshake of a client.
fn handshake(version: &str) -> [Value; 2] {
    [
        json!({"jsonrpc": "2.0", "id": "handshake", "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    ]
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
    let messages = [
        json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}),
        call("info", &json!({"path": snapshot, "top": 2})),
        call("what_if", &json!({"path": snapshot, "quick": true, "top": 3})),
        call("diff", &json!({"before": snapshot, "after": snapshot})),
        call("why_oom", &json!({"message": message})),
        call("info", &json!({"path": "no/such/file"})),
    ];
    let found = answers(&[&handshake("2025-06-18")[..], &messages].concat());
    let (hello, found) = found.split_first().expect("an answer");
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(hello["result"]["serverInfo"]["name"], "orlop");
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

#[test]
fn errors_have_the_codes_of_the_protocol() {
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "no/such/method"}),
        call("none", &json!({})),
        call("info", &json!({})),
        call("what_if", &json!({"path": "a", "top": "3"})),
    ];
    let found = answers(&[&handshake("2025-11-25")[..], &messages].concat());
    let codes: Vec<_> = found.iter().skip(1).map(|answer| answer["error"]["code"].as_i64()).collect();
    assert_eq!(codes, [-32601, -32602, -32602, -32602].map(Some));
}

/// A server whose client leaves at once has not failed.
#[test]
fn a_client_may_leave_before_its_handshake() {
    assert!(answers(&[]).is_empty());
}
