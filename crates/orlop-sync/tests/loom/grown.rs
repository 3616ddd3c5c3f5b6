//! Threads that find the centre empty together gain one region, and nobody's piece is snatched.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use orlop_sync::{Centre, Grown, Growth, Mutex};

/// Pieces, and how many there ever were.
#[derive(Default)]
struct Stub {
    pieces: usize,
}

impl Centre for Stub {
    type Ask<'a> = ();
    type Got = ();
    type Gain = usize;

    fn take(&mut self, (): &()) -> Option<()> {
        self.pieces = self.pieces.checked_sub(1)?;
        Some(())
    }

    fn add(&mut self, pieces: usize) {
        self.pieces += pieces;
    }
}

/// Brings two pieces at a time, three times at most.
struct Backing<'a>(&'a AtomicUsize);

impl Growth<Stub> for Backing<'_> {
    type Error = ();

    fn gain(&mut self, _: &Mutex<Stub>, (): &()) -> Result<usize, ()> {
        if self.0.fetch_add(1, Ordering::Relaxed) < 3 { Ok(2) } else { Err(()) }
    }
}

#[test]
fn two_that_race_gain_one_region() {
    loom::model(|| {
        let centre = Arc::new((Grown::new(Stub::default()), AtomicUsize::new(0)));
        let other = {
            let centre = Arc::clone(&centre);
            thread::spawn(move || centre.0.take_or_grow(&(), &mut Backing(&centre.1)).is_ok())
        };
        assert!(centre.0.take_or_grow(&(), &mut Backing(&centre.1)).is_ok());
        assert!(other.join().unwrap());
        assert_eq!(centre.1.load(Ordering::Relaxed), 1, "one gain served both");
        assert_eq!(centre.0.lock().pieces, 0);
    });
}

#[test]
fn returning_and_trimming_go_on_while_another_grows() {
    loom::model(|| {
        let centre = Arc::new((Grown::new(Stub { pieces: 1 }), AtomicUsize::new(0)));
        let grower = {
            let centre = Arc::clone(&centre);
            thread::spawn(move || {
                assert!(centre.0.take_or_grow(&(), &mut Backing(&centre.1)).is_ok());
                // Back again: no growth lock needed.
                centre.0.lock().add(1);
            })
        };
        let trimmed = centre.0.while_not_growing(|centre| std::mem::take(&mut centre.lock().pieces));
        grower.join().unwrap();
        let gained = 2 * centre.1.load(Ordering::Relaxed);
        assert_eq!(centre.0.lock().pieces + trimmed, 1 + gained);
    });
}
