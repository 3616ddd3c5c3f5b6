//! The state before the first event.

use super::torch_rules::{Deed, Recording, Score, Torch};
use super::{GPT, read};
use orlop_core::StreamId;
use orlop_trace::history::{
    BlockState, DeviceHistory, EventAction, History, HistoryEvent, HistoryWarning, Segment, SegmentBlock,
    SiteId,
};
use proptest::prelude::*;

/// Address, length and state of every chunk.
fn partition(segments: &[Segment]) -> Vec<(u64, u64, BlockState)> {
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    blocks.map(|block| (block.address, block.bytes, block.state)).collect()
}

#[test]
fn pytorchs_rules_give_every_recorded_address_and_the_final_state() {
    // Name, allocations, and the peak of live bytes after rounding.
    for (name, allocations, peak) in [
        (GPT[0], 6526, 7_026_606_592),
        (GPT[1], 7591, 12_434_494_464),
        (GPT[2], 1280, 1_795_741_696),
        (GPT[3], 1666, 1_951_309_824),
    ] {
        let history = read(name);
        assert_eq!(history.warnings, [], "{name}");
        let [device] = &history.devices[..] else { panic!("{name}: one device") };
        let mut torch = Torch::new(&device.start);
        let score = torch.replay(device);
        assert_eq!(score, Score { allocations, same_address: allocations, peak }, "{name}");
        assert_eq!(partition(&torch.segments()), partition(&device.end), "{name}");
    }
}

fn deeds(most: usize) -> impl Strategy<Value = Vec<Deed>> {
    let bytes =
        prop_oneof![1_u64..3000, 100_000_u64..2_000_000, 1_u64 << 20..12 << 20, 9_u64 << 20..40 << 20];
    let allocate = (bytes, 0_u64..2).prop_map(|(bytes, stream)| Deed::Allocate { bytes, stream });
    let free = (any::<usize>(), proptest::bool::weighted(0.2));
    let deed = prop_oneof![
        10 => allocate,
        8 => free.prop_map(|(which, pending)| Deed::Free { which, pending }),
        2 => any::<usize>().prop_map(|which| Deed::Complete { which }),
        1 => Just(Deed::EmptyCache),
    ];
    proptest::collection::vec(deed, 1..most)
}

fn history_of(recording: &Recording, cut: usize) -> History {
    let mut device = DeviceHistory::default();
    device.events = recording.events[cut..].to_vec();
    device.end = recording.torch.segments();
    let mut history = History::default();
    history.devices.push(device);
    history.find_start();
    history
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_state_at_any_moment_is_found_from_the_end(before in deeds(150), after in deeds(150)) {
        let mut recording = Recording::default();
        before.iter().for_each(|&deed| recording.run(deed));
        let truth = recording.torch.segments();
        let cut = recording.events.len();
        after.iter().for_each(|&deed| recording.run(deed));
        let history = history_of(&recording, cut);
        prop_assert_eq!(&history.warnings, &[]);
        let start = &history.devices[0].start;
        let (found, truth) = (partition(start), partition(&truth));
        prop_assert_eq!(found.len(), truth.len());
        let mut pairs = found.iter().zip(&truth).peekable();
        while let Some((found, truth)) = pairs.next() {
            if found == truth {
                continue;
            }
            // The rest of a large block cannot be distinguished from the free chunk behind it, if that was
            // not used while the block was live.
            let hidden = truth.1 - found.1;
            prop_assert!(hidden <= 1 << 20 && truth.2 != BlockState::Free, "{:?} {:?}", found, truth);
            prop_assert_eq!((found.0, found.2), (truth.0, truth.2));
            let (free, true_free) = pairs.next().expect("something follows");
            prop_assert_eq!((free.0 + hidden, free.1 - hidden, free.2), *true_free);
            prop_assert_eq!(free.2, BlockState::Free);
        }
    }
}

/// Events as text: action, address, bytes. Pages and regions of 4 KiB keep the sums easy.
fn events(text: &str) -> Vec<HistoryEvent> {
    let event = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u64::from_str_radix(fields[at], 16).expect("a number");
        let action = match fields[0] {
            "alloc" => EventAction::Allocate,
            "free" => EventAction::FreeRequested,
            "done" => EventAction::FreeCompleted,
            "map" => EventAction::Mapped,
            "unmap" => EventAction::Unmapped,
            "gain" => EventAction::RegionReserved,
            "lose" => EventAction::RegionReleased,
            other => panic!("{other}"),
        };
        HistoryEvent::new(action, number(1), number(2))
    };
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(event).collect()
}

fn segment(address: u64, expandable: bool, blocks: &[(u64, BlockState)]) -> Segment {
    let mut at = address;
    let blocks: Vec<SegmentBlock> = blocks
        .iter()
        .map(|&(bytes, state)| {
            let block = SegmentBlock { address: at, bytes, requested: bytes, state, site: SiteId::UNKNOWN };
            at += bytes;
            block
        })
        .collect();
    Segment {
        address,
        bytes: at - address,
        stream: StreamId::from_raw(0),
        small: false,
        expandable,
        pool: (0, 0),
        site: SiteId::UNKNOWN,
        blocks,
    }
}

