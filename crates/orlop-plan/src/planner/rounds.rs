//! Jobs on several threads, with results that do not depend on the number of threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Executes all jobs, and returns their results in order. A result that is final makes those of later jobs
/// unnecessary: they are `None`, whether or not they were executed.
pub(crate) fn run<J: Send, R: Send>(
    threads: usize,
    jobs: Vec<J>,
    execute: impl Fn(J) -> R + Sync,
    is_final: impl Fn(&R) -> bool + Sync,
) -> Vec<Option<R>> {
    let count = jobs.len();
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    if threads.min(count) <= 1 {
        for (result, job) in results.iter_mut().zip(jobs) {
            if is_final(result.insert(execute(job))) {
                break;
            }
        }
        return results;
    }
    let queue = Mutex::new(jobs.into_iter().enumerate().collect::<VecDeque<_>>());
    let done = Mutex::new(&mut results);
    let first_final = AtomicUsize::new(usize::MAX);
    let work = || {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            // Only saves work: results behind the first final one are dropped below.
            let Some((index, job)) = next.filter(|(index, _)| *index <= first_final.load(Ordering::Relaxed))
            else {
                return;
            };
            let result = execute(job);
            if is_final(&result) {
                first_final.fetch_min(index, Ordering::Relaxed);
            }
            done.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            // Without another thread, this one executes all jobs.
            let spawned = thread::Builder::new().spawn_scoped(scope, work);
            drop(spawned);
        }
        work();
    });
    let last = first_final.into_inner();
    results.iter_mut().skip(last.saturating_add(1)).for_each(|result| *result = None);
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        for threads in [1, 2, 3, 16] {
            let jobs: Vec<u64> = (0..40).collect();
            let results = run(threads, jobs, |job| job * job, |&result| result == 25 || result == 100);
            let expected: Vec<_> = (0..40).map(|job| (job <= 5).then_some(job * job)).collect();
            assert_eq!(results, expected, "{threads} threads");
        }
    }

    #[test]
    fn no_jobs_have_no_results() {
        assert!(run(4, Vec::<u64>::new(), |job| job, |_| true).is_empty());
    }
}
