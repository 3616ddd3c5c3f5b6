//! Callbacks that call the allocator that called them, repeatedly, or panic there: what their documentation
//! allows and refuses. The testkit's hostile suite has whole programs of this, over every engine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use orlop_alloc::adaptor::{Decision, Hardened, Hardening, Limit, Retry};
use orlop_alloc::backing::{
    Backing, HugePages, Mmap, Pinned, Pinner, Region, RegionChange, System, Visited, Visitor,
};
use orlop_alloc::bfc::Bfc;
use orlop_alloc::caching::{Caching, Maintenance};
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2};
use orlop_alloc::{Allocator, AllocatorRef, Block, Error, Request};
use orlop_testkit::child;
use std::cell::RefCell;
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// The allocator that a callback uses.
type Slot = Arc<Mutex<Option<AllocatorRef>>>;

fn handle(slot: &Slot) -> Option<AllocatorRef> {
    slot.lock().unwrap().clone()
}

fn over(visitor: Visitor) -> Visited<Mmap> {
    Visited::new(Mmap::new().huge_pages(HugePages::Never), vec![visitor])
}

/// A visitor that allocates each time it is called: endless recursion, if nothing refused it.
#[test]
fn an_allocator_does_not_grow_below_its_visitor() {
    type Make = fn(Visited<Mmap>) -> AllocatorRef;
    let engines: [(&str, Make); 5] = [
        ("direct", |backing| Direct::new(backing).into_ref().erase()),
        ("pow2", |backing| Pow2::new(backing).into_ref().erase()),
        ("bfc", |backing| Bfc::new(backing).into_ref().erase()),
        ("caching", |backing| Caching::new(backing).into_ref().erase()),
        ("arena", |backing| Arena::new(backing, 4096).into_ref().erase()),
    ];
    for (name, make) in engines {
        let (slot, refused) = (Slot::default(), Arc::new(AtomicU32::new(0)));
        let visitor = {
            let (slot, refused) = (slot.clone(), refused.clone());
            move |change: RegionChange, _: &Region, _: Option<u32>| {
                let Some(allocator) = handle(&slot).filter(|_| change == RegionChange::Reserved) else {
                    return;
                };
                // More than the region has: it cannot be there.
                match allocator.allocate(&Request::new(64 << 20)) {
                    Err(Error::Reentrant { inside }) => assert!(inside.contains("mmap"), "{inside}"),
                    other => panic!("{other:?}"),
                }
                assert_eq!(allocator.trim(0), 0);
                allocator.verify().unwrap();
                refused.fetch_add(1, Ordering::Relaxed);
            }
        };
        let allocator = make(over(Arc::new(visitor)));
        *slot.lock().unwrap() = Some(allocator.clone());
        let block = allocator.allocate(&Request::new(100_000)).unwrap();
        assert!(
            refused.load(Ordering::Relaxed) > 0,
            "{name}: a visitor's own assertion failed, or nothing was gained"
        );
        drop(block);
        slot.lock().unwrap().take();
        allocator.trim(0);
    }
}

/// A region that a visitor refuses by a panic is released, and the visitors before it are notified of that.
#[test]
fn a_visitor_that_panics_refuses_the_region() {
    let balance = Arc::new(Mutex::new(0i64));
    let told = {
        let balance = balance.clone();
        move |change: RegionChange, region: &Region, _: Option<u32>| {
            let bytes = i64::try_from(region.bytes).unwrap();
            *balance.lock().unwrap() += if change == RegionChange::Reserved { bytes } else { -bytes };
        }
    };
    let welcome = Arc::new(AtomicBool::new(false));
    let strict = {
        let welcome = welcome.clone();
        move |_: RegionChange, _: &Region, _: Option<u32>| {
            if !welcome.load(Ordering::Relaxed) {
                resume_unwind(Box::new("not welcome"));
            }
        }
    };
    let backing =
        Visited::new(Mmap::new().huge_pages(HugePages::Never), vec![Arc::new(told), Arc::new(strict)]);
    let allocator = Caching::new(backing).into_ref();
    assert!(allocator.allocate(&Request::new(1000)).unwrap_err().is_out_of_memory());
    assert_eq!((*balance.lock().unwrap(), allocator.stats().usage.reserved), (0, 0));
    welcome.store(true, Ordering::Relaxed);
    drop(allocator.allocate(&Request::new(1000)).unwrap());
    assert!(*balance.lock().unwrap() > 0);
    // The region is released, whatever a visitor does.
    welcome.store(false, Ordering::Relaxed);
    allocator.trim(0);
    assert_eq!((*balance.lock().unwrap(), allocator.stats().usage.reserved), (0, 0));
}

/// Pins and unpins as configured.
#[derive(Default)]
struct Moody {
    panics: AtomicBool,
    pinned: AtomicU64,
}

impl Pinner for Moody {
    unsafe fn pin(&self, _: NonNull<u8>, bytes: usize) -> bool {
        if self.panics.load(Ordering::Relaxed) {
            resume_unwind(Box::new("pin"));
        }
        self.pinned.fetch_add(bytes as u64, Ordering::Relaxed);
        true
    }

