//! Reserved bytes over requested ones, for blocks of log-uniform sizes from 4 KiB to 64 MiB, and the calls of
//! the device: with regions that are split for any request, and with a bound of the waste.

use super::engine;
use crate::{DeviceBlock, DeviceRequest, Engine, NullDevice, Policy};
use orlop_core::StreamId;
use orlop_testkit::device::Random;

/// The seeds of the programs, of which the mean and the maximum are taken.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=24;

/// An engine, and blocks with the step at which they end.
struct Program {
    engine: Engine<NullDevice>,
    random: Random,
    live: Vec<(DeviceBlock, usize)>,
}

impl Program {
    fn new(policy: &Policy, seed: u64) -> Self {
        Self { engine: engine(policy.clone(), 1 << 20), random: Random::new(seed), live: Vec::new() }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "4 KiB to 64 MiB")]
    fn size(&mut self) -> usize {
        let uniform = self.random.below(1 << 30) as f64 / f64::from(1 << 30);
        (4096.0 * (uniform * 16384_f64.ln()).exp()) as usize
    }

    fn allocate(&mut self, bytes: usize, end: usize) {
        let block = self.engine.allocate(DeviceRequest::new(bytes, StreamId::HOST));
        self.live.push((block.expect("there is enough memory"), end));
    }

    fn free_if(&mut self, is_over: impl Fn(usize, usize) -> bool) {
        for index in (0..self.live.len()).rev() {
            if is_over(index, self.live[index].1) {
                // What takes its place was visited before.
                self.engine.free(self.live.swap_remove(index).0).expect("it is live");
            }
        }
    }

    /// Returns the peak of reserved bytes over the peak of requested bytes.
    fn ratio(&self) -> f64 {
        let stats = self.engine.stats();
        stats.reserved_bytes.all.peak as f64 / stats.requested_bytes.all.peak as f64
    }

    fn calls(&self) -> u64 {
        self.engine.stats().num_device_alloc
    }

    /// Allocates blocks. Returns the ratio.
    fn fill(&mut self, blocks: usize) -> f64 {
        for _ in 0..blocks {
            let bytes = self.size();
            self.allocate(bytes, usize::MAX);
        }
        self.ratio()
    }

    /// Replaces random blocks. Returns the ratio, and the allocations of the device by request.
    fn replace(&mut self, pairs: usize) -> (f64, f64) {
        let before = self.calls();
        for _ in 0..pairs {
            let which = self.random.below(self.live.len());
            self.free_if(|index, _| index == which);
            let bytes = self.size();
            self.allocate(bytes, usize::MAX);
        }
        self.engine.verify().expect("the invariants hold");
        (self.ratio(), (self.calls() - before) as f64 / pairs as f64)
    }

    /// Repeats forty requests, of which each is live for up to eight. Returns the ratio, and the allocations
    /// of the device by request after forty periods.
    fn repeat(&mut self) -> (f64, f64) {
        const PERIOD: usize = 40;
        const WARM: usize = 40;
        let requests: Vec<_> = (0..PERIOD).map(|_| (self.size(), 1 + self.random.below(8))).collect();
        let mut warm = 0;
        for step in 0..2 * WARM * PERIOD {
            if step == WARM * PERIOD {
                warm = self.calls();
            }
            self.free_if(|_, end| end <= step);
            let (bytes, lifetime) = requests[step % PERIOD];
            self.allocate(bytes, step + lifetime);
        }
        (self.ratio(), (self.calls() - warm) as f64 / (WARM * PERIOD) as f64)
    }
}

/// The mean and the maximum over all seeds.
fn over_seeds(value: impl Fn(u64) -> f64) -> [f64; 2] {
    let values: Vec<f64> = SEEDS.map(value).collect();
    [values.iter().sum::<f64>() / values.len() as f64, values.into_iter().fold(0.0, f64::max)]
}

/// `cargo test --release -p orlop-device --lib log_uniform -- --ignored --nocapture` prints the table of
/// docs/benchmarks.md.
#[test]
#[ignore = "a minute in a release build"]
fn replacements_of_all_lengths() {
    for (policy, max) in [(Policy::orlop_bounded_waste(), 1.13), (Policy::orlop_without_pages(), 1.6)] {
        for blocks in [8, 32, 128, 512] {
            for pairs in [1_000, 10_000, 100_000] {
                let run = |seed| {
                    let mut program = Program::new(&policy, seed);
                    program.fill(blocks);
                    program.replace(pairs)
                };
                let runs: Vec<(f64, f64)> = (1..=10).map(run).collect();
                let ratio = runs.iter().map(|run| run.0).fold(0.0, f64::max);
                let calls = runs.iter().map(|run| run.1).sum::<f64>() / runs.len() as f64;
                println!("{}, {blocks} blocks, {pairs} replaced: {ratio:.3}, {calls:.4}", policy.name);
                assert!(ratio <= max, "{}, {blocks} blocks, {pairs} replaced: {ratio}", policy.name);
            }
        }
    }
}

/// `cargo test -p orlop-device --lib log_uniform -- --nocapture` prints figures of docs/benchmarks.md.
#[test]
fn bounded_waste_is_less_and_calls_are_more() {
    for (policy, filled, replaced, repeated) in
        [(Policy::orlop_without_pages(), 1.13, 1.45, 0.03), (Policy::orlop_bounded_waste(), 1.13, 1.13, 0.0)]
    {
        let name = policy.name;
        for (blocks, pairs) in [(32, 1000), (128, 2000)] {
            let run = |seed| {
                let mut program = Program::new(&policy, seed);
                let filled = program.fill(blocks);
                let (ratio, calls) = program.replace(pairs);
                (filled, ratio, calls)
            };
            let fill = over_seeds(|seed| run(seed).0);
            let churn = over_seeds(|seed| run(seed).1);
            let calls = over_seeds(|seed| run(seed).2);
            println!("{name}, {blocks} blocks: filled {fill:.3?} replaced {churn:.3?} calls {calls:.3?}");
            assert!(fill[1] <= filled && churn[1] <= replaced, "{name}, {blocks} blocks");
        }
        let ratio = over_seeds(|seed| Program::new(&policy, seed).repeat().0);
        let calls = over_seeds(|seed| Program::new(&policy, seed).repeat().1);
        println!("{name}, repeated: {ratio:.3?} calls {calls:.3?}");
        assert!(calls[0] <= repeated, "{name}: {calls:?}");
    }
}
