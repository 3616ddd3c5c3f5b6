//! Times of steps on a device, which several threads read.

use orlop_alloc::Result;
use orlop_context::Context;
use orlop_context::profile::{DeviceClock, DeviceSpan, MemorySteps};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Weak};
use std::thread;
use std::time::Duration;

type OnRead = Arc<dyn Fn(usize) + Send + Sync>;

/// A clock that calls something when a time is read, with the index of the span.
struct MockClock {
    begun: AtomicUsize,
    on_read: OnRead,
}

struct MockSpan {
    index: usize,
    on_read: OnRead,
}

impl fmt::Debug for MockClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MockClock")
    }
}

impl fmt::Debug for MockSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MockSpan")
    }
}

impl DeviceClock for MockClock {
    fn begin(&self) -> Result<Box<dyn DeviceSpan>> {
        let index = self.begun.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(MockSpan { index, on_read: Arc::clone(&self.on_read) }))
    }
}

impl DeviceSpan for MockSpan {
    fn end(&mut self) -> Result<()> {
        Ok(())
    }

    fn time(&mut self) -> Result<Duration> {
        (self.on_read)(self.index);
        Ok(Duration::from_millis(1))
    }
}

fn clock(on_read: impl Fn(usize) + Send + Sync + 'static) -> MockClock {
    MockClock { begun: AtomicUsize::new(0), on_read: Arc::new(on_read) }
}

/// Returns the number of steps that have a time.
fn timed(steps: &MemorySteps) -> usize {
    steps.finished().iter().filter(|step| step.device_time.is_some()).count()
}

/// The step that ends is the 1024th unread one. Its thread reads the oldest of them; meanwhile another thread
/// reads the others, of which the last is that of the step itself.
#[test]
fn a_step_has_the_time_that_another_thread_reads() {
    const STEPS: usize = 1024;
    let [first_is_read, last_is_read] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
    let has_returned = Arc::new(AtomicBool::new(false));
    let (first, last, returned) = (first_is_read.clone(), last_is_read.clone(), has_returned.clone());
    let steps = MemorySteps::on(&Context::new()).time_on(clock(move |index| {
        if index == 0 {
            first.wait();
            last.wait();
        } else if index == STEPS - 1 {
            last.wait();
            // Enough turns for a thread that does not wait for this one.
            (0..10_000).take_while(|_| !returned.load(Ordering::Acquire)).for_each(|_| thread::yield_now());
        }
    }));
    (1..STEPS).for_each(|_| drop(steps.step("before")));
    let step = steps.step("last");
    let table = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            first_is_read.wait();
            steps.table()
        });
        let last = step.finish();
        has_returned.store(true, Ordering::Release);
        assert!(last.device_time.is_some());
        reader.join().unwrap()
    });
    assert!(table.rows().len() == STEPS && table.rows().iter().all(|step| step.device_time.is_some()));
}

/// Two threads read a time each, and the profile in it.
#[test]
fn what_a_clock_calls_can_read_the_profile() {
    let both_read = Barrier::new(2);
    let steps = Arc::new_cyclic(|steps: &Weak<MemorySteps>| {
        let steps = steps.clone();
        MemorySteps::on(&Context::new()).time_on(clock(move |_| {
            both_read.wait();
            assert_eq!(steps.upgrade().unwrap().finished().len(), 2);
            both_read.wait();
        }))
    });
    (0..2).for_each(|_| drop(steps.step("read")));
    let counts = thread::scope(|scope| {
        [(); 2].map(|()| scope.spawn(|| timed(&steps))).map(|reader| reader.join().unwrap())
    });
    assert_eq!(counts, [2, 2]);
}

#[test]
fn steps_that_end_while_times_are_read_are_left_to_the_next_reader() {
    let steps = Arc::new_cyclic(|steps: &Weak<MemorySteps>| {
        let steps = steps.clone();
        MemorySteps::on(&Context::new()).time_on(clock(move |index| {
            if index == 0 {
                drop(steps.upgrade().unwrap().step("meanwhile"));
            }
        }))
    });
    drop(steps.step("first"));
    let counts = [(); 2].map(|()| (timed(&steps), steps.finished().len()));
    assert_eq!(counts, [(1, 2), (2, 2)]);
}

/// Its span is lost, and no thread waits for it.
#[test]
fn a_clock_that_panics_stops_no_reader() {
    let steps = MemorySteps::on(&Context::new()).time_on(clock(|index| assert!(index != 1, "of the clock")));
    (0..3).for_each(|_| drop(steps.step("read")));
    catch_unwind(AssertUnwindSafe(|| steps.table())).unwrap_err();
    assert_eq!(thread::scope(|scope| scope.spawn(|| timed(&steps)).join().unwrap()), 2);
}
