//! The parts of the suite.

use super::engine::{LendRefusal, PlannedEngine};
use super::model::{PlannedModel, is_revoked};
use super::program::{BufferDeclaration, KINDS, declarations};
use super::setup::{PlannedSetup, PlannedSuite};
use crate::fault::{ConformanceFault, at_least, equal, rule};
use crate::suite::run::{cases, runner};
use orlop_core::{Device, MemoryKind};
use orlop_tensor::Tensor;
use proptest::prelude::any;
use proptest::test_runner::TestCaseError;
use std::thread;

type PlannedPart = fn(&PlannedSuite<'_>) -> Result<(), ConformanceFault>;

pub(super) const PARTS: &[(&str, PlannedPart)] = &[
    ("random plans", random),
    ("clones end with their buffers", clones),
    ("accesses hold their buffers", accesses),
    ("released in any order", released),
    ("failures of the backing", failures),
    ("threads with an engine each", engines),
    ("threads that share a step", shared_step),
    ("misuse", misuse),
];

/// The number of buffers of a program.
const BUFFERS: usize = if cfg!(miri) { 6 } else { 24 };

/// A program: its buffers, the engine, and the model of it.
struct PlannedCase<'a> {
    setup: PlannedSetup,
    engine: Box<dyn PlannedEngine>,
    model: PlannedModel<'a>,
}

/// Runs a check for random programs, which shrink if it fails.
fn each(
    suite: &PlannedSuite<'_>,
    part: &str,
    check: impl Fn(PlannedCase<'_>, &[BufferDeclaration]) -> Result<(), ConformanceFault>,
) -> Result<(), ConformanceFault> {
    // Small programs: fewer than eight are too few to find each fault that the suite is for.
    let cases = if cfg!(miri) { 1 } else { (2 * cases()).max(8) };
    let mut runner = runner(&format!("{}/{part}", suite.name), cases);
    let outcome = runner.run(&(declarations(BUFFERS), any::<u64>()), |(buffers, seed)| {
        let run = || {
            let setup = PlannedSetup::new(seed % 2 == 0)?;
            let engine = (suite.make)(&buffers, &setup.context)?;
            let model = PlannedModel::new(&buffers, seed);
            check(PlannedCase { setup, engine, model }, &buffers)
        };
        run().map_err(|fault: ConformanceFault| TestCaseError::fail(fault.to_string()))
    });
    // The message has the smallest program that fails.
    assert!(outcome.is_ok(), "{}", outcome.err().map(|error| error.to_string()).unwrap_or_default());
    Ok(())
}

impl PlannedCase<'_> {
    /// Goes through the steps of a run, some of them twice or left out, and calls `check` after each.
    fn run(
        &mut self,
        mut check: impl FnMut(&mut Self, u64) -> Result<(), ConformanceFault>,
    ) -> Result<(), ConformanceFault> {
        self.engine.begin()?;
        self.model.begin();
        let mut step = 0;
        while step <= self.model.steps() {
            self.engine.step(step).map_err(|refusal| in_step(step, refusal.into()))?;
            check(self, step).map_err(|fault| in_step(step, fault))?;
            step += [0, 1, 1, 1, 1, 2][usize::try_from(self.model.choose(6)).unwrap_or(1)];
        }
        Ok(())
    }

    fn check_step(&mut self, step: u64) -> Result<(), ConformanceFault> {
        self.model.check_step(&*self.engine, step)
    }

    /// Checks that the context counts exactly what the engine states, under its kinds.
    fn check_counted(&self) -> Result<(), ConformanceFault> {
        let stats = self.setup.context.stats(Device::CPU);
        for kind in MemoryKind::ALL {
            equal(
                "the requested bytes of a kind",
                self.engine.stated_bytes(kind),
                stats.kind(kind).requested_bytes,
            )?;
        }
        Ok(())
    }

    /// Drops everything, and checks that all memory was returned.
    fn finish(self) -> Result<(), ConformanceFault> {
        drop(self.engine);
        let live = self.setup.context.stats(Device::CPU).totals.all.live_blocks();
        equal("live blocks without the engine", 0, live)?;
        drop(self.setup.context);
        PlannedSetup::check_returned(&self.setup.counts)
    }
}

fn in_step(step: u64, fault: ConformanceFault) -> ConformanceFault {
    ConformanceFault::Step { step: usize::try_from(step).unwrap_or(usize::MAX), fault: Box::new(fault) }
}

/// Everything that can be checked from outside, in several runs.
fn random(suite: &PlannedSuite<'_>) -> Result<(), ConformanceFault> {
    each(suite, "random", |mut case, _| {
        case.check_counted()?;
        for kind in KINDS {
            let needed = (0..=case.model.steps()).map(|step| case.model.live_bytes(kind, step)).max();
            at_least("the stated bytes", needed.unwrap_or(0), case.engine.stated_bytes(kind))?;
        }
        for _ in 0..3 {
            case.run(|case, step| case.check_step(step))?;
        }
        case.check_counted()?;
        case.finish()
    })
}