    unsafe fn unpin(&self, _: NonNull<u8>, bytes: usize) {
        if self.panics.load(Ordering::Relaxed) {
            resume_unwind(Box::new("unpin"));
        }
        self.pinned.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// A region that was not pinned is released; one that was not unpinned is not.
#[test]
fn a_pinner_that_panics() {
    // The pinner is global to the process.
    const PART: &str = "a pinner that panics";
    if !child::plays(PART) {
        child::run("callbacks::a_pinner_that_panics", PART, &[]);
        return;
    }
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    let count = |change: RegionChange, region: &Region, _: Option<u32>| {
        let bytes = region.bytes as u64;
        match change {
            RegionChange::Reserved => GIVEN.fetch_add(bytes, Ordering::Relaxed),
            RegionChange::Released => GIVEN.fetch_sub(bytes, Ordering::Relaxed),
        };
    };
    let moody = Arc::new(Moody::default());
    assert!(orlop_alloc::backing::set_pinner(moody.clone()));
    let direct = Direct::new(Pinned::new(Arc::new(over(Arc::new(count))))).into_ref();
    moody.panics.store(true, Ordering::Relaxed);
    assert!(direct.allocate(&Request::new(4096)).unwrap_err().is_out_of_memory());
    assert_eq!(GIVEN.load(Ordering::Relaxed), 0);
    moody.panics.store(false, Ordering::Relaxed);
    let kept = direct.allocate(&Request::new(4096)).unwrap();
    drop(direct.allocate(&Request::new(4096)).unwrap());
    let pinned = moody.pinned.load(Ordering::Relaxed);
    assert_eq!(GIVEN.load(Ordering::Relaxed), pinned);
    moody.panics.store(true, Ordering::Relaxed);
    drop(kept);
    assert_eq!((GIVEN.load(Ordering::Relaxed), direct.stats().live()), (pinned, 0));
    moody.panics.store(false, Ordering::Relaxed);
}

/// A callback of a log, a retry or an observer loses nothing else.
#[test]
fn a_retry_that_panics_gives_up() {
    let retry = Retry::new(Limit::new(Direct::new(System::new()), 100), 3, |_, _, _| -> Decision {
        resume_unwind(Box::new("retry"))
    });
    let allocator = retry.into_ref();
    assert!(allocator.allocate(&Request::new(101)).unwrap_err().is_out_of_memory());
    assert!(allocator.allocate(&Request::new(100)).is_ok());
    assert_eq!(allocator.retries(), 0);
}

/// The maintenance survives a panic, and a hook may end it.
#[test]
fn a_maintenance_survives_its_hooks() {
    let allocator = Caching::new(Mmap::new().huge_pages(HugePages::Never)).into_ref();
    let (sender, told) = mpsc::channel();
    let own = Arc::new(Mutex::new(None::<Maintenance>));
    let mut calls = 0;
    let maintenance = Maintenance::builder(allocator.clone())
        .every(Duration::from_millis(1))
        .pressure_from(|| Some(50.0))
        .on_pressure({
            let own = own.clone();
            move |_| {
                calls += 1;
                if calls < 3 {
                    resume_unwind(Box::new("hook"));
                }
                if let Some(maintenance) = own.lock().unwrap().take() {
                    drop(maintenance);
                    sender.send(calls).unwrap();
                }
            }
        })
        .spawn()
        .unwrap();
    *own.lock().unwrap() = Some(maintenance);
    assert!(told.recv_timeout(Duration::from_secs(20)).unwrap() >= 3);
    // Its thread ends, and drops its handle.
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Err(mpsc::RecvTimeoutError::Disconnected));
}

/// Handles and blocks in thread-local variables, dropped at the end of the thread.
#[test]
fn destructors_of_threads_use_allocators() {
    struct Late(AllocatorRef, Option<Block>);
    impl Drop for Late {
        fn drop(&mut self) {
            let mut more: Vec<_> =
                (1..50).map(|n| self.0.allocate(&Request::new(n * 100)).unwrap()).collect();
            more.extend(self.1.take());
            self.0.trim(0);
            self.0.verify().unwrap();
        }
    }
    thread_local! {
        static LATE: RefCell<Vec<Late>> = const { RefCell::new(Vec::new()) };
    }
    let engines = [
        Caching::new(System::new()).into_ref().erase(),
        Bfc::new(System::new()).into_ref().erase(),
        Pow2::new(System::new()).into_ref().erase(),
        Direct::new(System::new()).into_ref().erase(),
        Hardened::new(Direct::new(System::new()), Hardening::new().quarantine(1 << 12)).into_ref().erase(),
    ];
    for allocator in engines {
        let theirs = allocator.clone();
        let ended = std::thread::spawn(move || {
            let block = theirs.allocate(&Request::new(1000)).unwrap();
            LATE.with_borrow_mut(|late| late.push(Late(theirs, Some(block))));
        });
        ended.join().unwrap();
        assert!(allocator.is_unique());
        assert_eq!(allocator.stats().live(), 0);
    }
}

/// A backing that panics or calls the engine while it zeroes: the request fails, and nothing is lost.
#[test]
fn a_backing_that_panics_does_not_zero() {
    #[derive(Debug)]
    struct Nervous(System);
    // SAFETY: the system's regions.
    unsafe impl Backing for Nervous {
        fn name(&self) -> &str {
            "nervous"
        }
        unsafe fn zero(&self, _: NonNull<u8>, _: usize) -> bool {
            resume_unwind(Box::new("zero"));
        }
        orlop_alloc::forward_backing!(0; except name, zero);
    }
    let engines = [
        Bfc::new(Nervous(System::new())).into_ref().erase(),
        Caching::new(Nervous(System::new())).into_ref().erase(),
        Pow2::new(Nervous(System::new())).into_ref().erase(),
        Pool::new(Nervous(System::new())).into_ref().erase(),
    ];
    for allocator in engines {
        let mut dirty = allocator.allocate(&Request::new(1000)).unwrap();
        dirty.bytes_mut().unwrap().fill(7);
        drop(dirty);
        let refused = allocator.allocate(&Request::new(1000).zeroed());
        assert!(matches!(refused, Err(Error::CannotZero { .. })), "{}: {refused:?}", allocator.name());
        assert_eq!(allocator.stats().live(), 0);
        assert!(allocator.allocate(&Request::new(1000)).is_ok());
        allocator.verify().unwrap();
    }
}