fn found(end: Vec<Segment>, text: &str) -> (Vec<(u64, u64, BlockState)>, Vec<HistoryWarning>) {
    let mut device = DeviceHistory::default();
    device.events = events(text);
    device.end = end;
    let mut history = History::default();
    history.devices.push(device);
    history.find_start();
    (partition(&history.devices[0].start), history.warnings)
}

#[test]
fn pages_are_mapped_and_unmapped_and_free_neighbours_merge() {
    use BlockState::{Free, Live};
    // At the end 16 KiB are mapped from 0x10000: a live block and free memory. Backwards: pages behind it
    // were mapped, too, in two parts, and a block spanned them.
    let end = vec![segment(0x10000, true, &[(0x1000, Live), (0x3000, Free)])];
    let (start, warnings) = found(
        end,
        "free  12000 4000
         done  12000 4000
         unmap 16000 2000
         unmap 14000 2000
         alloc 10000 1000",
    );
    assert_eq!(warnings, []);
    assert_eq!(start, [(0x10000, 0x2000, Free), (0x12000, 0x4000, Live), (0x16000, 0x2000, Free)]);
    // Pages that were mapped in the middle leave two ranges.
    let end = vec![segment(0x10000, true, &[(0x1000, Live), (0x6000, Free), (0x1000, Live)])];
    let (start, warnings) = found(end, "map 12000 4000");
    assert_eq!(warnings, []);
    assert_eq!(
        start,
        [(0x10000, 0x1000, Live), (0x11000, 0x1000, Free), (0x16000, 0x1000, Free), (0x17000, 0x1000, Live)]
    );
}

#[test]
fn a_remainder_belongs_to_the_block_if_another_block_follows() {
    use BlockState::{Free, Live};
    const MIB: u64 = 1 << 20;
    // Two blocks were freed, the left one last. It was requested with 4 MiB, and the right one began 1 MiB
    // behind that.
    let end = vec![segment(0x1000_0000, false, &[(20 * MIB, Free)])];
    let text = "free 10500000 300000\n done 10500000 300000\n free 10000000 400000\n done 10000000 400000";
    let (start, warnings) = found(end.clone(), text);
    assert_eq!(warnings, []);
    let right = 0x1050_0000;
    assert_eq!(
        start,
        [(0x1000_0000, 5 * MIB, Live), (right, 3 * MIB, Live), (right + 3 * MIB, 12 * MIB, Free)]
    );
    // 2 MiB between them are a free chunk.
    let (start, _) = found(end, &text.replace("10500000", "10600000"));
    assert_eq!(start[..2], [(0x1000_0000, 4 * MIB, Live), (0x1040_0000, 2 * MIB, Free)]);
}

#[test]
fn a_completion_without_a_request_leaves_no_block() {
    use BlockState::{Free, Live};
    let end = vec![segment(0x10000, false, &[(0x1000, Live), (0x3000, Free)])];
    let (start, warnings) = found(
        end,
        "alloc 11000 1000
         free  11000 1000
         done  11000 1000
         alloc 11000 1000
         done  11000 1000",
    );
    assert_eq!(warnings, []);
    assert_eq!(start, [(0x10000, 0x1000, Live), (0x11000, 0x3000, Free)]);
}

#[test]
fn events_that_cannot_be_undone_are_reported() {
    use BlockState::{Free, Live};
    let end = vec![segment(0x10000, false, &[(0x1000, Live), (0x3000, Free)])];
    let (start, warnings) = found(
        end,
        "free  10000 1000
         alloc 11000 800
         alloc 90000 1000
         free  70000 1000
         done  70000 1000
         alloc 10000 900
         gain  10000 4000
         lose  12000 4000
         alloc 80000 1000
         free  80000 1000
         done  80000 1000",
    );
    let device = 0;
    assert_eq!(
        warnings,
        [
            HistoryWarning::FreedUnknown { device, event: 4, address: 0x70000 },
            HistoryWarning::NotInSegments { device, address: 0x11000, bytes: 0x800 },
            HistoryWarning::NotInSegments { device, address: 0x90000, bytes: 0x1000 },
            HistoryWarning::SizeDiffers { device, event: 5, address: 0x10000 },
            HistoryWarning::RegionMisfit { device, event: 6, address: 0x10000 },
            HistoryWarning::RegionMisfit { device, event: 7, address: 0x12000 },
            HistoryWarning::NotInSegments { device, address: 0x80000, bytes: 0x1000 },
        ]
    );
    // A free without a completion is accepted.
    assert_eq!(start, [(0x10000, 0x4000, Live)]);
}
