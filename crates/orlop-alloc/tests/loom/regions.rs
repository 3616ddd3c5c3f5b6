//! Every recorded region event is delivered once and in order, whichever thread delivers it.

use loom::sync::{Arc, Mutex};
use loom::thread;
use orlop_alloc::{
    Event, Observer, RegionAction, RegionEvent,
    engine_support::{RegionWatch, RegionWatches, SharedObserver},
};
use orlop_core::Device;

/// Collects addresses.
#[derive(Default)]
struct Told {
    addresses: Mutex<Vec<usize>>,
}

impl Observer for Told {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Region { event, .. } = event {
            self.addresses.lock().unwrap().push(event.address);
        }
    }
}

/// Regions: the next address is their number.
struct Regions {
    watches: RegionWatches,
    next: usize,
}

/// Records under the lock of the regions, and delivers without it, as engines and handles do.
fn change(regions: &Mutex<Regions>, watch: &RegionWatch) {
    let mut locked = regions.lock().unwrap();
    locked.watches.note(RegionEvent::new(RegionAction::Reserved, locked.next, 1, Device::CPU));
    locked.next += 1;
    drop(locked);
    watch.deliver();
}

#[test]
fn all_that_is_noted_is_told_in_order() {
    loom::model(|| {
        let told = std::sync::Arc::new(Told::default());
        let watch = std::sync::Arc::new(RegionWatch::new(SharedObserver::new(told.clone()), "loom"));
        let mut watches = RegionWatches::default();
        assert!(watches.add(&watch, []).is_empty());
        let regions = Arc::new(Mutex::new(Regions { watches, next: 0 }));
        let other = {
            let (regions, watch) = (Arc::clone(&regions), watch.clone());
            thread::spawn(move || {
                change(&regions, &watch);
                change(&regions, &watch);
            })
        };
        change(&regions, &watch);
        other.join().unwrap();
        assert_eq!(*told.addresses.lock().unwrap(), [0, 1, 2]);
    });
}
