//! A program with orlop as its global allocator.
#![cfg(not(loom))]

use orlop_alloc::bare::GlobalAllocator;
use orlop_alloc::{Event, Observer, Tag};
use orlop_core::MemoryKind;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

#[global_allocator]
static GLOBAL: GlobalAllocator = GlobalAllocator;

/// Allocates and frees while its thread ends.
struct AtExit(Vec<String>, mpsc::Sender<usize>);

impl Drop for AtExit {
    fn drop(&mut self) {
        let longer: Vec<String> = self.0.iter().map(|text| text.repeat(100)).collect();
        let _ = self.1.send(longer.iter().map(String::len).sum());
    }
}

thread_local! {
    static LAST: RefCell<Option<AtExit>> = const { RefCell::new(None) };
}

#[test]
fn collections_threads_and_their_ends() {
    let (sender, receiver) = mpsc::channel();
    let threads = if cfg!(miri) { 2 } else { 70 };
    let workers: Vec<_> = (0..threads)
        .map(|number| {
            let sender = sender.clone();
            thread::spawn(move || {
                LAST.set(Some(AtExit((0..10).map(|n| format!("{number} {n}")).collect(), sender)));
                let mut map: HashMap<String, BTreeMap<usize, Vec<u8>>> = HashMap::new();
                for n in 0..if cfg!(miri) { 20 } else { 400 } {
                    map.entry(format!("key {}", n % 7))
                        .or_default()
                        .insert(n, vec![u8::try_from(number).unwrap(); n * 13 % 5000]);
                }
                map
            })
        })
        .collect();
    drop(sender);
    for (number, worker) in workers.into_iter().enumerate() {
        let map = worker.join().unwrap();
        assert!(map.values().flat_map(BTreeMap::values).flatten().all(|&byte| usize::from(byte) == number));
    }
    assert_eq!(receiver.into_iter().filter(|&length| length >= 3000).count(), threads);
}

/// Allocates when its thread ends, in a scope.
struct AtEnd(mpsc::Sender<Vec<u8>>, MemoryKind);

impl Drop for AtEnd {
    fn drop(&mut self) {
        let bytes = GlobalAllocator::scope(self.1, Tag::NONE, || vec![1u8; 100_000]);
        let _ = self.0.send(bytes);
    }
}

#[test]
fn a_scope_accounts_what_its_thread_allocates() {
    thread_local! {
        static END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }
    let live = |kind: MemoryKind| GlobalAllocator::stats().kind(kind).live_bytes;
    let tag = Tag::new("phase");
    let tagged = || {
        let uses = GlobalAllocator::tag_uses();
        uses.iter().filter(|part| part.tag == tag).map(|part| part.bytes).sum::<u64>()
    };
    let mut weights = GlobalAllocator::scope(MemoryKind::Persistent, tag, || {
        // A scope inside, left by a panic.
        let inner = std::panic::catch_unwind(|| {
            GlobalAllocator::scope(MemoryKind::KvCache, Tag::NONE, || std::panic::resume_unwind(Box::new(())))
        });
        assert!(inner.is_err());
        vec![1u8; 300_000]
    });
    assert!((300_000..400_000).contains(&live(MemoryKind::Persistent)) && tagged() >= 300_000);
    let cache = GlobalAllocator::scope(MemoryKind::KvCache, Tag::NONE, || weights.clone());
    assert!((300_000..400_000).contains(&live(MemoryKind::KvCache)));
    // Another thread frees it.
    thread::spawn(move || drop(cache)).join().unwrap();
    assert_eq!(live(MemoryKind::KvCache), 0);
    // Moved outside of the scope, it is of the kind there.
    weights.reserve(1 << 20);
    assert_eq!((live(MemoryKind::Persistent), tagged()), (0, 0));
    // While a thread ends.
    let (sender, receiver) = mpsc::channel();
    thread::spawn(|| END.set(Some(AtEnd(sender, MemoryKind::Persistent)))).join().unwrap();
    let bytes = receiver.recv().unwrap();
    assert!(live(MemoryKind::Persistent) >= 100_000 && bytes[99_999] == 1);
    drop(bytes);
    assert_eq!(live(MemoryKind::Persistent), 0);
}

/// Keeps the sizes of blocks with a tag behind a lock, in memory that it has from the start: what an observer
/// allocates is the system's, and a leak checker does not find its address in memory of the allocator. The
/// other tests have no such blocks.
struct TaggedSizes {
    tag: Tag,
    sizes: Mutex<Vec<usize>>,
}

impl TaggedSizes {
    /// Returns a copy, which is allocated while the lock is held.
    fn copy(&self) -> Vec<usize> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for TaggedSizes {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Allocated { block, .. } = event
            && block.tag.name() == self.tag.name()
        {
            self.sizes.lock().unwrap_or_else(PoisonError::into_inner).push(block.requested);
        }
    }
}

