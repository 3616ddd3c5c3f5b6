//! The oracle: a device that runs each step as late as it may, and stamps what it writes.
//!
//! A step that is closed runs when it settles, with the tables that were exported when it was closed. Loads,
//! on another stream, write at once. So a page that is handed out too early is written under a step that
//! still reads it, and the step finds a wrong stamp. Everything runs on a device in host memory and on a
//! simulated GPU, whose driver checks the order of streams.

mod devices;
mod stores;
mod trace;
mod transfer;

use self::devices::{Devices, Turn};
use self::stores::StoreInFlight;
pub(crate) use self::transfer::{Faults, MemoryStore};
use orlop_core::StreamId;
use orlop_kv::{
    Admission, AdmissionRequest, AdmissionVerdict, ChainFields, GroupKind, KvError, KvLayer, KvPool,
    KvPoolBuilder, KvStats, PageCopy, Sequence, StepId, Tenant, TicketId,
};
use orlop_testkit::kv::{CLEARED, KvLaunch};

/// Bytes of an entry of one token, layer and arena.
pub(crate) const ENTRY: u64 = 8;
const NULL: u32 = u32::MAX;

/// A sequence with its tokens, and how much of it the device has been given.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) handle: Sequence,
    pub(crate) tokens: Vec<u32>,
    /// Tokens whose keys and values are there, or in a closed step.
    launched: u32,
    /// Tokens scheduled in the open step.
    pub(crate) scheduled: u32,
    pub(crate) hit: u32,
    /// Tokens whose ids the pool knows.
    known: u32,
    /// A load in flight, and the length before it.
    load: Option<(TicketId, u32)>,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) pool: KvPool,
    devices: Devices,
    in_flight: usize,
    pub(crate) running: Vec<Running>,
    pub(crate) stores: Vec<StoreInFlight>,
    /// Truncations so far: tokens that are made up after one are not those before it.
    truncations: u32,
    now: u64,
    _turn: Turn,
}

impl Oracle {
    pub(crate) fn new(builder: KvPoolBuilder) -> Self {
        Self::on(builder, Devices::all)
    }

    /// As [`new`](Self::new), without the simulated GPU.
    pub(crate) fn on_host(builder: KvPoolBuilder) -> Self {
        Self::on(builder, Devices::host)
    }

    fn on(builder: KvPoolBuilder, devices: fn(u64) -> (Devices, Turn)) -> Self {
        let mut pool = builder.build_detached().unwrap();
        let (devices, turn) = devices(pool.stats().total_bytes / 8);
        Self {
            pool,
            devices,
            in_flight: 0,
            running: vec![],
            stores: vec![],
            truncations: 0,
            now: 0,
            _turn: turn,
        }
    }

