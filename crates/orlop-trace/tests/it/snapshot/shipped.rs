//! The shipped snapshots match their README.

use super::{GPT, MADE_UP, read};
use orlop_trace::history::{
    AnnotationStage, BlockState, EventAction, History, HistoryWarning, MAX_WARNINGS, Workload,
};

/// The contents of a file: events, allocations, frees, segments at the end and their blocks, blocks in use at
/// the start, call sites, and the peak of requested bytes.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    events: usize,
    allocations: usize,
    frees: usize,
    segments: usize,
    blocks: usize,
    at_start: usize,
    sites: usize,
    reserved: u64,
    peak: u64,
}

fn figures(history: &History) -> Figures {
    let [device] = &history.devices[..] else { panic!("one device") };
    let count = |action| device.events.iter().filter(|event| event.action == action).count();
    let work = Workload::of(device);
    Figures {
        events: device.events.len(),
        allocations: count(EventAction::Allocate),
        frees: count(EventAction::FreeCompleted),
        segments: device.end.len(),
        blocks: device.end.iter().map(|segment| segment.blocks.len()).sum(),
        at_start: work.at_start,
        sites: history.sites.len(),
        reserved: device.end.iter().map(|segment| segment.bytes).sum(),
        peak: work.peak().0,
    }
}

#[test]
fn real_runs_are_read_whole() {
    #[rustfmt::skip]
    let expected = [
        Figures {
            events: 19136, allocations: 6526, frees: 6305, segments: 377, blocks: 918, at_start: 664,
            sites: 171, reserved: 7_235_174_400, peak: 7_013_335_044,
        },
        Figures {
            events: 22332, allocations: 7591, frees: 7370, segments: 400, blocks: 1041, at_start: 664,
            sites: 189, reserved: 12_660_506_624, peak: 12_426_629_128,
        },
        Figures {
            events: 3840, allocations: 1280, frees: 1280, segments: 101, blocks: 232, at_start: 223,
            sites: 89, reserved: 1_864_368_128, peak: 1_793_775_616,
        },
        Figures {
            events: 4998, allocations: 1666, frees: 1666, segments: 101, blocks: 233, at_start: 223,
            sites: 107, reserved: 1_981_808_640, peak: 1_949_343_744,
        },
    ];
    for (name, expected) in GPT.into_iter().zip(expected) {
        let history = read(name);
        assert_eq!(figures(&history), expected, "{name}");
        assert_eq!((history.settings.as_deref(), &history.warnings[..]), (Some(""), &[][..]), "{name}");
        let device = &history.devices[0];
        assert!(device.details.is_empty() && device.memory.is_none(), "{name}");
        assert!(device.events.is_sorted_by_key(|event| event.time), "{name}");
    }
}

#[test]
fn sites_name_functions_files_and_lines() {
    let history = read(GPT[0]);
    let device = &history.devices[0];
    let first = &device.events[0];
    assert_eq!((first.action, first.address, first.bytes), (EventAction::Allocate, 34_135_343_104, 2 << 20));
    assert_eq!(first.time, 1_783_874_495_854_988_000);
    let frames: Vec<_> = history.sites.frames(first.site).collect();
    assert_eq!(frames.len(), 58);
    assert_eq!(history.sites.name(frames[0].function), "torch::unwind::unwind()");
    assert_eq!((history.sites.name(frames[0].file), frames[0].line), ("??", 0));
    assert!(frames.iter().any(|frame| history.sites.name(frame.file).ends_with(".py") && frame.line > 0));
    let stages: Vec<_> = history.annotations.iter().map(|mark| (mark.stage, mark.device)).collect();
    assert_eq!(stages, [(AnnotationStage::Begin, Some(0)), (AnnotationStage::End, Some(0))]);
    assert_eq!(history.sites.name(history.annotations[0].name), "Optimizer.step#AdamW.step");
}

#[test]
fn an_inconsistent_file_loads_with_warnings() {
    let history = read(MADE_UP);
    let device = &history.devices[0];
    assert_eq!((device.events.len(), device.end.len(), device.start.len()), (1040, 5, 5));
    assert_eq!(history.warnings.len(), MAX_WARNINGS);
    for segment in &device.end {
        let broken = HistoryWarning::BrokenSegment { device: 0, address: segment.address };
        assert!(history.warnings[..5].contains(&broken));
    }
    assert!(matches!(history.warnings[5], HistoryWarning::NotInSegments { bytes: 97_606_738, .. }));
    assert!(matches!(history.warnings[99], HistoryWarning::More { count: 1.. }));
    // Missing blocks are free.
    for segment in &device.end {
        assert_eq!(segment.blocks.iter().map(|block| block.bytes).sum::<u64>(), segment.bytes);
        assert_eq!(segment.blocks.last().map(|block| block.state), Some(BlockState::Free));
    }
    assert_eq!(history.annotations.len(), 6);
    let contexts: Vec<_> = device.details.iter().map(|detail| history.sites.name(detail.context)).collect();
    assert_eq!((contexts.len(), contexts[0]), (520, "context2"));
    assert_eq!(device.detail(0).map(|detail| detail.event), Some(0));
}
