//! Whatever is noted of regions is told, once and in order, whoever tells it.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use orlop_alloc::{Event, Observer, RegionAction, RegionEvent, RegionWatch, RegionWatches};
use orlop_core::Device;

/// Collects times.
#[derive(Default)]
struct Told {
    clock: AtomicU64,
    times: Mutex<Vec<u64>>,
}

impl Observer for Told {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Region { event, .. } = event {
            self.times.lock().unwrap().extend(event.at);
        }
    }

    fn now(&self) -> Option<u64> {
        Some(self.clock.fetch_add(1, Ordering::Relaxed))
    }
}

/// Notes under the lock of the regions, tells without it, as engines and handles do.
fn change(regions: &Mutex<RegionWatches>, watch: &RegionWatch) {
    regions.lock().unwrap().note(RegionEvent::new(RegionAction::Gained, 0, 1, Device::CPU));
    watch.tell();
}

#[test]
fn all_that_is_noted_is_told_in_order() {
    loom::model(|| {
        let told = std::sync::Arc::new(Told::default());
        let watch = std::sync::Arc::new(RegionWatch::new(told.clone(), "loom"));
        let mut watches = RegionWatches::default();
        watches.add(&watch, []);
        let regions = Arc::new(Mutex::new(watches));
        let other = {
            let (regions, watch) = (Arc::clone(&regions), watch.clone());
            thread::spawn(move || {
                change(&regions, &watch);
                change(&regions, &watch);
            })
        };
        change(&regions, &watch);
        other.join().unwrap();
        assert_eq!(*told.times.lock().unwrap(), [0, 1, 2]);
    });
}