    pub(crate) fn fields() -> ChainFields<'static> {
        ChainFields::new(Tenant::Shared, "weights", "bf16")
    }

    /// Admits a prompt, and returns the index of the sequence.
    pub(crate) fn admit(&mut self, prompt: &[u32], max_new: u32) -> Result<usize, KvError> {
        self.admit_by(&AdmissionRequest::new(Self::fields(), prompt, max_new))
    }

    pub(crate) fn admit_by(&mut self, request: &AdmissionRequest<'_>) -> Result<usize, KvError> {
        let probe = self.pool.probe(request);
        let verdict = self.pool.can_admit(request);
        let before = self.books();
        let admitted = self.pool.admit(request);
        if admitted.is_err() {
            assert_eq!(before, self.books(), "a refused admission changed something");
        }
        let Admission { sequence, hit, .. } = admitted?;
        if self.pool.tier_stats().is_none() {
            assert_eq!(verdict, AdmissionVerdict::Now { hit });
            assert!(hit <= probe);
        }
        self.running.push(Running {
            handle: sequence,
            tokens: request.prompt.to_vec(),
            launched: hit,
            scheduled: hit,
            hit,
            known: u32::try_from(request.prompt.len()).unwrap(),
            load: None,
        });
        self.check();
        Ok(self.running.len() - 1)
    }

    /// Returns the statistics, after checking that the books add up.
    pub(crate) fn books(&mut self) -> KvStats {
        let stats = self.pool.stats();
        let sum = stats.free_bytes + stats.used_bytes + stats.cached_bytes + stats.in_flight_bytes;
        assert_eq!(sum, stats.total_bytes);
        stats
    }

    pub(crate) fn check(&mut self) {
        self.books();
        assert_eq!(self.pool.verify(), Ok(()));
    }

    /// Schedules the next tokens of a sequence. Those that it does not know are made up.
    pub(crate) fn append(&mut self, at: usize, tokens: u32) -> Result<(), KvError> {
        let before = self.books();
        let sequence = &mut self.running[at];
        if let Err(error) = self.pool.append(&sequence.handle, tokens) {
            assert_eq!(before, self.books(), "a refused append changed something");
            return Err(error);
        }
        self.scheduled(at, tokens);
        Ok(())
    }

    pub(crate) fn append_drafts(&mut self, at: usize, drafts: u32) -> Result<(), KvError> {
        let before = self.books();
        let sequence = &mut self.running[at];
        if let Err(error) = self.pool.append_drafts(&sequence.handle, drafts) {
            assert_eq!(before, self.books(), "a refused append changed something");
            return Err(error);
        }
        self.scheduled(at, drafts + 1);
        Ok(())
    }

    fn scheduled(&mut self, at: usize, tokens: u32) {
        let sequence = &mut self.running[at];
        sequence.scheduled += tokens;
        while sequence.tokens.len() < sequence.scheduled as usize {
            let next = u32::try_from(sequence.tokens.len()).unwrap() * 31 + sequence.tokens[0];
            let next = next.wrapping_add(self.truncations.wrapping_mul(1_000_003));
            sequence.tokens.push(next);
        }
        self.check();
    }

    /// Gives the pool the ids of the tokens that it does not know, up to the launched ones.
    pub(crate) fn push_tokens(&mut self, at: usize) {
        let sequence = &mut self.running[at];
        if sequence.launched > sequence.known {
            let tokens = &sequence.tokens[sequence.known as usize..sequence.launched as usize];
            self.pool.push_tokens(&sequence.handle, sequence.known, tokens).unwrap();
            sequence.known = sequence.launched;
        }
        self.check();
    }

    pub(crate) fn truncate(&mut self, at: usize, len: u32) -> Result<orlop_kv::Truncation, KvError> {
        let before = self.books();
        let sequence = &mut self.running[at];
        let truncated = self.pool.truncate(&sequence.handle, len);
        match &truncated {
            Ok(truncated) => {
                assert!(truncated.len + truncated.recompute == len);
                sequence.tokens.truncate(len as usize);
                sequence.launched = sequence.launched.min(truncated.len);
                sequence.scheduled = truncated.len;
                let tokens = &sequence.tokens[truncated.known as usize..(truncated.len as usize)];
                self.pool.push_tokens(&sequence.handle, truncated.known, tokens).unwrap();
                sequence.known = truncated.len;
                self.truncations += 1;
            }
            Err(_) => assert_eq!(before, self.books()),
        }
        self.check();
        truncated
    }

    pub(crate) fn fork(&mut self, at: usize, max_tokens: u32) -> Result<usize, KvError> {
        let before = self.books();
        let parent = &self.running[at];
        let forked = self.pool.fork(&parent.handle, max_tokens);
        let handle = match forked {
            Ok(handle) => handle,
            Err(error) => {
                assert_eq!(before, self.books());
                return Err(error);
            }
        };
        let Running { ref tokens, launched, scheduled, hit, known, .. } = *parent;
        let tokens = tokens.clone();
        self.running.push(Running { handle, tokens, launched, scheduled, hit, known, load: None });
        self.check();
        Ok(self.running.len() - 1)
    }

    pub(crate) fn finish(&mut self, at: usize) {
        if self.running[at].scheduled > self.running[at].launched {
            self.close();
        }
        let sequence = self.running.swap_remove(at);
        self.pool.finish(sequence.handle).unwrap();
        self.check();
    }

    pub(crate) fn drop_sequence(&mut self, at: usize) {
        drop(self.running.swap_remove(at));
        self.check();
    }

    /// Closes the open step: exports what its kernels read.
    pub(crate) fn close(&mut self) -> StepId {
        let copies: Vec<PageCopy> = self.pool.copies().to_vec();
        let copies = copies.iter().flat_map(|copy| self.copied_slots(copy)).collect();
        let fresh = self.pool.fresh_pages().to_vec();
        let fresh =
            fresh.iter().flat_map(|fresh| self.page_slots(fresh.group, fresh.part, fresh.page)).collect();
        let (mut reads_before, mut writes, mut reads_after) = (vec![], vec![], vec![]);
        for at in 0..self.running.len() {
            let Running { launched, scheduled, .. } = self.running[at];
            if scheduled > launched {
                self.trace(at, launched, scheduled, &mut reads_before, &mut writes, &mut reads_after);
                self.running[at].launched = scheduled;
            }
        }
        let step = self.pool.close_step();
        self.devices.launch(&KvLaunch { step: step.0, fresh, copies, reads_before, writes, reads_after });
        self.in_flight += 1;
        self.check();
        step
    }

    /// Runs the oldest step in flight, and settles it.
    pub(crate) fn settle(&mut self) {
        let Some(step) = self.devices.settle() else { return };
        self.in_flight -= 1;
        self.settled_under_stores();
        self.pool.settle(StepId(step)).unwrap();
        self.check();
    }

    pub(crate) fn settle_all(&mut self) {
        while self.in_flight > 0 {
            self.settle();
        }
    }

    pub(crate) fn steps_in_flight(&self) -> usize {
        self.in_flight
    }

    /// Computes the rest of a sequence's known tokens in one step.
    pub(crate) fn prefill(&mut self, at: usize) -> Result<(), KvError> {
        while self.running[at].scheduled < self.length(at) {
            let rest = self.length(at) - self.running[at].scheduled;
            let checkpoint = self.pool.tokens_to_checkpoint(&self.running[at].handle).unwrap();
            self.append(at, checkpoint.unwrap_or(rest).min(rest))?;
            self.close();
            self.settle_all();
        }
        Ok(())
    }

    pub(crate) fn length(&self, at: usize) -> u32 {
        u32::try_from(self.running[at].tokens.len()).unwrap()
    }

    /// Serves a prompt alone, and returns the hit.
    pub(crate) fn serve(&mut self, prompt: &[u32]) -> u32 {
        let at = self.admit(prompt, 1).unwrap();
        let hit = self.running[at].hit;
        self.prefill(at).unwrap();
        self.finish(at);
        hit
    }

    /// Loads tokens from another stream: it writes at once.
    pub(crate) fn begin_load(&mut self, at: usize, tokens: u32, lease: u64) -> Result<TicketId, KvError> {
        let (ticket, _) = self.pool.begin_load(&self.running[at].handle, tokens, lease)?;
        self.load(at, tokens, ticket);
        Ok(ticket)
    }

    /// As [`begin_load`](Self::begin_load), layer by layer: steps may follow before the ticket is complete.
    pub(crate) fn begin_load_by_layer(&mut self, at: usize, tokens: u32, lease: u64) -> Result<(), KvError> {
        let before = self.books();
        let begun = self.pool.begin_load_by_layer(&self.running[at].handle, tokens, lease);
        if begun.is_err() {
            assert_eq!(before, self.books(), "a refused load changed something");
        }
        let (ticket, _) = begun?;
        self.load(at, tokens, ticket);
        for (group, spec) in self.pool.geometry().groups().to_vec().iter().enumerate() {
            for layer in (0..spec.layers).filter(|_| spec.kind != GroupKind::Cross) {
                let layer = KvLayer { group, layer };
                self.pool.mark_layer_loaded(ticket, layer, StreamId::HOST).unwrap();
            }
        }
        Ok(())
    }

    fn load(&mut self, at: usize, tokens: u32, ticket: TicketId) {
        let from = self.running[at].scheduled;
        let (mut before, mut writes, mut after) = (vec![], vec![], vec![]);
        self.trace(at, from, from + tokens, &mut before, &mut writes, &mut after);
        self.devices.write(&writes);
        self.running[at].load = Some((ticket, from));
        self.running[at].scheduled += tokens;
        self.running[at].launched += tokens;
        self.check();
    }

    /// Completes or cancels the load of a sequence, if it has one.
    pub(crate) fn end_load(&mut self, at: usize, is_complete: bool) {
        let Some((ticket, before)) = self.running[at].load.take() else { return };
        if is_complete {
            self.pool.complete(ticket).unwrap();
        } else {
            self.pool.cancel(ticket).unwrap();
            self.took_back_load(at, before);
        }
        self.check();
    }

    /// A load was taken back, and with it what steps computed behind it: the pool forgets tokens that were
    /// sampled from that.
    fn took_back_load(&mut self, at: usize, before: u32) {
        let sequence = &mut self.running[at];
        (sequence.load, sequence.scheduled, sequence.launched) = (None, before, before);
        let refused = self.pool.push_tokens(&sequence.handle, u32::MAX, &[]);
        let Err(KvError::NotNextToken { known, .. }) = refused else { panic!("{refused:?}") };
        assert!(known <= sequence.known);
        sequence.known = known;
    }

    /// Lets time pass: leases that end take their loads back.
    pub(crate) fn pass_time(&mut self, ms: u64) {
        self.now += ms;
        self.pool.set_time(self.now);
        for at in 0..self.running.len() {
            let Some((_, before)) = self.running[at].load else { continue };
            if self.pool.len(&self.running[at].handle).unwrap().0 == before {
                self.took_back_load(at, before);
            }
        }
        self.check();
    }

    /// Overwrites the device's memory.
    pub(crate) fn forget_memory(&mut self) {
        let words = self.pool.stats().total_bytes / 8;
        self.devices.write(&(0..words).map(|word| (word, CLEARED)).collect::<Vec<_>>());
    }
}
