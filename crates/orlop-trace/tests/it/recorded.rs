//! Recordings of allocators and contexts.

use orlop_alloc::Request;
use orlop_context::{Context, Source};
use orlop_core::Device;
use orlop_tensor::Tensor;
use orlop_trace::formats::binary::{read_binary, write_binary};
use orlop_trace::history::EventAction::{ExternalAdopted, ExternalFreed};
use orlop_trace::history::Workload;
use orlop_trace::recorder::Recorder;

#[test]
fn a_recording_is_a_workload() {
    let recorder = Recorder::new();
    let context = Context::new();
    context.add_observer(recorder.observer());
    let kept = context.allocate(Device::CPU, &Request::new(300)).unwrap();
    for bytes in [100, 200] {
        drop(context.allocate(Device::CPU, &Request::new(bytes)).unwrap());
    }
    context.remove_observer(&recorder.observer());
    drop(kept);
    let history = recorder.history();
    let work = Workload::of(&history.devices[0]);
    assert_eq!(work.blocks.iter().map(|block| block.bytes).collect::<Vec<_>>(), [300, 100, 200]);
    assert_eq!((work.peak().0, work.blocks[0].died), (500, None));
}

/// Memory that no allocator served is external in the recording, and no block of a workload.
#[test]
fn external_memory_is_no_request() {
    let recorder = Recorder::new();
    let context = Context::new();
    context.add_observer(recorder.observer());
    let own = context.allocate(Device::CPU, &Request::new(300)).unwrap();
    context.scope(|| {
        let tensor = Tensor::from_vec([1000], vec![1.0f32; 1000]).unwrap();
        assert_eq!(context.memory_map().live_from(Source::Foreign), 4000);
        drop(tensor);
    });
    drop(own);
    context.remove_observer(&recorder.observer());
    let mut file = Vec::new();
    write_binary(&recorder.history(), &mut file).unwrap();
    let history = read_binary(&file[..]).unwrap();
    assert!(history.warnings.is_empty(), "{:?}", history.warnings);
    let events: Vec<_> = history.devices[0]
        .events
        .iter()
        .filter(|event| matches!(event.action, ExternalAdopted | ExternalFreed))
        .map(|event| (event.action, event.bytes))
        .collect();
    assert_eq!(events, [(ExternalAdopted, 4000), (ExternalFreed, 4000)]);
    let work = Workload::of(&history.devices[0]);
    assert_eq!((work.blocks.len(), work.peak().0), (1, 300));
}

#[cfg(feature = "backtrace")]
#[test]
fn call_sites_are_recorded_on_request() {
    use orlop_alloc::caching::Caching;
    use orlop_alloc::{Allocator, backing::System};
    use orlop_trace::history::{EventAction, HistoryEvent};
    use orlop_trace::recorder::Backtraces;
    let recorder = Recorder::builder().backtraces(Backtraces { every: 0, min_bytes: 100 }).build();
    let allocator = Caching::new(System::new()).into_ref().erase();
    allocator.add_observer(recorder.observer());
    for bytes in [99, 100] {
        drop(allocator.allocate(&Request::new(bytes)).unwrap());
    }
    let history = recorder.history();
    // Events of blocks: the regions that were reserved for them are recorded, too.
    let block =
        |event: &&HistoryEvent| !matches!(event.action, EventAction::RegionReserved | EventAction::Mapped);
    let events: Vec<&HistoryEvent> = history.devices[0].events.iter().filter(block).collect();
    let sites: Vec<_> = events.iter().map(|event| event.site.index() > 0).collect();
    assert_eq!(sites, [false, false, true, false]);
    let frame = history.sites.frames(events[2].site).next().unwrap();
    let (function, file) = (history.sites.name(frame.function), history.sites.name(frame.file));
    assert!(function.contains("call_sites_are_recorded_on_request"), "{function}");
    assert!(file.ends_with("recorded.rs") && frame.line > 0, "{file}:{}", frame.line);
}
