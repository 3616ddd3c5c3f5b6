//! A program of candle with orlop's global allocator: its scopes, and its recording.

use orlop::memory::Tag;
use orlop::memory::bare::GlobalAllocator;
use orlop::prelude::*;
use orlop::trace::history::{EventAction, History};
use orlop::trace::recorder::Recorder;
use orlop_candle::{Decoder, WIDTH};

#[global_allocator]
static GLOBAL: GlobalAllocator = GlobalAllocator;

const PROMPT: u32 = 8;

/// One test: the global allocator is the process's, and so is its observer.
#[test]
fn a_recording_has_the_scopes_of_the_program() {
    let path = std::env::temp_dir().join(format!("orlop-candle-{}.orlop", std::process::id()));
    let recording = Recorder::to_file(&path).unwrap();
    assert!(GlobalAllocator::observe(recording.observer()));

    let mut decoder = Decoder::new(2, 64).unwrap();
    let prompt: Vec<u32> = (0..PROMPT).collect();
    recording.annotate("prompt");
    let next = decoder.forward(&prompt).unwrap();
    let cache = u64::from(PROMPT) * WIDTH as u64 * 4 * 2 * 2;
    let live = |kind| GlobalAllocator::stats().kind(kind).live_bytes;
    // Keys and values of two layers, and what candle keeps beside a tensor's elements.
    let kept = live(MemoryKind::KvCache);
    assert!((cache..cache + cache / 4).contains(&kept), "{kept} for {cache}");
    decoder.forward(&[next]).unwrap();
    assert!(live(MemoryKind::KvCache) > kept);
    assert_eq!(tagged("kv cache"), live(MemoryKind::KvCache));
    assert_eq!(tagged("weights"), live(MemoryKind::Persistent));
    drop(decoder);
    assert_eq!(tagged("kv cache") + tagged("weights"), 0);

    let written = recording.finish().unwrap();
    assert_eq!(written.lost, 0);
    let history = History::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let events = &history.devices[0].events;
    // All blocks of the cache, by the prompt and one token, and their frees.
    let of_cache = |action| {
        let named = events.iter().filter(|event| history.sites.name(event.text) == "kv cache");
        named.filter(|event| event.action == action).map(|event| event.bytes).sum::<u64>()
    };
    assert!(of_cache(EventAction::Allocate) > 2 * cache);
    let annotated = events.iter().any(|event| history.sites.name(event.text) == "prompt");
    assert!(annotated);
}

/// Returns the live bytes under a tag.
fn tagged(name: &str) -> u64 {
    let uses = GlobalAllocator::tag_uses();
    uses.iter().filter(|part| part.tag == Tag::new(name)).map(|part| part.bytes).sum()
}
