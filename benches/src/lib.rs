//! What the benches share: the traces that the project ships, the peers, and a table of results.

pub mod peers;
pub mod scenes;

use orlop_trace::formats::text::{ReplayStep, Trace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A trace and its name.
pub type Named = (String, Trace);

/// The traces in `testdata/`, in order of their names.
///
/// # Panics
///
/// If one cannot be read: a bench without its input has nothing to say.
#[must_use]
pub fn traces() -> Vec<Named> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata");
    let entries = std::fs::read_dir(&folder).expect("testdata is part of the project");
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".csv.gz"));
    paths.sort();
    let name = |path: &Path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        file.trim_end_matches(".csv.gz").to_owned()
    };
    paths
        .iter()
        .map(|path| (name(path), Trace::read(path).expect("shipped traces are well-formed")))
        .collect()
}

/// An allocation into a slot, or the return of what is there.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// How large the block is.
    pub bytes: usize,
    /// Where it is kept.
    pub slot: u32,
    /// Whether it is returned.
    pub returned: bool,
}

/// A trace, unpacked: replaying it costs little beside what is measured.
pub type Operations = Box<[Operation]>;

/// Unpacks a trace.
///
/// # Panics
///
/// If more blocks live at once than a `u32` counts.
#[must_use]
pub fn operations(trace: &Trace) -> Operations {
    let slot = |slot: usize| u32::try_from(slot).expect("few blocks live at once");
    let operation = |step| match step {
        ReplayStep::Allocate { slot: at, bytes, .. } => Operation { bytes, slot: slot(at), returned: false },
        ReplayStep::Free { slot: at } => Operation { bytes: 0, slot: slot(at), returned: true },
    };
    trace.steps().map(operation).collect()
}

/// Nanoseconds per operation, by contender and trace: every sample that criterion took.
#[derive(Debug, Default)]
pub struct Results {
    samples: Mutex<BTreeMap<(String, String), Vec<f64>>>,
}

impl Results {
    /// Notes one sample.
    pub fn note(&self, contender: &str, trace: &str, nanoseconds: f64) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.entry((contender.to_owned(), trace.to_owned())).or_default().push(nanoseconds);
    }

    /// Prints the medians, a row for each contender, and their geometric mean over the traces.
    pub fn print(&self) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: BTreeMap<&str, Vec<(&str, f64)>> = BTreeMap::new();
        for ((contender, trace), samples) in samples.iter_mut() {
            samples.sort_by(f64::total_cmp);
            rows.entry(contender).or_default().push((trace, samples[samples.len() / 2]));
        }
        println!("\nns per operation, median of the samples");
        for (contender, cells) in rows {
            let logarithms: f64 = cells.iter().map(|(_, ns)| ns.ln()).sum();
            #[expect(clippy::cast_precision_loss, reason = "six traces")]
            let mean = (logarithms / cells.len() as f64).exp();
            let cells: Vec<String> = cells.iter().map(|(trace, ns)| format!("{trace} {ns:.1}")).collect();
            println!("{contender:<22} {mean:>8.1}   ({})", cells.join(", "));
        }
    }
}

/// Numbers that follow no pattern, the same in each run (xorshift).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a sequence; `seed` is not zero.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `limit`, which is not zero.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap_or(0) % limit
    }

    /// Returns a size from 512 bytes to 2 MiB, each power of two as often as another.
    pub fn bytes(&mut self) -> usize {
        let log2 = 9 + self.below(12);
        (1 << log2) + self.below(1 << log2)
    }
}
