//! Plans of the shipped ONNX graphs: from the bytes of the file to the offsets.
//!
//! One thread. Reading, ordering and planning stand apart, and together as `orlop plan` does them.

use criterion::{BenchmarkId, Criterion};
use flate2::read::GzDecoder;
use orlop_onnx::{OnnxModel, OnnxReader};
use orlop_plan::{MinPeak, Plan, Planner, Problem, SearchBudget, verify};
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const MODELS: [&str; 4] = ["bert_base_s128", "mobilenet_v3_large_b1", "resnet50_b8", "vit_b16_b4"];

/// A shipped model, unpacked.
fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/onnx");
    let packed = File::open(folder.join(format!("{name}.onnx.gz"))).expect("testdata is part of the project");
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes).expect("shipped models can be unpacked");
    bytes
}

fn read(bytes: &[u8]) -> OnnxModel {
    OnnxReader::new().read(bytes).expect("shipped models are valid")
}

fn given(model: &OnnxModel) -> Problem {
    let lifetimes = model.graph.lifetimes(&model.graph.given_order()).expect("an order");
    lifetimes.problem().clone()
}

fn plan(problem: &Problem) -> Plan {
    Planner::new().budget(SearchBudget::short(problem.len())).plan(problem)
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .configure_from_args();
    let mut group = criterion.benchmark_group("onnx");
    let mut rows = Vec::new();
    for name in MODELS {
        let bytes = file(name);
        let model = read(&bytes);
        let problem = given(&model);
        let planned = plan(&problem);
        verify(&problem, &planned).expect("plans are right");
        let mut medians = Vec::new();
        let mut run = |what: &str, work: &dyn Fn()| {
            let samples = Mutex::new(Vec::new());
            group.bench_function(BenchmarkId::new(what, name), |bencher| {
                bencher.iter_custom(|times| {
                    let start = Instant::now();
                    (0..times).for_each(|_| work());
                    let elapsed = start.elapsed();
                    #[expect(clippy::cast_precision_loss, reason = "milliseconds per time")]
                    let each = elapsed.as_secs_f64() * 1e3 / times as f64;
                    samples.lock().expect("one thread").push(each);
                    elapsed
                });
            });
            let mut samples = samples.into_inner().expect("one thread");
            samples.sort_by(f64::total_cmp);
            medians.push(samples.get(samples.len() / 2).copied());
        };
        run("read", &|| drop(black_box(read(black_box(&bytes)))));
        run("min-peak", &|| drop(black_box(MinPeak::new().order(black_box(&model.graph)))));
        run("plan", &|| drop(black_box(plan(black_box(&problem)))));
        run("read and plan", &|| drop(black_box(plan(&given(&read(black_box(&bytes)))))));
        rows.push((name, problem.len(), planned.verdict(), medians));
    }
    group.finish();
    println!("\n| | buffers | verdict | read | order min-peak | plan | read and plan |");
    println!("|---|---|---|---|---|---|---|");
    for (name, buffers, verdict, medians) in rows {
        let cell = |median: &Option<f64>| median.map_or(String::new(), |median| format!("{median:.2} ms"));
        let cells: Vec<_> = medians.iter().map(cell).collect();
        println!("| {name} | {buffers} | {verdict} | {} |", cells.join(" | "));
    }
}