/// A clone works while its buffer is live, or one that was live with it in the same memory, and has no bytes
/// afterwards.
fn clones(suite: &PlannedSuite<'_>) -> Result<(), ConformanceFault> {
    each(suite, "clones", |mut case, buffers| {
        // With a mark for those that have lost their bytes.
        let mut held: Vec<(usize, Tensor, bool)> = Vec::new();
        for _ in 0..2 {
            let mut now = 0;
            case.run(|case, step| {
                case.check_step(step)?;
                for (buffer, clone, has_ended) in &mut held {
                    *has_ended |= case.model.revokes(*buffer, now, step);
                    if *has_ended {
                        rule("a clone has no bytes after the last step", is_revoked(clone))?;
                    } else {
                        rule("a clone has bytes until the last step", !is_revoked(clone))?;
                        if case.model.is_alone(*buffer) {
                            case.model.check_contents(clone, *buffer)?;
                        }
                    }
                }
                now = step;
                for buffer in case.model.live(step) {
                    if case.model.choose(2) == 0 && buffers[buffer].elements > 0 {
                        let lent = case.engine.tensor(buffer)?;
                        held.push((
                            buffer,
                            if case.model.choose(2) == 0 { lent.clone() } else { lent.view([-1])? },
                            false,
                        ));
                    }
                }
                Ok(())
            })?;
            // The next run begins a new life of temporary buffers: their clones are of the former one.
            case.engine.begin()?;
            let mut ended = held.iter().filter(|(buffer, ..)| !buffers[*buffer].is_persistent());
            rule("a new run revokes clones", ended.all(|(_, clone, _)| is_revoked(clone)))?;
            held.retain(|(buffer, ..)| buffers[*buffer].is_persistent());
        }
        drop(held);
        case.finish()
    })
}

/// While a buffer is accessed, its last step does not end, and all buffers are live; it ends later.
fn accesses(suite: &PlannedSuite<'_>) -> Result<(), ConformanceFault> {
    each(suite, "accesses", |mut case, buffers| {
        for (number, buffer) in buffers.iter().enumerate().filter(|(_, buffer)| buffer.elements > 0) {
            case.engine.begin()?;
            case.model.begin();
            let last = if buffer.is_persistent() { 0 } else { buffer.steps.end - 1 };
            case.engine.step(last)?;
            case.check_step(last)?;
            let lent = case.engine.tensor(number)?.clone();
            let access = lent.storage()?.read()?;
            if buffer.is_persistent() {
                case.engine.step(last + 1)?;
                case.engine.begin()?;
                drop(access);
                case.model.check_contents(&lent, number)?;
                continue;
            }
            let end = buffer.steps.end;
            let ends = case.model.revokes(number, last, end);
            if ends {
                let refused = case.engine.step(end);
                rule("a buffer does not end while it is accessed", refused == Err(LendRefusal::InUse))?;
            } else {
                // An output in place goes on, with the bytes that are accessed.
                case.engine.step(end)?;
                rule("a buffer is accessed on", !is_revoked(&lent))?;
            }
            let refused = case.engine.begin();
            rule("a run does not begin while a buffer is accessed", refused == Err(LendRefusal::InUse))?;
            for live in case.model.live(if ends { last } else { end }) {
                case.model.check_contents(case.engine.tensor(live)?, live)?;
            }
            drop(access);
            if ends {
                case.engine.step(end)?;
            } else {
                case.engine.begin()?;
            }
            rule("the buffer has ended", is_revoked(&lent))?;
        }
        case.finish()
    })
}

/// The engine, the context and clones are dropped in any order, in two threads: clones keep their contents.
fn released(suite: &PlannedSuite<'_>) -> Result<(), ConformanceFault> {
    each(suite, "released", |mut case, buffers| {
        let until = case.model.choose(case.model.steps() + 1);
        for step in 0..=until {
            case.engine.step(step)?;
            case.check_step(step)?;
        }
        let mut clones = Vec::new();
        for buffer in case.model.live(until).filter(|&buffer| buffers[buffer].elements > 0) {
            clones.push((buffer, case.engine.tensor(buffer)?.clone()));
        }
        let PlannedCase { setup, engine, mut model } = case;
        let (mut engine, mut context) = (Some(engine), Some(setup.context));
        let mut here = true;
        while engine.is_some() || context.is_some() || !clones.is_empty() {
            let place = match model.choose(4) {
                0 => (engine.take(), None, None),
                1 => (None, context.take(), None),
                _ if clones.is_empty() => continue,
                _ => {
                    let clone = usize::try_from(model.choose(clones.len() as u64)).unwrap_or(0);
                    (None, None, Some(clones.swap_remove(clone)))
                }
            };
            if here {
                drop(place);
            } else {
                thread::scope(|scope| drop(scope.spawn(move || drop(place))));
            }
            here = !here;
            clones.iter().try_for_each(|(buffer, clone)| model.check_contents(clone, *buffer))?;
        }
        PlannedSetup::check_returned(&setup.counts)
    })
}

