//! The tools of the server. Each is a command of this program with `--json`, which runs in a process of its
//! own: its memory is released after each answer, and a crash ends one call.

use crate::isolated::ProgramCommand;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

/// A command of this program that is a tool.
struct CommandTool {
    name: &'static str,
    command: &'static str,
    description: &'static str,
    arguments: &'static [Argument],
}

/// An argument of a tool.
struct Argument {
    name: &'static str,
    kind: ArgumentKind,
    is_required: bool,
    description: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentKind {
    /// A file, which follows the options.
    Path,
    /// The contents of the standard input, which takes the place of a file.
    Input,
    Text,
    Count,
    Flag,
}

const fn path(name: &'static str, description: &'static str) -> Argument {
    Argument { name, kind: ArgumentKind::Path, is_required: true, description }
}

const fn option(name: &'static str, kind: ArgumentKind, description: &'static str) -> Argument {
    Argument { name, kind, is_required: false, description }
}

const RECORDING: &str = "The path of a recording: a PyTorch memory snapshot, another trace, a zip archive \
                         or a folder of them, or a member of an archive such as runs.zip/rank0.pickle";

const TOOLS: [CommandTool; 4] = [
    CommandTool {
        name: "info",
        command: "info",
        description: "Shows what happened in a recorded run, which setting helps, and what uses the memory: \
                      a verdict, live memory at the peak and at the end by call site, fragmentation, and \
                      failed requests",
        arguments: &[
            path("path", RECORDING),
            option("top", ArgumentKind::Count, "The maximum number of entries in lists of call sites"),
            option("depth", ArgumentKind::Count, "The number of program lines in the name of a call site"),
        ],
    },
    CommandTool {
        name: "what_if",
        command: "what-if",
        description: "Finds the allocator settings of PyTorch under which a recorded run needs the least \
                      memory, and advises one",
        arguments: &[
            path("path", RECORDING),
            option("memory", ArgumentKind::Text, "Memory of the device, like 80GiB"),
            option("torch", ArgumentKind::Text, "Only settings that this release of PyTorch has, like 2.6"),
            option("device", ArgumentKind::Text, "Only this device: the number of a GPU, or cpu"),
            option("top", ArgumentKind::Count, "Only the best rows"),
            option("quick", ArgumentKind::Flag, "Does not search the smallest memory of each row"),
        ],
    },
    CommandTool {
        name: "why_oom",
        command: "why-oom",
        description: "Explains the message of a program that ran out of memory (PyTorch, JAX, TensorFlow): \
                      fragmentation, other processes, a limit, or too much live memory",
        arguments: &[Argument {
            name: "message",
            kind: ArgumentKind::Input,
            is_required: true,
            description: "The message, or a log that contains it",
        }],
    },
    CommandTool {
        name: "diff",
        command: "diff",
        description: "Shows what grew between two recorded runs, by call site",
        arguments: &[
            path("before", RECORDING),
            path("after", RECORDING),
            option("top", ArgumentKind::Count, "The maximum number of call sites"),
            option("lines", ArgumentKind::Flag, "Counts two lines of one function as two call sites"),
        ],
    },
];

/// Returns the descriptions of the tools, with the schemas of their arguments.
pub(super) fn list() -> Vec<Tool> {
    let schema = |argument: &Argument| {
        let kind = match argument.kind {
            ArgumentKind::Path | ArgumentKind::Input | ArgumentKind::Text => json!({"type": "string"}),
            ArgumentKind::Count => json!({"type": "integer", "minimum": 1}),
            ArgumentKind::Flag => json!({"type": "boolean"}),
        };
        let mut schema = kind;
        schema["description"] = argument.description.into();
        (argument.name.to_owned(), schema)
    };
    let tool = |tool: &CommandTool| {
        let required = tool.arguments.iter().filter(|argument| argument.is_required);
        let mut input = JsonObject::new();
        input.insert("type".to_owned(), "object".into());
        input.insert(
            "properties".to_owned(),
            tool.arguments.iter().map(schema).collect::<JsonObject>().into(),
        );
        input.insert("required".to_owned(), required.map(|argument| argument.name).collect());
        let annotations = ToolAnnotations::new().read_only(true);
        Tool::new(tool.name, tool.description, input).with_annotations(annotations)
    };
    TOOLS.iter().map(tool).collect()
}

/// Calls a tool. Returns a message if there is no such tool, or if its arguments are invalid.
pub(super) fn call(
    name: &str,
    arguments: &JsonObject,
    program: &ProgramCommand,
) -> Result<CallToolResult, String> {
    let tool = TOOLS.iter().find(|tool| tool.name == name).ok_or_else(|| format!("no tool {name:?}"))?;
    let (words, input) = command_line(tool, arguments)?;
    Ok(match run(&words, input, program) {
        Ok((answer, warnings)) => {
            let mut content = vec![ContentBlock::text(answer.to_string())];
            if !warnings.is_empty() {
                content.push(ContentBlock::text(warnings));
            }
            let mut result = CallToolResult::success(content);
            result.structured_content = Some(json!({"answer": answer}));
            result
        }
        Err(failure) => CallToolResult::error(vec![ContentBlock::text(failure)]),
    })
}

/// Returns the command line of a call, and the standard input.
fn command_line(tool: &CommandTool, arguments: &JsonObject) -> Result<(Vec<String>, String), String> {
    let mut words = vec![tool.command.to_owned(), "--json".to_owned()];
    let (mut files, mut input) = (Vec::new(), String::new());
    for argument in tool.arguments {
        let invalid = || format!("{}: invalid, or missing: {}", argument.name, argument.description);
        let Some(value) = arguments.get(argument.name).filter(|value| !value.is_null()) else {
            match argument.is_required {
                true => return Err(invalid()),
                false => continue,
            }
        };
        let option = format!("--{}", argument.name);
        match argument.kind {
            ArgumentKind::Path => files.push(value.as_str().ok_or_else(invalid)?.to_owned()),
            ArgumentKind::Input => {
                value.as_str().ok_or_else(invalid)?.clone_into(&mut input);
                files.push("-".to_owned());
            }
            ArgumentKind::Text => words.push(format!("{option}={}", value.as_str().ok_or_else(invalid)?)),
            ArgumentKind::Count => words.push(format!("{option}={}", value.as_u64().ok_or_else(invalid)?)),
            ArgumentKind::Flag => {
                if value.as_bool().ok_or_else(invalid)? {
                    words.push(option);
                }
            }
        }
    }
    words.push("--".to_owned());
    words.append(&mut files);
    Ok((words, input))
}

/// Runs this program. Returns its answer and its warnings, or its failures.
fn run(words: &[String], input: String, program: &ProgramCommand) -> Result<(Value, String), String> {
    let mut command = program.command().map_err(|error| format!("cannot find this program: {error}"))?;
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error| format!("cannot start this program again: {error}");
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // From a thread, while the output is read. A command that fails does not read its input.
        std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    }
    let output = child.wait_with_output().map_err(failed)?;
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    match serde_json::from_slice::<Value>(&output.stdout) {
        // After a failure, an answer is about those files that could be read.
        Ok(answer) if output.status.success() || answer != json!([]) => Ok((answer, warnings)),
        _ if warnings.is_empty() => Err(format!("ended with {}", output.status)),
        _ => Err(warnings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_a_command_line() {
        let words = |arguments: Value| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            command_line(&TOOLS[1], &arguments).map(|(words, _)| words.join(" "))
        };
        let all = json!({"path": "-x.pickle", "memory": "80GiB", "top": 3, "quick": true});
        assert_eq!(words(all), Ok("what-if --json --memory=80GiB --top=3 --quick -- -x.pickle".to_owned()));
        assert_eq!(words(json!({"path": "a", "quick": false})), Ok("what-if --json -- a".to_owned()));
        assert!(words(json!({})).is_err() && words(json!({"path": "a", "top": "3"})).is_err());
        assert!(words(Value::Null).is_err());
    }

    #[test]
    fn options_are_those_of_the_program() {
        use clap::CommandFactory;
        let program = crate::arguments::Arguments::command();
        for tool in &TOOLS {
            let command = program.find_subcommand(tool.command).expect("a command");
            for argument in tool.arguments {
                let is_option = !matches!(argument.kind, ArgumentKind::Path | ArgumentKind::Input);
                let mut options = command.get_arguments().filter_map(|known| known.get_long());
                assert!(!is_option || options.any(|known| known == argument.name), "{}", argument.name);
            }
        }
    }
}
