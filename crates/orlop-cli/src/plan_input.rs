//! The inputs of `orlop plan`: graphs, planning problems and recordings.

use crate::inputs;
use crate::plan_arguments::PlanArguments;
use crate::{histories, table};
use flate2::read::MultiGzDecoder;
use orlop::lab::plan::recorded_problem;
use orlop::onnx::OnnxFile;
use orlop::plan::{CsvError, Problem};
use orlop::trace::formats::DeviceLabel;
use orlop::trace::history::{DeviceHistory, History};
use std::io::{self, Read};
use std::path::Path;

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What a gzip file may decompress to: as for recordings.
const MAX_UNPACKED: (u64, u64) = (16 << 20, 256);

/// What is to be planned.
pub(crate) enum PlanInput {
    /// An ONNX model.
    Graph(Box<OnnxFile>),
    /// A planning problem in a file.
    Table(Problem),
    /// The allocations of a recording.
    Recording(Problem),
}

impl PlanInput {
    /// Reads a file in the format that its name and its first line indicate.
    pub(crate) fn read(arguments: &PlanArguments) -> Result<Self, String> {
        let path = &arguments.file;
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        if is_onnx(path) {
            return read_model(path).map(|file| Self::Graph(Box::new(file)));
        }
        if !histories::is_stream(path) {
            let history = histories::read_silently(path)?;
            return Self::recording(arguments, &history);
        }
        let bytes = read_file(path)?;
        let table = match bytes.starts_with(&GZIP) {
            true => Problem::read_csv(Unpacking::new(&bytes)),
            false => Problem::read_csv(&bytes[..]),
        };
        match table {
            Ok(problem) if problem.is_empty() => return Err(wrong(&"this problem has no buffers")),
            Ok(problem) => return Ok(Self::Table(problem)),
            Err(error) if is_problem(&error) => return Err(wrong(&error)),
            Err(_) => {}
        }
        Self::recording(arguments, &histories::parse(path, &bytes[..])?)
    }

    fn recording(arguments: &PlanArguments, history: &History) -> Result<Self, String> {
        let path = &arguments.file;
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        histories::report_warnings(path, &history.warnings);
        let device = device(history, arguments.device).map_err(|error| wrong(&error))?;
        let problem = recorded_problem(history, device).map_err(|error| wrong(&error))?;
        if problem.is_empty() {
            return Err(wrong(&"nothing was recorded"));
        }
        Ok(Self::Recording(problem))
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = inputs::open(path)?.read_to_end(&mut bytes);
    read.map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    Ok(bytes)
}

/// Decodes an ONNX model, plain or packed with gzip.
pub(crate) fn read_model(path: &Path) -> Result<OnnxFile, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = read_file(path)?;
    let bytes = unpacked(bytes).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    OnnxFile::decode(bytes).map_err(|error| wrong(&error))
}

/// The contents of a gzip file, up to a limit.
struct Unpacking<'a> {
    decoder: MultiGzDecoder<&'a [u8]>,
    limit: u64,
    left: u64,
}

impl<'a> Unpacking<'a> {
    fn new(packed: &'a [u8]) -> Self {
        let limit = MAX_UNPACKED.0.saturating_add(MAX_UNPACKED.1.saturating_mul(packed.len() as u64));
        Self { decoder: MultiGzDecoder::new(packed), limit, left: limit }
    }
}

impl Read for Unpacking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer)?;
        let left = self.left.checked_sub(read as u64);
        self.left = left
            .ok_or_else(|| io::Error::other(format!("it decompresses to more than {} bytes", self.limit)))?;
        Ok(read)
    }
}

fn unpacked(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    Unpacking::new(&bytes).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

/// Returns `true` if an error is about a planning problem: the first line was that of one.
fn is_problem(error: &CsvError) -> bool {
    match error {
        CsvError::MissingColumn { .. } => false,
        CsvError::LineTooLong { line, .. } | CsvError::Quote { line } | CsvError::Read { line, .. } => {
            *line > 1
        }
        _ => true,
    }
}

/// Returns `true` if the name is that of an ONNX model.
pub(crate) fn is_onnx(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    name.strip_suffix(".gz").unwrap_or(&name).ends_with(".onnx")
}

/// Returns the device to plan.
fn device(history: &History, only: Option<u32>) -> Result<&DeviceHistory, String> {
    let found: Vec<_> = histories::devices(history, only).collect();
    match (&found[..], only) {
        ([device], _) => Ok(device),
        ([], Some(device)) => Err(format!("nothing was recorded on {}", DeviceLabel(device))),
        ([], None) => Err("nothing was recorded".to_owned()),
        (several, _) => {
            let numbers: Vec<_> = several.iter().map(|device| table::device(device.device)).collect();
            Err(format!("recorded on the devices {}: --device selects one", numbers.join(", ")))
        }
    }
}
