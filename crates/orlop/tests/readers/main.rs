//! Every reader of files and settings, fed with mutations of what it reads: the functions that libFuzzer
//! drives for long (`cargo xtask fuzz`), for a short time, on stable.
//!
//! A few hundred mutations each, the same ones every time. `ORLOP_FUZZ_MUTATIONS` sets their number,
//! `ORLOP_FUZZ_SECONDS` the seconds of each (`cargo xtask fuzz --short`, which also bounds the memory). The
//! current input is kept in a file, which is named when the reader fails; it survives the end of the process.
#![cfg(not(any(miri, loom)))]

mod mutate;
#[path = "../../../../fuzz/readers.rs"]
mod readers;
mod seeds;

use self::mutate::Mutator;
use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, Instant};

/// Without `ORLOP_FUZZ_SECONDS`.
const MUTATIONS: u64 = 300;

/// No input is longer.
const LONGEST: usize = 1 << 16;

/// One input may take so long, in an unoptimised build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn feed(name: &str) {
    let seconds = std::env::var("ORLOP_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let most = std::env::var("ORLOP_FUZZ_MUTATIONS").ok().and_then(|text| text.parse().ok());
    let most = most.unwrap_or(MUTATIONS);
    let seeds = seeds::of(name);
    assert!(!seeds.is_empty(), "nothing to begin with");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.input"));
    // Open all the while: a file that is closed after it was cut off is written to the disk at once by some
    // systems.
    let mut file = File::create(&place).expect("a place for what is read");
    let mut check = |input: &[u8]| {
        file.rewind().and_then(|()| file.write_all(input)).expect("room for what is read");
        file.set_len(u64::try_from(input.len()).expect("a small number")).expect("room for what is read");
        let start = Instant::now();
        let result = panic::catch_unwind(AssertUnwindSafe(|| readers::run(name, input)));
        assert!(result.is_ok(), "{name} failed on {}", place.display());
        assert!(start.elapsed() < PATIENCE, "{name} took {:?} for {}", start.elapsed(), place.display());
    };
    for seed in &seeds {
        check(seed);
    }
    let mut mutator = Mutator::new(name, &seeds, LONGEST);
    let mut count = 0;
    while until.map_or(count < most, |until| Instant::now() < until) {
        check(&mutator.next());
        count += 1;
    }
    println!("{name}: {} seeds, {count} mutations", seeds.len());
    fs::remove_file(&place).expect("it was written");
}

macro_rules! readers {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                feed(stringify!($name));
            }
        )+

        #[test]
        fn none_is_left_out() {
            assert_eq!(readers::READERS.map(|(name, _)| name), [$(stringify!($name)),+]);
        }
    };
}

readers! {
    archive, npy, npz, onnx, plan_csv, safetensors, snapshot, torch_conf, trace, trace_binary, trace_chrome,
    trace_csv, trace_pprof, trace_rmm,
    words,
}
