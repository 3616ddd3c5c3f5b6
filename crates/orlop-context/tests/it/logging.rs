//! Tests of the allocation log and the other observers.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::adaptor::Tracking;
use orlop_alloc::backing::System;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, Direct};
use orlop_alloc::{Allocator, AllocatorRef, Block, Observer, Request, Tag};
use orlop_context::observe::{LogAction, LogRecord, Logging, Warn};
use orlop_context::profile::MemorySteps;
use orlop_core::StreamId;
use orlop_sync::Account;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// A sink whose contents tests can read.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        String::from_utf8_lossy(&bytes).lines().map(String::from).collect()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A sink that fails, or panics.
struct Broken {
    panics: bool,
}

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        assert!(!self.panics, "a broken sink");
        Err(io::Error::other("disk full"))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write(&[]).map(|_| ())
    }
}

fn logged(log: Logging) -> (AllocatorRef, Arc<Logging>) {
    let (allocator, log) = (Direct::new(System::new()).into_ref().erase(), Arc::new(log));
    log.attach(&allocator);
    (allocator, log)
}

#[test]
fn writes_lines_that_rmm_tools_read() {
    let sink = Shared::default();
    let (allocator, log) = logged(Logging::to_writer(sink.clone()));
    log.switch().set_step(7);
    let block = allocator
        .allocate(&Request::new(100).stream(StreamId::from_raw(0x20)).tag(Tag::new("a,\"b\"")))
        .unwrap();
    let address = format!("{:#x}", block.as_ptr().as_ptr().addr());
    let tag_to_allocator = format!("\"a,\"\"b\"\"\",7,{},system", block.id());
    drop(block);
    assert!(allocator.allocate(&Request::new(usize::MAX)).is_err());
    let lines = sink.lines();
    assert_eq!(lines[0], LogRecord::HEADER);
    let fields: Vec<&str> = lines[1].splitn(7, ',').collect();
    assert!(fields[0].parse::<u64>().is_ok_and(|thread| thread > 0), "{}", lines[1]);
    assert_eq!((fields[1].len(), &fields[1][8..9]), ("00:00:00.000000".len(), "."));
    assert_eq!(fields[2..], ["allocate", &address, "100", "0x20", &*tag_to_allocator]);
    assert!(lines[2].contains(&format!(",free,{address},100,0x20,")), "{}", lines[2]);
    assert!(lines[3].contains(",allocate failure,0x0,18446744073709551615,0,,7,0,system"), "{}", lines[3]);
    assert_eq!((lines.len(), log.lines()), (4, 3));
}

#[test]
fn can_be_switched_off_and_on() {
    let sink = Shared::default();
    let (allocator, log) = logged(Logging::to_writer(sink.clone()));
    log.switch().set_enabled(false);
    let block = allocator.allocate(&Request::new(100)).unwrap();
    assert_eq!(sink.lines().len(), 1);
    log.switch().set_enabled(true);
    drop(block);
    assert_eq!(sink.lines().len(), 2);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of steps of safe code; half a minute under Miri")]
fn a_failing_sink_is_counted_and_harms_nobody() {
    for panics in [false, true] {
        let (allocator, log) = logged(Logging::to_writer(Broken { panics }));
        for _ in 0..3 {
            assert!(allocator.allocate(&Request::new(100)).is_ok());
        }
        assert!(!log.flush());
        // The heading, three allocations, three frees, the flush.
        assert_eq!((log.failures(), log.lines()), (8, 0));
        assert_eq!(allocator.stats().live(), 0);
    }
    let (allocator, log) = logged(Logging::to_callback(|_| panic!("callback")));
    assert!(allocator.allocate(&Request::new(100)).is_ok());
    assert_eq!((log.failures(), allocator.stats().live()), (2, 0));
}

#[test]
fn a_callback_gets_values_and_may_allocate() {
    let allocator = Tracking::new(Direct::new(System::new())).into_ref().erase();
    let seen: Arc<Mutex<Vec<(LogAction, usize)>>> = Arc::default();
    // The callback allocates from the allocator that it logs.
    let handle: Arc<Mutex<Option<AllocatorRef>>> = Arc::default();
    let log = Arc::new(Logging::to_callback({
        let (seen, handle) = (seen.clone(), handle.clone());
        move |record| {
            let guard = handle.lock().unwrap();
            let inner = guard.as_ref().map(|allocator| allocator.allocate(&Request::new(8)));
            assert!(inner.is_none_or(|result| result.is_ok()));
            seen.lock().unwrap().push((record.action, record.bytes));
        }
    }));
    log.attach(&allocator);
    *handle.lock().unwrap() = Some(allocator.clone());
    let ptr = allocator.allocate(&Request::new(100)).unwrap().into_raw_ptr().unwrap();
    // SAFETY: given away just now, freed once.
    unsafe { allocator.free(ptr, None) }.unwrap();
    // SAFETY: refused by the tracker upstream: the address is not live.
    assert!(unsafe { allocator.free(ptr, None) }.is_err());
    *handle.lock().unwrap() = None;
    assert_eq!(
        *seen.lock().unwrap(),
        [(LogAction::Allocate, 100), (LogAction::Free, 100), (LogAction::FreeRefused, 0)]
    );
}

#[test]
fn a_writer_that_uses_its_log_is_refused() {
    struct Flushes(Arc<Mutex<Option<Arc<Logging>>>>);
    impl Write for Flushes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let log = self.0.lock().unwrap().clone();
            // This writer is locked.
            log.inspect(|log| assert!(!log.flush()));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let slot = Arc::default();
    let (allocator, log) = logged(Logging::to_writer(Flushes(Arc::clone(&slot))));
    *slot.lock().unwrap() = Some(Arc::clone(&log));
    drop(allocator.allocate(&Request::new(100)).unwrap());
    slot.lock().unwrap().take();
    assert!(log.failures() > 0);
    assert_eq!(allocator.stats().live(), 0);
}

/// Returns an allocator whose last block can grow in place, and a block that grew from 1000 to 3000 bytes.
fn grown(observer: Arc<dyn Observer>) -> (AllocatorRef, Block) {
    let allocator = Arena::new(System::new(), 1 << 16).into_ref().erase();
    allocator.add_observer(observer);
    let mut block = allocator.allocate(&Request::new(1000)).unwrap();
    assert!(block.grow_in_place(3000));
    (allocator, block)
}

#[test]
fn a_log_of_growth_has_a_free_and_an_allocation() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lines);
    let log = Logging::to_callback(move |record| seen.lock().unwrap().push((record.action, record.bytes)));
    drop(grown(Arc::new(log)));
    let expected = [
        (LogAction::Allocate, 1000),
        (LogAction::Free, 1000),
        (LogAction::Allocate, 3000),
        (LogAction::Free, 3000),
    ];
    assert_eq!(*lines.lock().unwrap(), expected);
}

