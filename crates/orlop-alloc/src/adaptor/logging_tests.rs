//! Tests of the allocation log.

use super::*;
use crate::AllocatorRef;
use crate::adaptor::Tracking;
use crate::backing::System;
use crate::engine::Direct;
use std::sync::Arc;
use std::time::Duration;

/// A sink that others can look into.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock();
        String::from_utf8_lossy(&bytes).lines().map(String::from).collect()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
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

fn engine() -> Direct<System> {
    Direct::engine(System::new())
}

#[test]
fn writes_lines_that_rmm_tools_read() {
    let sink = Shared::default();
    let allocator = AllocatorRef::new(Logging::to_writer(engine(), sink.clone()));
    allocator.set_step(7);
    let block =
        allocator.allocate(&Request::new(100).stream(StreamId::new(0x20)).tag(Tag::new("a,\"b\""))).unwrap();
    let address = format!("{:#x}", block.as_ptr().as_ptr().addr());
    drop(block);
    assert!(allocator.allocate(&Request::new(usize::MAX)).is_err());
    let lines = sink.lines();
    assert_eq!(lines[0], LogRecord::HEADER);
    let fields: Vec<&str> = lines[1].splitn(7, ',').collect();
    assert!(fields[0].parse::<u64>().is_ok_and(|thread| thread > 0), "{}", lines[1]);
    assert_eq!((fields[1].len(), &fields[1][8..9]), ("00:00:00.000000".len(), "."));
    assert_eq!(fields[2..], ["allocate", &address, "100", "0x20", "\"a,\"\"b\"\"\",7"]);
    assert!(lines[2].contains(&format!(",free,{address},100,0x20,")), "{}", lines[2]);
    assert!(lines[3].contains(",allocate failure,0x0,18446744073709551615,0,,7"), "{}", lines[3]);
    assert_eq!((lines.len(), allocator.lines()), (4, 3));
}

#[test]
fn the_time_of_day_is_utc() {
    let record = LogRecord {
        thread: 1,
        time: UNIX_EPOCH + Duration::new(86_400 * 365 + 3 * 3600 + 25 * 60 + 45, 678_000),
        action: Action::Free,
        pointer: 0xff0,
        bytes: 8,
        stream: StreamId::DEFAULT,
        tag: Tag::NONE,
        step: 0,
    };
    assert_eq!(record.to_string(), "1,03:25:45.000678,free,0xff0,8,0,,0");
}

#[test]
fn can_be_switched_off_and_on() {
    let sink = Shared::default();
    let allocator = AllocatorRef::new(Logging::to_writer(engine(), sink.clone()));
    allocator.set_enabled(false);
    let block = allocator.allocate(&Request::new(100)).unwrap();
    assert_eq!(sink.lines().len(), 1);
    allocator.set_enabled(true);
    drop(block);
    assert_eq!(sink.lines().len(), 2);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of steps of safe code; half a minute under Miri")]
fn a_failing_sink_is_counted_and_harms_nobody() {
    for panics in [false, true] {
        let allocator = AllocatorRef::new(Logging::to_writer(engine(), Broken { panics }));
        for _ in 0..3 {
            assert!(allocator.allocate(&Request::new(100)).is_ok());
        }
        assert!(!allocator.flush());
        // The heading, three allocations, three frees, the flush.
        assert_eq!((allocator.failures(), allocator.lines()), (8, 0));
        assert_eq!(allocator.stats().live(), 0);
    }
    let allocator = AllocatorRef::new(Logging::to_callback(engine(), |_| panic!("callback")));
    assert!(allocator.allocate(&Request::new(100)).is_ok());
    assert_eq!((allocator.failures(), allocator.stats().live()), (2, 0));
}

#[test]
fn a_callback_gets_values_and_may_allocate() {
    let upstream = AllocatorRef::new(Tracking::new(engine()));
    let seen: Arc<Mutex<Vec<(Action, usize)>>> = Arc::default();
    // The callback allocates from the allocator that it logs.
    let handle: Arc<Mutex<Option<AllocatorRef>>> = Arc::default();
    let allocator = AllocatorRef::new(Logging::to_callback(upstream, {
        let (seen, handle) = (seen.clone(), handle.clone());
        move |record| {
            let guard = handle.lock();
            let inner = guard.as_ref().map(|allocator| allocator.allocate(&Request::new(8)));
            assert!(inner.is_none_or(|result| result.is_ok()));
            seen.lock().push((record.action, record.bytes));
        }
    }));
    *handle.lock() = Some(allocator.clone().erase());
    let ptr = allocator.allocate(&Request::new(100)).unwrap().into_raw_ptr().unwrap();
    // SAFETY: given away just now, freed once.
    unsafe { allocator.free(ptr, None) }.unwrap();
    // SAFETY: refused by the tracker upstream: the address is not live.
    assert!(unsafe { allocator.free(ptr, None) }.is_err());
    *handle.lock() = None;
    assert_eq!(
        *seen.lock(),
        [(Action::Allocate, 100), (Action::Free, 100), (Action::Free, 0), (Action::FreeRefused, 0)]
    );
}
