//! Runs independent jobs on a few threads.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Runs `job` once for each item, on `workers` threads that each take the next item, and returns the results
/// in no particular order. A panic in a job is resumed on this thread after the other jobs have ended.
pub(crate) fn for_each<'a, T: Sync, R: Send>(
    items: &'a [T],
    workers: usize,
    job: impl Fn(&'a T) -> R + Sync,
) -> Vec<R> {
    let queue = Mutex::new(items.iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || std::iter::from_fn(next).map(&job).collect::<Vec<R>>();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let done =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        done.flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_worked_on_once() {
        let items: Vec<u32> = (0..100).collect();
        let mut doubled = for_each(&items, 3, |item| item * 2);
        doubled.sort_unstable();
        assert_eq!(doubled, (0..100).map(|item| item * 2).collect::<Vec<_>>());
    }
}
