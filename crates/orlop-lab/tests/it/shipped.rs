//! The six traces in `testdata`: the figures of their README, and TensorFlow's figures for them.

use orlop_alloc::backing::Null;
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::{Allocator, AllocatorRef};
use orlop_core::Device;
use orlop_lab::Result;
use orlop_lab::analyze::TraceInfo;
use orlop_lab::cpu_bench::smallest_pool;
use orlop_trace::formats::text::Trace;
use std::path::Path;

/// Name, operations, peak live bytes, median bytes, and the smallest BFC pool over the peak.
const TRACES: [(&str, usize, u64, u64, f64); 6] = [
    ("bert_infer_dyn20", 9_280, 12_137_072, 125_952, 1.27),
    ("gpt2s_train_b2_s256", 20_306, 2_204_775_288, 8, 1.17),
    ("llama8x512_decode_p128_d64", 51_354, 20_841_472, 2_048, 1.03),
    ("resnet50_infer_b8", 2_285, 94_732_288, 1_605_632, 1.39),
    ("resnet50_train_b4", 10_450, 511_315_560, 73_856, 1.13),
    ("vit_b16_infer_b4", 1_212, 33_878_016, 2_420_736, 1.15),
];

fn read(name: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    Trace::read(folder.join(format!("{name}.csv.gz"))).expect("it is shipped")
}

#[expect(clippy::unnecessary_wraps, reason = "a search asks for an allocator that may fail to be made")]
fn fixed(bytes: usize) -> Result<AllocatorRef> {
    let builder = Bfc::builder(Null::new(Device::CPU)).policy(BfcPolicy::tensorflow_fixed());
    Ok(builder.limit(bytes).build().into_ref().erase())
}

#[test]
fn the_traces_match_their_readme() {
    for (name, operations, peak, median, _) in TRACES {
        let info = TraceInfo::of(&read(name));
        assert_eq!((info.operations, info.peak_live_bytes), (operations, peak), "{name}");
        assert_eq!(info.allocations + info.frees, operations);
        assert_eq!(info.median_bytes, median, "{name}");
        let listed: usize = info.sizes.iter().map(|bucket| bucket.allocations).sum();
        assert_eq!(listed, info.allocations);
    }
}

#[test]
fn bfc_needs_the_same_pools_as_tensorflow() {
    let ratios = TRACES.map(|(name, .., expected)| {
        let pool = smallest_pool(&read(name), fixed).unwrap();
        assert!((pool.ratio() - expected).abs() < 0.006, "{name}: {}", pool.ratio());
        pool.ratio()
    });
    let arithmetic = ratios.iter().sum::<f64>() / 6.0;
    let geometric = ratios.iter().product::<f64>().powf(1.0 / 6.0);
    println!(
        "smallest pool over peak: {ratios:.4?}, arithmetic mean {arithmetic:.4}, geometric {geometric:.4}"
    );
    assert!((1.15..1.20).contains(&arithmetic) && (1.15..1.20).contains(&geometric));
}
