//! Analyses of real recordings.

use orlop_lab::analyze::{SiteNaming, SnapshotInfo};
use orlop_lab::compare::Profile;
use orlop_trace::history::Timeline;
use orlop_trace::history::{BlockState, History, Segment, SegmentBlock};
use std::path::Path;

const NAMES: [&str; 4] = [
    "gpt-medium_128_training",
    "gpt-medium_512_training",
    "gpt-medium_256_inference",
    "gpt-medium_512_inference",
];

fn read(name: &str) -> History {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/torch-snapshots");
    History::read(folder.join(format!("{name}.pickle.gz"))).expect("it is shipped")
}

/// The addresses and states of all blocks, without what free blocks remember.
fn shape(segments: &[Segment]) -> Vec<(u64, u64, bool, Vec<SegmentBlock>)> {
    let plain = |block: &SegmentBlock| match block.state {
        BlockState::Free => SegmentBlock { requested: 0, site: Default::default(), ..*block },
        _ => SegmentBlock { site: Default::default(), ..*block },
    };
    let shape = |segment: &Segment| {
        let blocks = segment.blocks.iter().map(plain).collect();
        (segment.address, segment.bytes, segment.small, blocks)
    };
    segments.iter().map(shape).collect()
}

#[test]
fn all_events_lead_from_the_start_to_the_end() {
    for name in NAMES {
        let history = read(name);
        let [device] = history.devices.as_slice() else { panic!("one device in {name}") };
        let moments = Timeline::with_settings(device, history.settings.as_deref());
        assert_eq!(moments.ignored_events(), 0, "{name}");
        assert_eq!(shape(&moments.after(0)), shape(&device.start), "{name}");
        assert_eq!(shape(&moments.after(device.events.len())), shape(&device.end), "{name}");
        // Also by the rules alone.
        let mut blind = device.clone();
        blind.end.clear();
        let moments = Timeline::new(&blind);
        assert_eq!(shape(&moments.after(device.events.len())), shape(&device.end), "{name}");
    }
}

#[test]
fn every_byte_has_a_named_site() {
    for name in NAMES {
        let history = read(name);
        let info = SnapshotInfo::of(&history, SiteNaming::default().top(usize::MAX));
        let device = &info.devices[0];
        for moment in [&device.peak, &device.end] {
            let sites = &moment.live.by_site;
            assert_eq!(sites.top.iter().map(|share| share.bytes).sum::<u64>(), moment.live.bytes);
            assert_eq!((sites.others, moment.live.largest.len() as u64), (0, moment.live.blocks));
            let bytes = moment.segments.as_ref().expect("they are recorded").bytes;
            assert_eq!(bytes.requested, moment.live.bytes, "{name}");
            for share in &sites.top {
                let glue = ["::malloc", "torch::unwind", "_Py", "_call_impl", "(no call site)"];
                assert!(!glue.iter().any(|glue| share.name.contains(glue)), "{}", share.name);
            }
        }
        let profile = Profile::of(&history, 1);
        assert_eq!(profile.devices[0].peak_live, device.peak.live.bytes);
        let peak: u64 = profile.devices[0].sites.iter().map(|site| site.peak_bytes).sum();
        assert_eq!(peak, profile.devices[0].peak_live);
    }
}
