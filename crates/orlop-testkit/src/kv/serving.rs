//! [`Serving`]: an engine without a model, whose device checks what it reads.

use super::device::{KvDevice, KvLaunch};
use super::manager::{KvLayers, KvManager, KvPrompt, KvRefusal, KvSetup};
use std::ops::Range;

/// A sequence with its tokens.
#[derive(Debug)]
pub struct Running<S> {
    /// The manager's handle.
    pub handle: S,
    /// The tokens, those to be computed included.
    pub tokens: Vec<u32>,
    /// Tokens of a closed step.
    launched: u32,
    /// Tokens of the open step.
    pub scheduled: u32,
    /// Tokens whose ids the manager knows.
    known: u32,
    /// Tokens that were reused.
    pub hit: u32,
}

/// An engine over a manager.
#[derive(Debug)]
pub struct Serving<M: KvManager> {
    /// The manager.
    pub manager: M,
    /// The pool of the case.
    pub setup: KvSetup,
    /// Running sequences.
    pub running: Vec<Running<M::Sequence>>,
    device: Box<dyn KvDevice>,
    in_flight: u32,
}

fn mix(a: u64, b: u64) -> u64 {
    let x = (a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ (x >> 29)
}

/// The stamp of a position: its tokens so far, and the group.
fn stamp(tokens: &[u32], position: u32, group: usize) -> u64 {
    let prefix = tokens[..=position as usize].iter().fold(7, |hash, &token| mix(hash, token.into()));
    mix(prefix, group as u64 + 1)
}

impl<M: KvManager> Serving<M> {
    pub(super) fn new(setup: KvSetup) -> Option<Self> {
        let manager = M::make(&setup)?;
        let device = M::device(&setup);
        Some(Self { manager, setup, running: Vec::new(), device, in_flight: 0 })
    }

    /// Checks that every block is in one class, and what the manager can check.
    ///
    /// # Panics
    /// If the books do not add up.
    pub fn check(&mut self) {
        let books = self.manager.books();
        let sum = books.free + books.used + books.cached + books.in_flight;
        assert_eq!((books.total, sum), (u64::from(self.setup.blocks), books.total), "{books:?}");
        if let Err(violation) = self.manager.check() {
            panic!("{violation}");
        }
    }

    /// Returns the free blocks.
    pub fn free(&mut self) -> u32 {
        u32::try_from(self.manager.books().free).unwrap_or(u32::MAX)
    }

    /// Starts a prompt of the common tenant, and returns its index.
    ///
    /// # Errors
    /// If the manager refuses it: nothing may have changed.
    ///
    /// # Panics
    /// If something has changed.
    pub fn admit(&mut self, tokens: &[u32], max_new: u32) -> Result<usize, KvRefusal> {
        self.admit_by(&KvPrompt { tenant: "", tokens, max_new, drafts: 0 })
    }

    /// As [`admit`](Self::admit).
    ///
    /// # Errors
    /// As for [`admit`](Self::admit).
    ///
    /// # Panics
    /// As [`admit`](Self::admit).
    pub fn admit_by(&mut self, prompt: &KvPrompt<'_>) -> Result<usize, KvRefusal> {
        let before = self.manager.books();
        let admitted = self.manager.admit(prompt);
        if admitted.is_err() {
            assert_eq!(before, self.manager.books(), "a refused admission changed something");
        }
        let (handle, hit) = admitted?;
        let tokens = prompt.tokens.to_vec();
        assert!((hit as usize) < tokens.len(), "the last token of a prompt is computed");
        let known = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        self.running.push(Running { handle, tokens, launched: hit, scheduled: hit, known, hit });
        self.check();
        Ok(self.running.len() - 1)
    }

    /// Schedules tokens; those behind the prompt are made up.
    ///
    /// # Errors
    /// If the manager refuses: nothing may have changed.
    ///
    /// # Panics
    /// If something has changed.
    pub fn append(&mut self, at: usize, tokens: u32) -> Result<(), KvRefusal> {
        let before = self.manager.books();
        let appended = self.manager.append(&self.running[at].handle, tokens);
        self.appended(at, tokens, appended, before)
    }

    /// Schedules a token and drafts.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    ///
    /// # Panics
    /// As [`append`](Self::append).
    pub fn append_drafts(&mut self, at: usize, drafts: u32) -> Result<(), KvRefusal> {
        let before = self.manager.books();
        let appended = self.manager.append_drafts(&self.running[at].handle, drafts);
        self.appended(at, drafts + 1, appended, before)
    }

    fn appended(
        &mut self,
        at: usize,
        tokens: u32,
        appended: Result<(), KvRefusal>,
        before: super::KvBooks,
    ) -> Result<(), KvRefusal> {
        if appended.is_err() {
            assert_eq!(before, self.manager.books(), "a refused append changed something");
        }
        appended?;
        let running = &mut self.running[at];
        running.scheduled += tokens;
        while running.tokens.len() < running.scheduled as usize {
            let next = u32::try_from(running.tokens.len()).unwrap_or(0).wrapping_mul(31) + running.tokens[0];
            running.tokens.push(next);
        }
        self.check();
        Ok(())
    }

    /// Takes tokens back. The tokens that follow are others.
    ///
    /// # Errors
    /// If the manager refuses: nothing may have changed.
    ///
    /// # Panics
    /// If something has changed, or the sequence is longer than asked for.
    pub fn truncate(&mut self, at: usize, len: u32) -> Result<(), KvRefusal> {
        let before = self.manager.books();
        let running = &mut self.running[at];
        match self.manager.truncate(&running.handle, len) {
            Ok(done) => {
                assert!(done.len <= len && done.known <= len);
                running.tokens.truncate(len as usize);
                running.launched = running.launched.min(done.len);
                running.scheduled = done.len;
                let tokens = &running.tokens[done.known as usize..done.len.max(done.known) as usize];
                self.manager.push_tokens(&running.handle, done.known, tokens);
                running.known = done.len.max(done.known);
                running.tokens.extend((0..4).map(|at| 1_000_000 + at));
            }
            Err(refusal) => {
                assert_eq!(before, self.manager.books(), "a refused truncation changed something");
                return Err(refusal);
            }
        }
        self.check();
        Ok(())
    }

    /// Starts a sequence with the same tokens, and returns its index.
    ///
    /// # Errors
    /// If the manager refuses.
    pub fn fork(&mut self, at: usize, max_tokens: u32) -> Result<usize, KvRefusal> {
        let parent = &self.running[at];
        let handle = self.manager.fork(&parent.handle, max_tokens)?;
        let Running { launched, scheduled, known, hit, .. } = *parent;
        let tokens = parent.tokens.clone();
        self.running.push(Running { handle, tokens, launched, scheduled, known, hit });
        self.check();
        Ok(self.running.len() - 1)
    }

    /// Drops a sequence.
    pub fn abort(&mut self, at: usize) {
        drop(self.running.swap_remove(at));
        self.check();
    }

    /// Ends a sequence.
    pub fn finish(&mut self, at: usize) {
        if self.running[at].scheduled > self.running[at].launched {
            self.step();
        }
        let running = self.running.swap_remove(at);
        self.manager.finish(running.handle);
        self.check();
    }

    /// Closes the open step. As many as the setup says stay in flight.
    pub fn step(&mut self) {
        let mut launch = KvLaunch::default();
        for copy in self.manager.copies() {
            let (from, to) = (self.slots(copy.group, copy.from), self.slots(copy.group, copy.to));
            launch.fresh.extend(to.clone());
            let is_state = self.setup.groups[copy.group].layers == KvLayers::State;
            launch.copies.extend(from.zip(to).take(if is_state { 1 } else { copy.tokens as usize }));
        }
        for at in 0..self.running.len() {
            if self.running[at].scheduled > self.running[at].launched {
                self.trace(at, &mut launch);
                self.running[at].launched = self.running[at].scheduled;
            }
        }
        launch.step = self.manager.close_step();
        self.device.launch(launch);
        self.in_flight += 1;
        while self.in_flight > self.setup.lag {
            self.settle();
        }
        for at in 0..self.running.len() {
            let Running { known, launched, .. } = self.running[at];
            if launched > known {
                let running = &mut self.running[at];
                let tokens = &running.tokens[known as usize..launched as usize];
                self.manager.push_tokens(&running.handle, known, tokens);
                running.known = launched;
            }
        }
        self.check();
    }

    /// Lists what a sequence's part of the open step reads and writes.
    fn trace(&self, at: usize, launch: &mut KvLaunch) {
        let Running { handle, tokens, launched, scheduled, .. } = &self.running[at];
        let (from, to) = (*launched, *scheduled);
        for (group, spec) in self.setup.groups.iter().enumerate() {
            let table = self.manager.table(handle, group);
            let block = |index: u32| {
                let page = table.get(index as usize).copied().flatten();
                let page = page.unwrap_or_else(|| panic!("group {group} has no block {index}, {spec:?}"));
                self.slots(group, page)
            };
            if spec.layers == KvLayers::State {
                let state = block(0).start;
                if from > 0 {
                    launch.reads_before.push((state, stamp(tokens, from - 1, group)));
                } else {
                    launch.fresh.extend(block(0));
                }
                launch.writes.push((state, stamp(tokens, to - 1, group)));
                continue;
            }
            assert_eq!(table.len(), to.div_ceil(spec.block_tokens) as usize, "a row has its tokens' blocks");
            let fresh = from.div_ceil(spec.block_tokens)..to.div_ceil(spec.block_tokens);
            launch.fresh.extend(fresh.flat_map(block));
            let slot = |position: u32| {
                block(position / spec.block_tokens).start + u64::from(position % spec.block_tokens)
            };
            launch.writes.extend((from..to).map(|position| (slot(position), stamp(tokens, position, group))));
            let first = match spec.layers {
                KvLayers::Window { tokens } => (from + 1).saturating_sub(tokens),
                _ => 0,
            };
            launch
                .reads_after
                .extend((first..to).map(|position| (slot(position), stamp(tokens, position, group))));
        }
    }

    /// Returns the slots of a page.
    fn slots(&self, group: usize, page: u32) -> Range<u64> {
        let tokens = u64::from(self.setup.groups[group].block_tokens);
        let start = self.manager.place(group, page) * tokens;
        start..start + tokens
    }

    /// Runs the oldest step in flight, and settles it.
    fn settle(&mut self) {
        let Some(step) = self.device.settle() else { return };
        self.in_flight -= 1;
        self.manager.settle(step);
        self.check();
    }

    /// Settles all steps.
    pub fn settle_all(&mut self) {
        while self.in_flight > 0 {
            self.settle();
        }
    }

    /// Computes the rest of a prompt, in steps that end at checkpoints.
    ///
    /// # Errors
    /// If the manager refuses.
    pub fn prefill(&mut self, at: usize) -> Result<(), KvRefusal> {
        loop {
            let rest = u32::try_from(self.running[at].tokens.len()).unwrap_or(0) - self.running[at].scheduled;
            if rest == 0 {
                return Ok(());
            }
            let next = self.manager.tokens_to_checkpoint(&self.running[at].handle).unwrap_or(rest);
            self.append(at, next.min(rest))?;
            self.step();
        }
    }

    /// Serves a prompt alone, and returns its hit.
    ///
    /// # Errors
    /// If the manager refuses.
    pub fn serve(&mut self, tokens: &[u32]) -> Result<u32, KvRefusal> {
        let at = self.admit(tokens, 1)?;
        let hit = self.running[at].hit;
        self.prefill(at)?;
        self.finish(at);
        self.settle_all();
        Ok(hit)
    }

    /// Returns the tokens that a prompt of the common tenant would reuse.
    pub fn probe(&mut self, tokens: &[u32]) -> u32 {
        self.manager.probe(&KvPrompt { tenant: "", tokens, max_new: 1, drafts: 0 })
    }

    /// Ends everything, and checks that no block is lost.
    ///
    /// # Panics
    /// If a block is not free afterwards.
    pub fn end(&mut self) {
        self.running.clear();
        self.step();
        self.settle_all();
        while self.manager.evict() {}
        let books = self.manager.books();
        assert_eq!(books.free, books.total, "leaked: {books:?}");
    }
}