/// From each request for memory on, all fail, retries too: an error without effect; the plan works later.
fn failures(suite: &PlannedSuite<'_>) -> Result<(), ConformanceFault> {
    each(suite, "failures", |case, buffers| {
        let PlannedCase { setup, engine, mut model } = case;
        drop(engine);
        for call in 0..64 {
            setup.failures.fail_calls(u64::MAX << call);
            let (before, made) = (setup.failures.refused(), (suite.make)(buffers, &setup.context));
            let has_failed = setup.failures.refused() > before;
            setup.failures.heal();
            match made {
                Err(error) => {
                    rule("an engine fails only if the backing failed", has_failed)?;
                    rule("a failure of the backing is one of memory", error.is_out_of_memory())?;
                    let live = setup.context.stats(Device::CPU).totals.all.live_blocks();
                    equal("live blocks after a failure", 0, live)?;
                }
                Ok(mut engine) => {
                    rule("a failure of the backing is an error", !has_failed)?;
                    engine.step(0)?;
                    model.check_step(&*engine, 0)?;
                    break;
                }
            }
        }
        drop(setup.context);
        PlannedSetup::check_returned(&setup.counts)
    })
}

/// Engines of one plan in two threads do not know of each other.
fn engines(suite: &PlannedSuite<'_>) -> Result<(), ConformanceFault> {
    each(suite, "engines", |case, buffers| {
        let PlannedCase { setup, engine, model: mut seeds } = case;
        drop(engine);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (context, counts) = (setup.context.clone(), setup.counts.clone());
                    let (failures, seed) = (setup.failures.clone(), seeds.choose(u64::MAX));
                    scope.spawn(move || {
                        let setup = PlannedSetup { context, counts, failures };
                        let engine = (suite.make)(buffers, &setup.context)?;
                        let mut case = PlannedCase { setup, engine, model: PlannedModel::new(buffers, seed) };
                        (0..2).try_for_each(|_| case.run(|case, step| case.check_step(step)))
                    })
                })
                .collect();
            let died = || Err(ConformanceFault::Rule("no thread panics"));
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| died()))
        })?;
        let live = setup.context.stats(Device::CPU).totals.all.live_blocks();
        equal("live blocks without the engines", 0, live)?;
        drop(setup.context);
        PlannedSetup::check_returned(&setup.counts)
    })
}

/// Two threads write to the buffers of one step, each to every other memory.
fn shared_step(suite: &PlannedSuite<'_>) -> Result<(), ConformanceFault> {
    each(suite, "shared step", |mut case, buffers| {
        for _ in 0..2 {
            case.run(|case, step| {
                case.check_step(step)?;
                let engine = &*case.engine;
                let alone: Vec<usize> =
                    case.model.live(step).filter(|&buffer| case.model.is_alone(buffer)).collect();
                let results: Vec<Result<(), ConformanceFault>> = thread::scope(|scope| {
                    let workers: Vec<_> = (0..2)
                        .map(|worker| {
                            let own = alone.iter().copied().skip(worker).step_by(2);
                            let mut model = PlannedModel::new(buffers, step);
                            scope.spawn(move || {
                                own.into_iter().try_for_each(|buffer| {
                                    let tensor = engine.tensor(buffer)?;
                                    model.write(tensor, buffer)?;
                                    model.check_contents(tensor, buffer)
                                })
                            })
                        })
                        .collect();
                    let died = || Err(ConformanceFault::Rule("no thread panics"));
                    workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| died())).collect()
                });
                results.into_iter().collect::<Result<(), _>>()?;
                // From here on their contents are known again.
                alone.iter().try_for_each(|&buffer| case.model.write(case.engine.tensor(buffer)?, buffer))
            })?;
        }
        case.finish()
    })
}

/// Unknown buffers and earlier steps are refused, without effect.
fn misuse(suite: &PlannedSuite<'_>) -> Result<(), ConformanceFault> {
    each(suite, "misuse", |mut case, buffers| {
        case.engine.step(3)?;
        case.check_step(3)?;
        for unknown in [buffers.len(), usize::MAX] {
            let refused = matches!(case.engine.tensor(unknown), Err(LendRefusal::Unknown));
            rule("an unknown buffer is refused", refused)?;
        }
        rule("an earlier step is refused", case.engine.step(2) == Err(LendRefusal::Backwards))?;
        case.check_step(3)?;
        case.engine.step(3)?;
        case.check_step(3)?;
        case.finish()
    })
}
