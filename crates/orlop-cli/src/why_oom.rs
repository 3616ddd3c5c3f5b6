//! `orlop why-oom`.

use crate::output::{self, Failures};
use crate::{inputs, table};
use clap::Args;
use orlop::lab::oom_message::OutOfMemoryMessage;
use orlop::lab::verdict::RunVerdict;
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct WhyOomArguments {
    /// A text file with the message, or - for the standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Prints JSON, an array of objects, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The maximum number of bytes of a log that are read.
const MAX_LOG: u64 = 256 << 20;

#[derive(Serialize)]
struct OomEntry<'a> {
    verdict: RunVerdict,
    #[serde(flatten)]
    message: &'a OutOfMemoryMessage,
}

/// Runs `orlop why-oom`.
pub(crate) fn run(arguments: &WhyOomArguments) -> Result<(), Failures> {
    let log = read(&arguments.file)?;
    let messages = OutOfMemoryMessage::find_all(&String::from_utf8_lossy(&log));
    if messages.is_empty() {
        return Err(format!(
            "{}: no message about memory that is known (PyTorch, JAX, TensorFlow, CuPy, Paddle, RMM, \
             vLLM, llama.cpp, ONNX Runtime, CUDA); a recording is read by orlop info",
            arguments.file.display()
        )
        .into());
    }
    if arguments.json {
        let entry = |message| OomEntry { verdict: OutOfMemoryMessage::verdict(message), message };
        return output::print_json(&messages.iter().map(entry).collect::<Vec<_>>());
    }
    let texts: Vec<String> =
        messages.iter().map(|message| table::wrapped(&message.verdict().to_string())).collect();
    output::print(&texts.join("\n"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut log = Vec::new();
    let read = inputs::open(path)?.take(MAX_LOG).read_to_end(&mut log);
    read.map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    Ok(log)
}
