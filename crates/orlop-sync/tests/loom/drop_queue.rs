//! No value is lost or found twice, and one that was left before the owner looks is found.

use loom::sync::Arc;
use loom::thread;
use orlop_sync::DropQueue;

#[test]
fn each_value_is_collected_once() {
    loom::model(|| {
        let queue = Arc::new(DropQueue::default());
        let leave = |value: u32| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.leave(value))
        };
        let threads = [leave(1), leave(2)];
        let mut collected = Vec::new();
        // At the same time: some, or none.
        if queue.has_values() {
            queue.collect(&mut collected);
            assert!(!collected.is_empty(), "there were values");
        }
        for thread in threads {
            thread.join().unwrap();
        }
        // Both have been left.
        if collected.len() < 2 {
            assert!(queue.has_values(), "a value was left and is not seen");
            queue.collect(&mut collected);
        }
        collected.sort_unstable();
        assert_eq!(collected, [1, 2]);
        assert!(!queue.has_values());
    });
}