#[test]
fn warnings_are_of_the_whole_block() {
    let warn = Warn::builder().memory(5000).single(0.5, 5).total(0.5, 5).build();
    let warn = Arc::new(warn);
    let (allocator, block) = grown(warn.clone());
    assert_eq!(warn.warnings(), 2, "one of 3000 bytes at once, one of 3000 in total");
    drop(block);
    drop(allocator.allocate(&Request::new(2400)).unwrap());
    assert_eq!(warn.warnings(), 2, "freed blocks do not count");
}

/// A log that is off leaves the fast path open, and so does an observer that needs no events of blocks.
#[test]
fn the_fast_path_is_closed_only_for_observers_of_blocks() {
    struct Errors;
    impl Observer for Errors {
        fn observe(&self, _: &orlop_alloc::Event<'_>) {}
        fn watches_blocks(&self) -> bool {
            false
        }
    }
    let allocator = Caching::new(System::new()).into_ref().erase();
    let is_open = || {
        // The engine caches a size when it was freed a few times.
        (0..1000).for_each(|_| drop(allocator.allocate(&Request::new(100)).unwrap()));
        allocator.allocate_cached(&Request::new(100)).is_some()
    };
    assert!(is_open());
    let log = Arc::new(Logging::to_writer(io::sink()));
    log.attach(&allocator);
    assert!(!is_open());
    log.switch().set_enabled(false);
    assert!(is_open());
    allocator.add_observer(Arc::new(Errors));
    assert!(is_open() && log.lines() > 0);
    log.switch().set_enabled(true);
    assert!(!is_open());
}

/// What the module says of phases without an observer: differences of the allocator's own counters.
#[test]
fn two_readings_of_the_allocators_counters_are_a_phase_too() {
    let allocator = Caching::new(System::new()).into_ref().erase();
    let phase = || -> Vec<Block> {
        let blocks: Vec<_> = (1..=9).map(|n| allocator.allocate(&Request::new(n * 1000)).unwrap()).collect();
        blocks.into_iter().skip(4).collect()
    };
    let _older = phase();
    let read = || allocator.stats().totals.all;
    let before = read();
    let _kept = phase();
    let after = read();
    let steps = MemorySteps::on_allocator(&allocator);
    let step = steps.step("phase");
    let _kept = phase();
    let observed = step.finish().all;
    let difference = |of: fn(&Account) -> u64| of(&after) - of(&before);
    assert_eq!(difference(|account| account.live_bytes).cast_signed(), observed.growth());
    assert_eq!(difference(|account| account.allocated_bytes), observed.allocated_bytes);
    assert_eq!(difference(|account| account.allocations), observed.allocations);
}
