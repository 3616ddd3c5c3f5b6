//! `orlop mcp`: answers for agents and editors, over the Model Context Protocol on the standard input and
//! output.
//!
//! A message is a line of JSON-RPC 2.0. The server has [`tools`] only. It answers one request after another,
//! and ends with the standard input. [Specification][specification].
//!
//! [specification]: https://modelcontextprotocol.io/specification/2025-06-18

mod tools;

use crate::isolated::ProgramCommand;
use crate::output::Failures;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, Read, Write};

/// The versions of the protocol that the server can speak; it proposes the first.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];

/// The maximum length of a message in bytes: a log may be in it.
const MAX_MESSAGE: u64 = 64 << 20;

/// Codes of errors, from JSON-RPC.
const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// A request; without an id, a notification, which gets no answer.
#[derive(Deserialize)]
struct RpcRequest {
    id: Option<Value>,
    method: String,
    #[serde(default)]
    params: Value,
}

/// An error of the protocol. Failures of a tool are results.
struct RpcError {
    code: i64,
    message: String,
}

impl RpcError {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Runs `orlop mcp`.
pub(crate) fn run(program: &ProgramCommand) -> Result<(), Failures> {
    let served = serve(&mut io::stdin().lock(), &mut io::stdout().lock(), program);
    served.map_err(|error| format!("the client cannot be reached: {error}").into())
}

fn serve(input: &mut impl BufRead, output: &mut impl Write, program: &ProgramCommand) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        input.by_ref().take(MAX_MESSAGE).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == MAX_MESSAGE {
            return Err(io::Error::other(format!("a message is longer than {MAX_MESSAGE} bytes")));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if let Some(answer) = answer(&line, program) {
            writeln!(output, "{answer}")?;
            output.flush()?;
        }
    }
}

/// Returns the answer to a message; `None` for a notification.
fn answer(line: &[u8], program: &ProgramCommand) -> Option<Value> {
    let (id, result) = match serde_json::from_slice::<Value>(line) {
        Err(error) => (Value::Null, Err(RpcError::new(PARSE_ERROR, error.to_string()))),
        Ok(message) => match serde_json::from_value::<RpcRequest>(message) {
            Err(error) => (Value::Null, Err(RpcError::new(INVALID_REQUEST, error.to_string()))),
            Ok(request) => (request.id?, result(&request.method, &request.params, program)),
        },
    };
    Some(match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(RpcError { code, message }) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    })
}

fn result(method: &str, params: &Value, program: &ProgramCommand) -> Result<Value, RpcError> {
    match method {
        "initialize" => {
            let known = params["protocolVersion"].as_str().filter(|version| VERSIONS.contains(version));
            Ok(json!({
                "protocolVersion": known.unwrap_or(VERSIONS[0]),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "orlop", "version": env!("CARGO_PKG_VERSION")},
                "instructions": "Analyzes recordings of device memory: PyTorch's memory snapshots, traces of \
                                 torch.profiler, logs of RMM, profiles of JAX. Sizes are in bytes.",
            }))
        }
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({"tools": tools::list()})),
        "tools/call" => {
            let name = params["name"].as_str().unwrap_or_default();
            let called = tools::call(name, &params["arguments"], program);
            called.map_err(|message| RpcError::new(INVALID_PARAMS, message))
        }
        _ => Err(RpcError::new(METHOD_NOT_FOUND, format!("no method {method:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(input: &str) -> Vec<Value> {
        let mut output = Vec::new();
        serve(&mut input.as_bytes(), &mut output, &ProgramCommand::CurrentExecutable)
            .expect("a vector takes all");
        let lines = String::from_utf8(output).expect("JSON is UTF-8");
        lines.lines().map(|line| serde_json::from_str(line).expect("a line is a message")).collect()
    }

    #[test]
    fn requests_are_answered_and_notifications_are_not() {
        let found = answers(
            "{\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-03-26\"}}\n\
             \n\
             {\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n\
             {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"ping\"}",
        );
        assert_eq!(found.len(), 2);
        assert_eq!(found[0]["result"]["protocolVersion"], "2025-03-26");
        assert_eq!((&found[1]["id"], &found[1]["result"]), (&json!("a"), &json!({})));
        let newer =
            answers("{\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2099-01-01\"}}\n");
        assert_eq!(newer[0]["result"]["protocolVersion"], VERSIONS[0]);
    }

    #[test]
    fn errors_have_the_codes_of_the_protocol() {
        let found = answers(
            "no JSON\n\
             [1]\n\
             {\"id\":3,\"method\":\"resources/list\"}\n\
             {\"id\":4,\"method\":\"tools/call\",\"params\":{\"name\":\"none\"}}\n\
             {\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":\"info\",\"arguments\":{}}}\n",
        );
        let codes: Vec<_> = found.iter().map(|answer| answer["error"]["code"].as_i64()).collect();
        let expected = [PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INVALID_PARAMS];
        assert_eq!(codes, expected.map(Some));
        let ids: Vec<_> = found.iter().map(|answer| answer["id"].clone()).collect();
        assert_eq!(ids, [Value::Null, Value::Null, json!(3), json!(4), json!(5)]);
    }
}
