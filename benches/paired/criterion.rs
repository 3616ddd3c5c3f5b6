//! A stand-in for criterion in paired runs: the part of its interface that the benches use.
//!
//! `cargo xtask bench --against` builds the benches of two revisions with it and runs both programs in lock
//! step. A program prints `@@ bench NAME` for each bench and reads one line at a time: a number runs that
//! many iterations and prints `@@ ns NANOSECONDS`; `next`, or the end of the input, ends this bench.

use std::fmt::Display;
use std::hint::black_box;
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use measurement::WallTime;

/// What a bench measures.
pub mod measurement {
    /// Time.
    #[derive(Debug)]
    pub struct WallTime;
}

/// Runs benches. Its settings have no effect: the other end of the pipe decides.
#[derive(Debug, Default)]
pub struct Criterion;

impl Criterion {
    pub fn sample_size(self, _samples: usize) -> Self {
        self
    }

    pub fn warm_up_time(self, _time: Duration) -> Self {
        self
    }

    pub fn measurement_time(self, _time: Duration) -> Self {
        self
    }

    pub fn configure_from_args(self) -> Self {
        self
    }

    pub fn benchmark_group(&mut self, name: impl Into<String>) -> BenchmarkGroup<'_, WallTime> {
        BenchmarkGroup { name: name.into(), criterion: PhantomData }
    }

    pub fn bench_function(&mut self, id: impl Into<BenchmarkId>, bench: impl FnMut(&mut Bencher)) {
        run(&id.into().0, bench);
    }

    pub fn final_summary(&self) {}
}

/// Benches whose names have one beginning.
#[derive(Debug)]
pub struct BenchmarkGroup<'a, M> {
    name: String,
    criterion: PhantomData<(&'a mut Criterion, M)>,
}

impl<M> BenchmarkGroup<'_, M> {
    pub fn throughput(&mut self, _throughput: Throughput) {}

    pub fn bench_function(&mut self, id: impl Into<BenchmarkId>, bench: impl FnMut(&mut Bencher)) {
        run(&format!("{}/{}", self.name, id.into().0), bench);
    }

    pub fn finish(self) {}
}

/// The name of a bench in its group.
#[derive(Debug)]
pub struct BenchmarkId(String);

impl BenchmarkId {
    pub fn new(function: impl Display, parameter: impl Display) -> Self {
        Self(format!("{function}/{parameter}"))
    }
}

impl<T: Into<String>> From<T> for BenchmarkId {
    fn from(name: T) -> Self {
        Self(name.into())
    }
}

/// The work of one iteration. Paired runs compare times only.
#[derive(Debug, Clone, Copy)]
pub enum Throughput {
    Elements(u64),
}

/// The number of inputs that are prepared at once.
#[derive(Debug, Clone, Copy)]
pub enum BatchSize {
    NumIterations(u64),
}

/// Measures a number of iterations.
#[derive(Debug)]
pub struct Bencher {
    iterations: u64,
    elapsed: Duration,
}

impl Bencher {
    pub fn iter<T>(&mut self, mut routine: impl FnMut() -> T) {
        let start = Instant::now();
        for _ in 0..self.iterations {
            black_box(routine());
        }
        self.elapsed = start.elapsed();
    }

    pub fn iter_custom(&mut self, mut routine: impl FnMut(u64) -> Duration) {
        self.elapsed = routine(self.iterations);
    }

    pub fn iter_batched<I, T>(
        &mut self,
        mut setup: impl FnMut() -> I,
        mut routine: impl FnMut(I) -> T,
        BatchSize::NumIterations(size): BatchSize,
    ) {
        let mut left = self.iterations;
        while left > 0 {
            let batch = left.min(size.max(1));
            let inputs: Vec<I> = (0..batch).map(|_| setup()).collect();
            let mut outputs = Vec::with_capacity(inputs.len());
            let start = Instant::now();
            outputs.extend(inputs.into_iter().map(&mut routine));
            self.elapsed += start.elapsed();
            drop(black_box(outputs));
            left -= batch;
        }
    }
}

fn run(name: &str, mut bench: impl FnMut(&mut Bencher)) {
    println!("@@ bench {name}");
    for line in io::stdin().lines().map(|line| line.expect("the input can be read")) {
        let Ok(iterations) = line.parse() else { return };
        let mut bencher = Bencher { iterations, elapsed: Duration::ZERO };
        bench(&mut bencher);
        println!("@@ ns {}", bencher.elapsed.as_nanos());
    }
}
