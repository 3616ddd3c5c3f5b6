//! The categories of shipped runs, against what their programs allocate.

use crate::torch_runs::{device, recording};
use orlop_lab::category::{Category, Evidence, MemoryCategories};
use orlop_trace::history::History;
use std::path::Path;

/// Bytes of float32.
const FLOAT: u64 = 4;

/// The parameters of GPT-2 as `run.py` builds it: 6 layers of width 768, 32,000 tokens, 1,024 positions.
const GPT2: u64 = FLOAT * (32_000 * 768 + 1024 * 768 + 6 * GPT2_LAYER + 2 * 768);
const GPT2_LAYER: u64 = 4 * 768 + 768 * 2304 + 2304 + 768 * 768 + 768 + 2 * 768 * 3072 + 3072 + 768;

/// The parameters of ResNet-50.
const RESNET: u64 = FLOAT * 25_557_032;

/// Its buffers: the mean and the variance of 26,560 channels, and 53 counters of 8 bytes.
const RESNET_BUFFERS: u64 = FLOAT * 2 * 26_560 + 8 * 53;

/// Eight linear layers of width 4,096.
const LINEAR: u64 = FLOAT * 8 * (4096 * 4096 + 4096);

/// The parameters of the Llama in bfloat16: 6 layers of width 1,024, with 8 of 16 heads for keys and values.
const LLAMA: u64 = 2 * (2 * 32_000 * 1024 + 6 * LLAMA_LAYER + 1024) + FLOAT * 32;
const LLAMA_LAYER: u64 = 2 * 1024 * 1024 + 2 * 1024 * 512 + 3 * 1024 * 2816 + 2 * 1024;

/// What run.py's programs allocate: parameters with buffers, gradients, the optimizer's state.
fn truth(name: &str) -> [u64; 3] {
    match name.split('.').next() {
        // Adam keeps two values for each parameter, SGD with momentum one.
        Some("gpt2-train") => [GPT2, GPT2, 2 * GPT2],
        Some("resnet-train") => [RESNET + RESNET_BUFFERS, RESNET, RESNET],
        Some("streams") => [LINEAR, LINEAR, 0],
        _ => [LLAMA, 0, 0],
    }
}

fn found(name: &str) -> (Evidence, [u64; 3]) {
    let history = recording(name);
    let categories = MemoryCategories::of(device(&history), &history.sites);
    let max = |category: Category| {
        let samples = categories.over_time.iter().map(|sample| sample.bytes[category as usize]);
        samples.max().unwrap_or(0)
    };
    (categories.evidence, [Category::Parameters, Category::Gradients, Category::OptimizerState].map(max))
}

#[test]
fn with_call_sites_categories_are_exact() {
    for name in [
        "gpt2-train.limit1",
        "resnet-train.limit1",
        "resnet-train.limit3",
        "streams.limit3",
        "llama-decode.limit1",
    ] {
        assert_eq!(found(name), (Evidence::CallSites, truth(name)), "{name}");
    }
}

#[test]
fn without_call_sites_lifetimes_tell_them_apart() {
    for name in [
        "gpt2-train.default",
        "gpt2-train.expandable",
        "resnet-train.default",
        "resnet-train.split64",
        "streams.default",
        "streams.gc3",
    ] {
        let (evidence, found) = found(name);
        let truth = truth(name);
        println!("{name}: {found:?} of {truth:?}");
        assert_eq!((evidence, found[0]), (Evidence::Lifetimes, truth[0]), "{name}");
        // Of ResNet-50, small gradients are missed, and a workspace is taken for state of the optimizer.
        for (found, truth) in found.into_iter().zip(truth).skip(1) {
            assert!(found.abs_diff(truth) * 1000 <= truth * 11, "{name}: {found} of {truth}");
        }
    }
}

/// A recording that begins in the middle of a run: an optimizer replaces its state, two values for each
/// parameter, in each step.
#[test]
fn what_was_live_before_the_recording_has_categories() {
    let file = "../../testdata/torch-snapshots/gpt-medium_512_training.pickle.gz";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let history = History::read(path).expect("it is shipped");
    let categories = MemoryCategories::of(&history.devices[0], &history.sites);
    let at_end = |category: Category| {
        let usage = categories.at_end.iter().find(|usage| usage.category == category);
        usage.map_or(0, |usage| usage.bytes)
    };
    let parameters = at_end(Category::Parameters);
    // About 425 million parameters, as its source says.
    assert!(parameters.abs_diff(425_000_000 * FLOAT) < parameters / 200, "{parameters}");
    assert_eq!(categories.bytes_at_peak(Category::Parameters), parameters);
    for (found, times) in [
        (at_end(Category::Gradients), 1),
        (at_end(Category::OptimizerState), 2),
        (categories.bytes_at_peak(Category::OptimizerState), 2),
    ] {
        assert!(found.abs_diff(times * parameters) * 200 < found, "{found} of {times} x {parameters}");
    }
    assert!(categories.bytes_at_peak(Category::Unknown) < parameters / 50, "{:?}", categories.at_peak);
}
