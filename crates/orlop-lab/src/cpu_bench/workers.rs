//! The worker threads of a replay. All run each pass together; one of them, the leader, measures the cost for
//! the process.
//!
//! A pass may be over before the system has scheduled the other threads, and would then not measure a shared
//! allocator. So a thread that waits for the others to begin or to finish continues to replay, untimed.

use super::pass::{BlockSlots, FailedOperation, pass, slots};
use super::process;
use super::replay::{PassProgress, Replay};
use super::start_gate::{Abandoned, StartGate};
use crate::LabError;
use orlop_alloc::AllocatorRef;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The minimum number of passes before a time limit ends a replay.
const MIN_PASSES: usize = 3;

/// The measured cost of the passes.
#[derive(Debug, Default)]
pub(super) struct ReplayCosts {
    /// For each pass, the mean time of a thread.
    pub(super) times: Vec<Duration>,
    /// For each pass, the page faults of the process. Empty if unknown.
    pub(super) faults: Vec<u64>,
    /// The peak of resident memory.
    pub(super) resident: Option<u64>,
}

struct Workers<'a> {
    replay: &'a Replay<'a>,
    allocator: &'a AllocatorRef,
    gate: StartGate,
    /// The number of passes that threads began, and ended. They synchronize nothing.
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// Whether a pass failed. Ordered, like `over`, by the gate.
    failed: AtomicBool,
    /// Whether the leader has ended the replay.
    over: AtomicBool,
}

/// The result of a worker.
#[derive(Default)]
struct WorkerResult {
    times: Vec<Duration>,
    failure: Option<FailedOperation>,
}

pub(super) fn run(replay: &Replay<'_>, allocator: &AllocatorRef) -> Result<ReplayCosts, LabError> {
    let workers = Workers {
        replay,
        allocator,
        gate: StartGate::new(replay.threads),
        begun: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        over: AtomicBool::new(false),
    };
    let mut leader = Leader::new(replay);
    let logs = thread::scope(|scope| -> Result<Vec<WorkerResult>, LabError> {
        // Threads that have started end if not all can be started.
        let member = workers.gate.member();
        // The leader is the current thread: with one thread, nothing is spawned.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, || workers.work(None));
        let others: Result<Vec<_>, _> = (1..replay.threads).map(spawn).collect();
        let others = others.map_err(|error| LabError::Threads { threads: replay.threads, error })?;
        member.done();
        let own = workers.work(Some(&mut leader));
        let others =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        Ok(std::iter::once(own).chain(others).collect())
    })?;
    let passes = leader.passes;
    let mut times = vec![Duration::ZERO; passes];
    for log in logs {
        if let Some(failure) = log.failure {
            return Err(failure.explain(replay.trace, allocator));
        }
        for (sum, time) in times.iter_mut().zip(log.times) {
            *sum += time;
        }
    }
    let threads = u32::try_from(replay.threads).unwrap_or(u32::MAX);
    times.iter_mut().for_each(|time| *time /= threads);
    Ok(ReplayCosts { times, faults: leader.faults, resident: leader.resident })
}

impl Workers<'_> {
    fn work(&self, leader: Option<&mut Leader<'_>>) -> WorkerResult {
        let member = self.gate.member();
        let mut log = WorkerResult::default();
        // Abandoned: another thread panicked, and its panic is propagated.
        if self.passes(leader, &mut log).is_ok() {
            member.done();
        }
        log
    }

    fn passes(&self, mut leader: Option<&mut Leader<'_>>, log: &mut WorkerResult) -> Result<(), Abandoned> {
        let mut slots = slots(self.replay.trace);
        for number in 1.. {
            self.gate.meet()?;
            if let Some(leader) = leader.as_deref_mut() {
                leader.before();
            }
            self.gate.meet()?;
            match self.timed(number, &mut slots) {
                Ok(time) => log.times.push(time),
                Err(failure) => {
                    log.failure = Some(failure);
                    self.failed.store(true, Ordering::Relaxed);
                }
            }
            self.gate.meet()?;
            if let Some(leader) = leader.as_deref_mut() {
                let over = leader.after() || self.failed.load(Ordering::Relaxed);
                self.over.store(over, Ordering::Relaxed);
            }
            self.gate.meet()?;
            slots.fill_with(|| None);
            if self.over.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    /// Runs and times this thread's part of pass `number`, from 1.
    fn timed(&self, number: usize, slots: &mut BlockSlots) -> Result<Duration, FailedOperation> {
        let total = number * self.replay.threads;
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.keep_busy(&self.begun, total, slots)?;
        let begin = Instant::now();
        let result = self.pass(slots);
        let time = begin.elapsed();
        self.ended.fetch_add(1, Ordering::Relaxed);
        result?;
        self.keep_busy(&self.ended, total, slots)?;
        Ok(time)
    }

    /// Replays until `count` has reached `total`, or the replay fails.
    fn keep_busy(
        &self,
        count: &AtomicUsize,
        total: usize,
        slots: &mut BlockSlots,
    ) -> Result<(), FailedOperation> {
        while count.load(Ordering::Relaxed) < total
            && !self.failed.load(Ordering::Relaxed)
            && !self.gate.is_abandoned()
        {
            slots.fill_with(|| None);
            self.pass(slots)?;
            slots.fill_with(|| None);
        }
        Ok(())
    }

    fn pass(&self, slots: &mut BlockSlots) -> Result<(), FailedOperation> {
        pass(self.replay.trace, self.replay.touch, self.allocator, slots)
    }
}

/// Measures the passes between them.
struct Leader<'a> {
    replay: &'a Replay<'a>,
    begin: Instant,
    passes: usize,
    faults_before: Option<u64>,
    faults: Vec<u64>,
    /// Whether the peak of resident memory was reset for this replay.
    has_own_peak: bool,
    resident: Option<u64>,
}

impl<'a> Leader<'a> {
    fn new(replay: &'a Replay<'a>) -> Self {
        Self {
            replay,
            begin: Instant::now(),
            passes: 0,
            faults_before: None,
            faults: Vec::new(),
            has_own_peak: process::reset_peak_resident(),
            resident: None,
        }
    }

    fn before(&mut self) {
        self.faults_before = process::page_faults();
    }

    /// Returns `true` after the last pass.
    fn after(&mut self) -> bool {
        if let (Some(before), Some(now)) = (self.faults_before, process::page_faults()) {
            self.faults.push(now.saturating_sub(before));
        }
        let resident = if self.has_own_peak { process::peak_resident() } else { process::resident() };
        self.resident = self.resident.max(resident);
        self.passes += 1;
        let Replay { repeat, max_time, watcher, .. } = *self.replay;
        if let Some(watcher) = watcher {
            watcher(PassProgress { done: self.passes, of: repeat });
        }
        let late = max_time.is_some_and(|limit| self.begin.elapsed() >= limit);
        self.passes >= repeat || (late && self.passes >= MIN_PASSES)
    }
}
