//! Threads that find the heap empty together add one region, and each gets the chunk that its growth made
//! room for.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use orlop_sync::{CentralHeap, GrowableHeap, HeapGrowth, Mutex};

/// A heap of equal chunks, of which only the number matters.
#[derive(Default)]
struct Stub {
    chunks: usize,
}

impl CentralHeap for Stub {
    type Request<'a> = ();
    type Chunk = ();
    type Region = usize;

    fn take(&mut self, (): &()) -> Option<()> {
        self.chunks = self.chunks.checked_sub(1)?;
        Some(())
    }

    fn add(&mut self, chunks: usize) {
        self.chunks += chunks;
    }
}

/// Adds two chunks at a time, three times at most.
struct Backing<'a>(&'a AtomicUsize);

impl HeapGrowth<Stub> for Backing<'_> {
    type Error = ();

    fn grow(&mut self, _: &Mutex<Stub>, (): &()) -> Result<usize, ()> {
        if self.0.fetch_add(1, Ordering::Relaxed) < 3 { Ok(2) } else { Err(()) }
    }
}

#[test]
fn two_threads_that_race_add_one_region() {
    loom::model(|| {
        let heap = Arc::new((GrowableHeap::new(Stub::default()), AtomicUsize::new(0)));
        let other = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || heap.0.take_or_grow(&(), &mut Backing(&heap.1)).is_ok())
        };
        assert!(heap.0.take_or_grow(&(), &mut Backing(&heap.1)).is_ok());
        assert!(other.join().unwrap());
        assert_eq!(heap.1.load(Ordering::Relaxed), 1, "one region serves both");
        assert_eq!(heap.0.lock().chunks, 0);
    });
}

#[test]
fn frees_and_trims_proceed_while_another_thread_grows() {
    loom::model(|| {
        let heap = Arc::new((GrowableHeap::new(Stub { chunks: 1 }), AtomicUsize::new(0)));
        let grower = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || {
                assert!(heap.0.take_or_grow(&(), &mut Backing(&heap.1)).is_ok());
                // A free needs no growth lock.
                heap.0.lock().add(1);
            })
        };
        let trimmed = heap.0.while_not_growing(|heap| std::mem::take(&mut heap.lock().chunks));
        grower.join().unwrap();
        let added = 2 * heap.1.load(Ordering::Relaxed);
        assert_eq!(heap.0.lock().chunks + trimmed, 1 + added);
    });
}
