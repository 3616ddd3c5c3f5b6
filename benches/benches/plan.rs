//! Static plans for the shipped problems: how high, and how long it takes.
//!
//! One thread. What is measured is from the problem in memory to the plan; reading and checking stand apart.
//! The peer is greedy by size, which TensorFlow Lite and many others use. Without a filter there are rows
//! that are planned once: a million buffers, and buffers that all live equally long.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use flate2::read::GzDecoder;
use orlop_plan::{Buffer, Plan, Planner, Problem, SearchBudget, Verdict, greedy_by_size, replan, verify};
use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The problems, easy ones first.
const PROBLEMS: [&str; 9] = [
    "idealloc/G_1",
    "idealloc/resnet50",
    "idealloc/pangu_2.6B",
    "minimalloc/A.1048576",
    "minimalloc/B.1048576",
    "minimalloc/C.1048576",
    "minimalloc/D.1048576",
    "minimalloc/E.1048576",
    "minimalloc/F.1048576",
];

/// How often the hard ones are planned anew.
const ITERATIONS: u64 = 1000;

/// By problem, then contender: the verdict where there is a plan, and every sample in milliseconds.
type Table = BTreeMap<String, Vec<(String, Option<Verdict>, Vec<f64>)>>;

struct Bench<'a> {
    group: BenchmarkGroup<'a, WallTime>,
    table: Mutex<Table>,
}

impl Bench<'_> {
    fn run<T>(&mut self, contender: &str, name: &str, verdict: Option<Verdict>, mut work: impl FnMut() -> T) {
        let samples = Mutex::new(Vec::new());
        self.group.bench_function(BenchmarkId::new(contender, name), |bencher| {
            bencher.iter_custom(|times| {
                let start = Instant::now();
                for _ in 0..times {
                    drop(black_box(work()));
                }
                let elapsed = start.elapsed();
                #[expect(clippy::cast_precision_loss, reason = "milliseconds per time")]
                let each = elapsed.as_secs_f64() * 1e3 / times as f64;
                samples.lock().unwrap_or_else(PoisonError::into_inner).push(each);
                elapsed
            });
        });
        let samples = samples.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !samples.is_empty() {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            table.entry(name.to_owned()).or_default().push((contender.to_owned(), verdict, samples));
        }
    }

    fn plan(&mut self, contender: &str, name: &str, problem: &Problem, plan: impl Fn(&Problem) -> Plan) {
        let first = plan(problem);
        verify(problem, &first).expect("plans are right");
        self.run(contender, name, Some(first.verdict()), || plan(black_box(problem)));
    }

    fn print(&self) {
        println!("\nverdict, milliseconds (median of the samples)");
        for (name, row) in self.table.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            let cells = row.iter_mut().map(|(contender, verdict, samples)| {
                samples.sort_by(f64::total_cmp);
                let median = samples[samples.len() / 2];
                let verdict = verdict.map_or(String::new(), |verdict| format!("{verdict}, "));
                format!("{contender}: {verdict}{median:.2} ms")
            });
            println!("{name:<22} {}", cells.collect::<Vec<_>>().join("; "));
        }
    }
}

/// A shipped problem as text.
fn text(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/plan");
    let file = File::open(folder.join(format!("{name}.csv.gz"))).expect("testdata is part of the project");
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).expect("shipped problems can be unpacked");
    bytes
}

/// The problem with a buffer of half as many bytes more, and the offsets of the others.
fn changed(problem: &Problem, plan: &Plan) -> (Problem, Vec<Option<u64>>) {
    let mut buffers = problem.buffers().to_vec();
    let mut kept: Vec<Option<u64>> = plan.offsets().iter().copied().map(Some).collect();
    let index = buffers.len() / 2;
    buffers[index].size += buffers[index].size / 2;
    kept[index] = None;
    (Problem::new(buffers).expect("one buffer is larger"), kept)
}

/// A linear congruential generator (Knuth's MMIX), of which the upper half is used.
fn random_numbers() -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    }
}

/// A million buffers of up to 1 MiB; starts are spread evenly, most lifetimes are short, a few a thousand
/// times longer.
fn million() -> Problem {
    const COUNT: u64 = 1_000_000;
    let mut random = random_numbers();
    let buffers = (0..COUNT).map(|_| {
        let start = random() % COUNT;
        let width = 1 + (random() % 64) * (random() % 64) / (1 + random() % 64);
        Buffer::unaligned(start..start + width, 1 + random() % (1 << 20))
    });
    Problem::new(buffers).expect("a terabyte")
}

/// Buffers of up to 1 MiB that all live equally long, and begin at random.
fn one_lifetime(count: u64, lifetime: u64) -> Problem {
    const TIMES: u64 = 10_000;
    let mut random = random_numbers();
    let buffers = (0..count).map(|_| {
        let start = random() % (TIMES - lifetime);
        Buffer::unaligned(start..start + lifetime, 1 + random() % (1 << 20))
    });
    Problem::new(buffers).expect("a hundred gigabytes")
}

/// Plans once.
fn plan_within(name: &str, problem: &Problem, seconds: u64) {
    let start = Instant::now();
    let budget = SearchBudget::iterations(u64::MAX).within(Duration::from_secs(seconds));
    let plan = Planner::new().budget(budget).plan(problem);
    let taken = start.elapsed().as_secs_f64();
    verify(problem, &plan).expect("plans are right");
    println!("{name}, {seconds} s: {}, {taken:.2} s", plan.verdict());
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .configure_from_args();
    let mut bench = Bench { group: criterion.benchmark_group("plan"), table: Mutex::default() };
    for name in PROBLEMS {
        let text = text(name);
        let problem = Problem::read_csv(&text[..]).expect("shipped problems are well-formed");
        let plan = Planner::new().plan(&problem);
        let first = SearchBudget::iterations(1);
        bench.plan("first plan", name, &problem, |problem| Planner::new().budget(first).plan(problem));
        bench.plan("heuristics", name, &problem, |problem| Planner::new().plan(problem));
        if name.starts_with("minimalloc") {
            let budget = SearchBudget::iterations(ITERATIONS);
            bench.plan("1000 iterations", name, &problem, |problem| {
                Planner::new().budget(budget).plan(problem)
            });
        }
        bench.plan("greedy by size", name, &problem, greedy_by_size);
        let (changed, kept) = changed(&problem, &plan);
        bench.plan("replan", name, &changed, |problem| replan(problem, &kept));
        bench.run("verify", name, None, || verify(&problem, &plan));
        bench.run("read", name, None, || Problem::read_csv(&text[..]));
    }
    bench.print();
    bench.group.finish();
    // A filter asks for single rows.
    if !std::env::args().skip(1).any(|argument| !argument.starts_with('-')) {
        let problem = million();
        for seconds in [1, 10, 60] {
            plan_within("a million buffers", &problem, seconds);
        }
        for (count, lifetime) in [3200, 10_000, 100_000]
            .into_iter()
            .flat_map(|count| [10, 100, 1000, 3000].map(|lifetime| (count, lifetime)))
        {
            let name = format!("{count} buffers with a lifetime of {lifetime}");
            plan_within(&name, &one_lifetime(count, lifetime), 2);
        }
    }
}