#[test]
fn the_lock_of_an_observer_can_be_held_unobserved() {
    let tag = Tag::new("observed");
    let observer = Arc::new(TaggedSizes { tag, sizes: Mutex::new(Vec::with_capacity(16)) });
    assert!(GlobalAllocator::observe(Arc::clone(&observer) as Arc<dyn Observer>));
    assert!(!GlobalAllocator::observe(Arc::clone(&observer) as Arc<dyn Observer>));
    let (sender, receiver) = mpsc::channel();
    // A thread of its own: a deadlock fails the test, and does not stop it.
    thread::spawn(move || {
        GlobalAllocator::scope(MemoryKind::Default, tag, || {
            let observed = vec![1u8; 5000];
            let copy = GlobalAllocator::unobserved(|| {
                drop(observed);
                observer.copy()
            });
            let after = GlobalAllocator::unobserved(|| observer.copy());
            let nested = GlobalAllocator::unobserved(|| GlobalAllocator::unobserved(|| observer.copy()));
            drop(vec![1u8; 7000]);
            // What interning allocates is in no event, because the observer reads names.
            assert_eq!(Tag::new("interned while observed").name(), "interned while observed");
            let last = GlobalAllocator::unobserved(|| observer.copy());
            let _ = sender.send([copy, after, nested, last].map(|sizes| sizes.len()));
        });
    });
    let counts = receiver.recv_timeout(Duration::from_secs(60)).expect("the observer waits for its own lock");
    assert_eq!(counts, [1, 1, 1, 2]);
}

/// The provenance of a box ends with its value.
#[test]
fn a_box_is_freed_and_grown_by_its_own_pointer() {
    let boxed: Box<[u64]> = vec![1u64; 9].into_boxed_slice();
    let mut vector = boxed.into_vec();
    vector.extend([2; 3]);
    vector.shrink_to_fit();
    let boxed = Box::new([3u64; 9]);
    assert_eq!((vector[11], boxed[8]), (2, 3));
}

#[test]
fn vectors_grow_and_shrink_and_pages_are_zero() {
    let mut numbers: Vec<u32> = Vec::new();
    for n in 0..if cfg!(miri) { 1000 } else { 1_000_000 } {
        numbers.push(n);
    }
    numbers.truncate(100);
    numbers.shrink_to_fit();
    assert!(numbers.iter().copied().eq(0..100));
    assert!(vec![0u64; 100_000].iter().all(|&zero| zero == 0));
    #[repr(align(8192))]
    struct Aligned(u8);
    let aligned: Vec<Box<Aligned>> = (0..10).map(|n| Box::new(Aligned(n))).collect();
    assert!(aligned.iter().zip(0..).all(|(a, n)| a.0 == n && (&raw const **a).addr() % 8192 == 0));
}

#[test]
fn it_counts_what_the_program_has() {
    let live = || GlobalAllocator::stats().live();
    let before = live();
    // More than all other tests allocate meanwhile; never touched.
    let large = Vec::<u8>::with_capacity(512 << 20);
    assert!(live() >= before + (256 << 20));
    drop(large);
    GlobalAllocator::trim(0);
    GlobalAllocator::verify().unwrap();
    assert_eq!(GlobalAllocator::stats().refused_frees, 0);
}

/// The child of a fork can allocate, whatever other threads were doing.
#[test]
#[cfg(all(unix, not(miri)))]
fn forks_while_others_allocate() {
    use std::sync::atomic::{AtomicBool, Ordering};

    GlobalAllocator::hold_over_forks().unwrap();
    GlobalAllocator::hold_over_forks().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut texts = Vec::new();
                for n in 0usize.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    texts.push("orlop".repeat(n % 3000));
                    texts.truncate(n % 50);
                }
            });
        }
        let done = (0..50)
            .filter(|_| {
                // SAFETY: the child allocates from a fork-safe allocator, and then ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: the alarm ends the child if it hangs.
                    unsafe { libc::alarm(20) };
                    let texts: Vec<String> = (0..200).map(|n| "child".repeat(n * 10)).collect();
                    let length: usize = texts.iter().map(String::len).sum();
                    drop(texts);
                    GlobalAllocator::trim(0);
                    // SAFETY: ends the child without the exit handlers of the test harness.
                    unsafe { libc::_exit(if length == 5 * 10 * 199 * 100 { 0 } else { 1 }) };
                }
                let mut status = 0;
                // SAFETY: the process is our child, and the pointer is valid for its status.
                let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
                waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            })
            .count();
        over.store(true, Ordering::Relaxed);
        assert_eq!(done, 50);
    });
}
