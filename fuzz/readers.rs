//! The checks of the fuzz targets: one function for each reader of untrusted bytes. They are driven by
//! libFuzzer (`fuzz/targets`), and by a short run on stable (`crates/orlop/tests/readers`).
//!
//! For any bytes, a reader returns a value or a typed error, and the value can be inspected and written.

use orlop::device::{Policy, TorchConf};
use orlop::exec::PlanBuilder;
use orlop::lab::simulate::{AllocatorRules, Simulation, StreamedReplay};
use orlop::memory::Context;
use orlop::onnx::{InputSize, OnnxFile, OnnxModel, OnnxReader};
use orlop::plan::{MinPeak, NodeId, Planner, Problem, SearchBudget, verify};
use orlop::tensor::Tensor;
use orlop::tensor::interchange::npy::{ReadOptions, npz};
use orlop::tensor::interchange::safetensors::{SafeTensors, ShardIndex};
use orlop::tensor::interchange::{archive, npy};
use orlop::trace::formats::snapshot::{write_json, write_pickle};
use orlop::trace::formats::text::Trace;
use orlop::trace::formats::{binary, chrome, csv, perfetto, pprof, rmm};
use orlop::trace::history::{DeviceHistory, History, Workload};
use orlop::types::{ByteSize, DType, Device, MemoryFormat, MemoryKind};
use std::io;

/// A reader with the name of its target.
pub(crate) type Reader = (&'static str, fn(&[u8]));

/// All readers.
pub(crate) const READERS: [Reader; 15] = [
    ("archive", archive),
    ("npy", npy),
    ("npz", npz),
    ("onnx", onnx),
    ("plan_csv", plan_csv),
    ("safetensors", safetensors),
    ("snapshot", snapshot),
    ("torch_conf", torch_conf),
    ("trace", trace),
    ("trace_binary", trace_binary),
    ("trace_chrome", trace_chrome),
    ("trace_csv", trace_csv),
    ("trace_pprof", trace_pprof),
    ("trace_rmm", trace_rmm),
    ("words", words),
];

/// Runs the reader of this name.
pub(crate) fn run(name: &str, bytes: &[u8]) {
    let (_, reader) = READERS.iter().find(|(reader, _)| *reader == name).expect("a reader of this name");
    reader(bytes);
}

fn archive(bytes: &[u8]) {
    if let Ok(tensors) = archive::from_bytes(bytes) {
        let _ = archive::to_bytes(&tensors);
    }
}

fn npy(bytes: &[u8]) {
    if let Ok(tensor) = npy::from_bytes(bytes) {
        let _ = tensor.to_string();
    }
}

fn npz(bytes: &[u8]) {
    let _ = npz::from_bytes(bytes, &ReadOptions::new().max_bytes(1 << 20));
}

/// Copied from the bytes, and in place like a mapped file: both results are equal.
fn safetensors(bytes: &[u8]) {
    let whole = Tensor::from_slice(bytes).expect("room for what there is");
    let storage = whole.storage().expect("it has one").clone();
    let (read, placed) = (SafeTensors::from_bytes(bytes), SafeTensors::from_storage(storage));
    assert_eq!(read.is_ok(), placed.is_ok(), "read: {read:?}, in place: {placed:?}");
    if let (Ok(read), Ok(placed)) = (read, placed) {
        assert!(read.names().eq(placed.names()));
        for ((_, read), (_, placed)) in read.iter().zip(placed.iter()) {
            assert_eq!((read.sizes(), read.dtype()), (placed.sizes(), placed.dtype()));
            assert_eq!(read.to_string(), placed.to_string());
        }
    }
    let _ = ShardIndex::from_bytes(bytes);
}

/// Pickle and JSON, plain and compressed, and writing the result.
fn snapshot(bytes: &[u8]) {
    let Ok(history) = History::parse(bytes) else { return };
    for device in &history.devices {
        let _ = Workload::of(device).peak();
    }
    // Other formats have times that a snapshot cannot represent. A trace of a profiler is JSON, too: the
    // reader of any format looks for it first.
    let is_json = bytes.starts_with(b"{") && !chrome::sniff(&bytes[..bytes.len().min(4096)]);
    if is_json || bytes.starts_with(b"\x80") {
        let (mut pickle, mut json) = (Vec::new(), Vec::new());
        write_pickle(&history, &mut pickle).expect("what was read can be written");
        write_json(&history, &mut json).expect("what was read can be written");
        for written in [pickle, json] {
            let again = History::parse(&written[..]).expect("it was written");
            // Segments that were not recorded, but follow from the events, are written.
            let has_end = |device: &DeviceHistory| !device.end.is_empty();
            let same = if again.devices.iter().map(has_end).eq(history.devices.iter().map(has_end)) {
                again == history
            } else {
                let mut once_more = Vec::new();
                write_pickle(&again, &mut once_more).expect("what was read can be written");
                History::parse(&once_more[..]).expect("it was written") == again
            };
            assert!(same, "what was written is not what was read");
        }
    }
}

fn trace_binary(bytes: &[u8]) {
    // As a file, and as the payload of a block with a valid checksum.
    whole_and_streamed(bytes);
    let length = u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes();
    let sum = crc32fast::hash(bytes).to_le_bytes();
    // The first byte also determines whether events are only nearly in order.
    let nearly = bytes.first().map_or(0, |byte| byte & 1);
    whole_and_streamed(&[&b"\x8eORLT\r\n\x1a\x01\0"[..], &[nearly, 0], &length, &sum, bytes].concat());
}

/// Reading as a whole and streaming have the same result, the same warnings or both an error.
fn whole_and_streamed(bytes: &[u8]) {
    let streamed = StreamedReplay::run(bytes, &AllocatorRules::Orlop, None);
    let history = binary::read_binary(bytes);
    assert_eq!(streamed.is_ok(), history.is_ok());
    let (Ok(streamed), Ok(history)) = (streamed, history) else { return };
    assert_eq!(
        (streamed.warnings, streamed.devices.len()),
        (history.warnings.clone(), history.devices.len())
    );
    for (device, (_, outcome)) in history.devices.iter().zip(&streamed.devices) {
        let work = Workload::of(device);
        let whole = Simulation::new(&work).run(&AllocatorRules::Orlop);
        assert_eq!(
            (outcome.peak_live, outcome.peak_reserved, outcome.operations, outcome.out_of_memory),
            (whole.peak_live, whole.peak_reserved, whole.operations, whole.out_of_memory),
        );
    }
    binary::write_binary(&history, io::sink()).expect("what was read can be written");
    // Times and devices are limited in snapshots only.
    let _ = write_pickle(&history, io::sink());
}

fn trace_chrome(bytes: &[u8]) {
    if let Ok(history) = chrome::read_chrome(bytes) {
        write_lines(&history);
        let mut file = Vec::new();
        binary::write_binary(&history, &mut file).expect("what was read can be written");
        assert_eq!(binary::read_binary(&file[..]).expect("it was written"), history);
    }
}

fn trace_csv(bytes: &[u8]) {
    if let Ok(history) = csv::read_csv(bytes) {
        write_lines(&history);
    }
}

fn trace_pprof(bytes: &[u8]) {
    if let Ok(history) = pprof::read_pprof(bytes) {
        write_lines(&history);
        pprof::write_pprof(&history, io::sink()).expect("what was read can be written");
    }
}

fn trace_rmm(bytes: &[u8]) {
    if let Ok(history) = rmm::read_rmm(bytes) {
        write_lines(&history);
    }
}

fn write_lines(history: &History) {
    for device in &history.devices {
        let _ = Workload::of(device);
    }
    csv::write_csv(history, io::sink()).expect("what was read can be written");
    perfetto::write_perfetto(history, io::sink()).expect("what was read can be written");
}

/// Plain traces.
fn trace(bytes: &[u8]) {
    let _ = Trace::parse(bytes);
}

/// Executions of fuzzed graphs reserve no more.
const MAX_EXECUTED: usize = 1 << 20;

/// Graphs, their orders, their plans and their executions.
fn onnx(bytes: &[u8]) {
    let Ok(file) = OnnxFile::decode(bytes) else { return };
    let mut reader = OnnxReader::new().bind("batch", 8);
    for input in file.inputs() {
        let size = |size: &InputSize| if let InputSize::Number(number) = size { *number } else { 16 };
        let sizes: Vec<u64> = input.sizes.iter().flatten().map(size).collect();
        reader = reader.input(&input.name, &sizes);
    }
    let Ok(model) = reader.resolve(&file) else { return };
    let given = model.graph.given_order();
    let bound = |order: &[NodeId]| {
        let lifetimes = model.graph.lifetimes(order).ok()?;
        let problem = lifetimes.problem();
        let plan = Planner::new().budget(SearchBudget::iterations(10)).plan(problem);
        verify(problem, &plan).expect("plans are valid");
        Some(plan.lower_bound())
    };
    if let Some(bytes) = bound(&given) {
        let other = bound(&MinPeak::new().width(2).order(&model.graph)).expect("an order of all nodes");
        assert!(other <= bytes, "{other} bytes and not {bytes}");
    }
    for with_weights in [false, true] {
        execute(&model, with_weights);
    }
}

/// A value is lent with the shape that the model has for it, in the steps of its problem.
fn execute(model: &OnnxModel, with_weights: bool) {
    let mut plan = PlanBuilder::new().budget(SearchBudget::iterations(10));
    let buffers = model.execution();
    let buffers = if with_weights { buffers.with_weights() } else { buffers };
    let Ok(buffers) = buffers.declare(&mut plan) else { return };
    let Ok(plan) = plan.finish() else { return };
    let lifetimes = model.graph.lifetimes(buffers.order()).expect("the plan has them");
    let workspace = plan.arenas().iter().find(|arena| !arena.is_persistent());
    let problem = lifetimes.problem();
    assert_eq!(workspace.map_or(&[][..], |arena| arena.problem().buffers()), problem.buffers());
    if plan.arenas().iter().map(|arena| arena.bytes()).max().is_some_and(|bytes| bytes > MAX_EXECUTED) {
        return;
    }
    let Ok(mut execution) = plan.prepare(&Context::new()) else { return };
    for step in 0..plan.steps() {
        let tensors = execution.step(step).expect("nothing is held");
        for value in model.graph.values() {
            let Some(buffer) = buffers.value(value) else { continue };
            let lifetime = lifetimes.buffer(value).and(lifetimes.lifetime(value));
            let tensor = tensors.tensor(buffer);
            assert_eq!(tensor.is_ok(), lifetime.is_none_or(|steps| steps.contains(&step)));
            if let Ok(tensor) = tensor {
                let sizes = model.value(value).and_then(|value| value.dtype().and(value.sizes()));
                let lent = tensor.sizes().iter().map(|&size| size as u64);
                assert!(sizes.is_none_or(|sizes| sizes.iter().copied().eq(lent)));
                tensor.fill_(1.0).expect("it is not borrowed");
            }
        }
    }
}

fn plan_csv(bytes: &[u8]) {
    if let Ok(problem) = Problem::read_csv(bytes) {
        let mut written = Vec::new();
        problem.write_csv(&mut written).expect("memory takes it");
        let again = Problem::read_csv(&written[..]).expect("it was written");
        assert_eq!(again.buffers(), problem.buffers());
    }
}

/// Values of `PYTORCH_CUDA_ALLOC_CONF`.
fn torch_conf(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (conf, errors) = TorchConf::known(&text);
    assert_eq!(text.parse::<TorchConf>().is_ok(), errors.is_empty());
    let _ = Policy::torch(&conf);
}

/// Words of command lines: sizes, dtypes, devices, kinds, formats.
fn words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for word in text.split('\n') {
        let _ = word.parse::<ByteSize>();
        if let Ok(dtype) = word.parse::<DType>() {
            assert_eq!(dtype.to_string().parse::<DType>().ok(), Some(dtype));
        }
        if let Ok(device) = word.parse::<Device>() {
            assert_eq!(device.to_string().parse::<Device>().ok(), Some(device));
        }
        if let Ok(kind) = word.parse::<MemoryKind>() {
            assert_eq!(kind.to_string().parse::<MemoryKind>().ok(), Some(kind));
        }
        let _ = word.parse::<MemoryFormat>();
    }
}
