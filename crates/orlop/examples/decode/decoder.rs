//! The decoder: requests become sequences of the KV pool, and advance together, step by step.

use super::Result;
use super::activations::{Activations, ROWS, SAMPLES};
use super::math::ranked;
use super::model::{Model, QKV, VOCABULARY, WIDTH};
use super::pages::{BatchPart, Pages};
use super::requests::TextRequest;
use orlop::kv::{AdmissionRequest, ChainFields, KvError, KvPool, Sequence, Tenant};
use orlop::prelude::*;

/// A text that is generated, and the scores from which each of its new tokens was chosen.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) tokens: Vec<u32>,
    pub(crate) logits: Vec<f32>,
    pub(crate) prompt: usize,
    /// The rank of the first new token among all: 0 for the best.
    pub(crate) first_rank: usize,
    request: usize,
    was_preempted: bool,
}

/// A text whose sequence is in the pool.
struct Running {
    text: usize,
    sequence: Sequence,
    /// Tokens whose keys, values and states are in the pool.
    computed: usize,
    /// Tokens whose ids the pool knows.
    known: usize,
    drafts: Vec<u32>,
    /// The length at which the step ends with a checkpoint, which the tiers get.
    checkpoint: Option<usize>,
}

/// What a step did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct StepReport {
    pub(crate) sampled: usize,
    /// Whether the step only generated tokens: no text was admitted or refused or ended, and none
    /// computed its prompt.
    pub(crate) is_steady: bool,
}

pub(crate) struct Decoder<'a> {
    model: &'a Model,
    requests: &'a [TextRequest],
    pub(crate) pool: KvPool,
    pub(crate) pages: Pages,
    pub(crate) activations: Activations,
    pub(crate) texts: Vec<Text>,
    /// Texts that wait for memory.
    waiting: Vec<usize>,
    running: Vec<Running>,
    /// The requests of this round that have arrived, and the step in which the round began.
    arrived: usize,
    first_step: u64,
    pub(crate) steps: u64,
    pub(crate) preemptions: usize,
    /// Texts that arrived, started, ended, or did not fit.
    changes: usize,
    /// The changes until which no waiting text fits.
    refused_at: Option<usize>,
    // The rows of a step.
    tokens: Vec<u32>,
    parts: Vec<BatchPart>,
    samples: Vec<usize>,
    logits: Vec<f32>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(
        context: &Context,
        model: &'a Model,
        pool: KvPool,
        requests: &'a [TextRequest],
    ) -> Result<Self> {
        let device = pool.memory().ok_or("the pool has no memory")?.device();
        let longest = requests.iter().map(|request| request.prompt.len() + request.max_new + request.drafts);
        Ok(Self {
            model,
            requests,
            pages: Pages::new(context, device, longest.max().unwrap_or_default())?,
            activations: Activations::new(context)?,
            pool,
            texts: Vec::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            arrived: 0,
            first_step: 0,
            steps: 0,
            preemptions: 0,
            changes: 0,
            refused_at: None,
            tokens: Vec::with_capacity(ROWS),
            parts: Vec::with_capacity(SAMPLES),
            samples: Vec::with_capacity(SAMPLES),
            logits: Vec::with_capacity(SAMPLES * VOCABULARY),
        })
    }

    /// Lets all requests arrive once more.
    pub(crate) fn begin_round(&mut self) {
        (self.arrived, self.first_step) = (0, self.steps);
    }

    /// Returns `true` if texts are left to generate.
    pub(crate) fn is_busy(&self) -> bool {
        self.arrived < self.requests.len() || !self.waiting.is_empty() || !self.running.is_empty()
    }

    /// Advances every running text: by a part of its prompt, or by one or more tokens.
    pub(crate) fn step(&mut self) -> Result<StepReport> {
        let changes = self.changes;
        self.arrive();
        self.admit()?;
        self.schedule()?;
        let is_generating = self.tokens.len() == self.samples.len();
        self.pages.run_copies(&mut self.pool)?;
        self.forward()?;
        let step = self.pool.close_step();
        // Rejected drafts are taken back before the step settles: until then their states are kept.
        let sampled = self.sample()?;
        self.pool.settle(step)?;
        self.conclude()?;
        self.steps += 1;
        let is_steady = is_generating && changes == self.changes;
        Ok(StepReport { sampled, is_steady })
    }

    fn arrive(&mut self) {
        let step = self.steps - self.first_step;
        while let Some(request) = self.requests.get(self.arrived).filter(|next| next.arrives <= step) {
            self.waiting.push(self.texts.len());
            self.texts.push(Text::new(self.arrived, request, 0));
            self.arrived += 1;
            self.changes += 1;
        }
    }

    /// Starts the waiting texts, the most urgent first, as long as there is memory. One that did not fit is
    /// tried again when another has ended.
    fn admit(&mut self) -> Result<()> {
        while self.refused_at != Some(self.changes) {
            let by_priority = |&at: &usize| (self.priority(self.waiting[at]), std::cmp::Reverse(at));
            let Some(next) = (0..self.waiting.len()).max_by_key(by_priority) else { return Ok(()) };
            let text = &self.texts[self.waiting[next]];
            let request = &self.requests[text.request];
            let fields = ChainFields::new(Tenant::Shared, "random weights", "f32");
            let left = u32::try_from(text.prompt + request.max_new - text.tokens.len())?;
            let mut admission = AdmissionRequest::new(fields, &text.tokens, left);
            admission.drafts = u32::try_from(request.drafts)?;
            admission.chunk = Some(u32::try_from(ROWS)?);
            admission.resumed = text.was_preempted;
            match self.pool.admit(&admission) {
                Ok(admission) => {
                    let text = self.waiting.remove(next);
                    let (computed, known) = (admission.hit as usize, self.texts[text].tokens.len());
                    let sequence = admission.sequence;
                    self.running.push(Running::new(text, sequence, [computed, known], request.drafts));
                    self.changes += 1;
                }
                Err(KvError::OutOfPages { .. }) if self.preempt(self.waiting[next])? => {}
                Err(KvError::OutOfPages { .. }) if !self.running.is_empty() => {
                    self.changes += 1;
                    self.refused_at = Some(self.changes);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn priority(&self, text: usize) -> u8 {
        self.requests[self.texts[text].request].priority
    }

    /// Stops the text that was started last among those that are less urgent. Its sequence ends, and leaves
    /// its tokens in the cache: it waits, and goes on with what is still cached then.
    fn preempt(&mut self, urgent: usize) -> Result<bool> {
        let is_less_urgent = |running: &Running| self.priority(running.text) < self.priority(urgent);
        let Some(victim) = self.running.iter().rposition(is_less_urgent) else { return Ok(false) };
        let victim = self.running.remove(victim);
        self.pool.finish(victim.sequence)?;
        self.texts[victim.text].was_preempted = true;
        self.waiting.push(victim.text);
        self.preemptions += 1;
        Ok(true)
    }

    /// Fills the rows of the step. Texts that generate come first, so that prompts do not delay them.
    fn schedule(&mut self) -> Result<()> {
        self.tokens.clear();
        self.parts.clear();
        self.samples.clear();
        for is_prompt in [false, true] {
            for index in 0..self.running.len() {
                let running = &self.running[index];
                let missing = self.texts[running.text].tokens.len() - running.computed;
                if (missing > 1) == is_prompt && self.tokens.len() < ROWS && self.samples.len() < SAMPLES {
                    self.schedule_text(index, missing)?;
                }
            }
        }
        Ok(())
    }

    /// Schedules what a text is missing: up to the next checkpoint, or its last token with drafts of the next
    /// ones.
    fn schedule_text(&mut self, index: usize, missing: usize) -> Result<()> {
        let Self { running, texts, requests, tokens, samples, pool, .. } = self;
        let Running { text, sequence, computed, drafts, checkpoint: ended, .. } = &mut running[index];
        let text = &texts[*text];
        let request = &requests[text.request];
        let first_row = tokens.len();
        let room = ROWS - first_row;
        drafts.clear();
        let checkpoint = pool.tokens_to_checkpoint(sequence)?.map_or(usize::MAX, |tokens| tokens as usize);
        let count = missing.min(room).min(checkpoint);
        if missing == 1 && text.tokens.len() > text.prompt {
            let left = text.prompt + request.max_new - text.tokens.len() - 1;
            text.guess(request.drafts.min(left).min(room - 1).min(SAMPLES - samples.len() - 1), drafts);
        }
        if drafts.is_empty() {
            pool.append(sequence, u32::try_from(count)?)?;
        } else {
            pool.append_drafts(sequence, u32::try_from(drafts.len())?)?;
        }
        tokens.extend_from_slice(&text.tokens[*computed..*computed + count]);
        if count == missing {
            samples.extend(tokens.len() - 1..tokens.len() + drafts.len());
        }
        tokens.extend_from_slice(drafts);
        self.parts.push(BatchPart { index, first: *computed, rows: first_row..tokens.len() });
        *computed += count;
        *ended = (count == checkpoint).then_some(*computed);
        Ok(())
    }

    fn forward(&mut self) -> Result<()> {
        let Self { pool, pages, parts, running, .. } = self;
        let mix = |layer: &super::model::Layer, qkv: &[f32], mixed: &mut [f32]| {
            for BatchPart { index, first, rows } in &*parts {
                let qkv = &qkv[rows.start * QKV..rows.end * QKV];
                let mixed = &mut mixed[rows.start * WIDTH..rows.end * WIDTH];
                pages.mix(pool, &running[*index].sequence, layer, *first, qkv, mixed)?;
            }
            Ok(())
        };
        self.activations.forward(self.model, &self.tokens, &self.samples, &mut self.logits, mix)
    }

    /// Chooses the next tokens, and forks the texts of two samples. Returns the number of tokens.
    fn sample(&mut self) -> Result<usize> {
        let (mut row, mut sampled) = (0, 0);
        for at in 0..self.parts.len() {
            let index = self.parts[at].index;
            let Running { text, computed, .. } = self.running[index];
            if computed < self.texts[text].tokens.len() {
                continue;
            }
            let rows = 1 + self.running[index].drafts.len();
            sampled += self.accept(index, row)?;
            row += rows;
            if self.texts[text].tokens.len() == self.texts[text].prompt + 1 {
                self.fork(index, row - rows)?;
            }
        }
        Ok(sampled)
    }

    /// Gives the pool the sampled tokens and the tiers what a checkpoint ends, and ends the texts that are
    /// complete.
    fn conclude(&mut self) -> Result<()> {
        for running in &mut self.running {
            running.tell(&mut self.pool, &self.texts[running.text])?;
            if let Some(tokens) = running.checkpoint.take().filter(|_| self.pool.tier_stats().is_some()) {
                self.pool.store(&running.sequence, u32::try_from(tokens)?)?;
            }
        }
        while let Some(index) = self.running.iter().position(|running| self.is_complete(running.text)) {
            let ended = self.running.remove(index);
            self.pool.finish(ended.sequence)?;
            self.changes += 1;
        }
        Ok(())
    }

    fn is_complete(&self, text: usize) -> bool {
        let text = &self.texts[text];
        text.tokens.len() == text.prompt + self.requests[text.request].max_new
    }

    /// Appends the token after the last one, and as long as the drafts were right, those after them. Takes
    /// the others back. `row` is the first of the text's samples.
    fn accept(&mut self, index: usize, row: usize) -> Result<usize> {
        let running = &mut self.running[index];
        let text = &mut self.texts[running.text];
        let before = text.tokens.len();
        for (at, scores) in self.logits[row * VOCABULARY..].chunks(VOCABULARY).enumerate() {
            let token = text.choose(scores);
            text.tokens.push(token);
            text.logits.extend_from_slice(scores);
            if running.drafts.get(at) != Some(&token) {
                break;
            }
        }
        let accepted = text.tokens.len() - before - 1;
        if !running.drafts.is_empty() {
            let truncated = self.pool.truncate(&running.sequence, u32::try_from(before + accepted)?)?;
            running.computed = truncated.len as usize;
            running.known = truncated.known as usize;
        }
        Ok(accepted + 1)
    }

    /// Starts the second sample of a text whose first new token was just chosen. Without memory for a fork,
    /// it waits, and computes what is not cached then.
    fn fork(&mut self, index: usize, row: usize) -> Result<()> {
        let Running { text, ref sequence, computed, known, .. } = self.running[index];
        let (number, request) = (self.texts[text].request, &self.requests[self.texts[text].request]);
        if request.samples == 1 || self.texts[text].first_rank > 0 {
            return Ok(());
        }
        let mut sample = Text::new(number, request, 1);
        let scores = &self.logits[row * VOCABULARY..][..VOCABULARY];
        sample.tokens.push(sample.choose(scores));
        sample.logits.extend_from_slice(scores);
        self.texts.push(sample);
        self.changes += 1;
        let text = self.texts.len() - 1;
        match self.pool.fork(sequence, u32::try_from(request.prompt.len() + request.max_new)?) {
            Ok(sequence) => {
                self.running.push(Running::new(text, sequence, [computed, known], request.drafts));
            }
            Err(KvError::OutOfPages { .. }) => self.waiting.push(text),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl Running {
    fn new(text: usize, sequence: Sequence, [computed, known]: [usize; 2], drafts: usize) -> Self {
        Self { text, sequence, computed, known, drafts: Vec::with_capacity(drafts), checkpoint: None }
    }

    /// Gives the pool the ids of the tokens that it does not know: those that are computed, and the next.
    fn tell(&mut self, pool: &mut KvPool, text: &Text) -> Result<()> {
        let end = text.tokens.len().min(self.computed + 1);
        if end > self.known {
            let position = u32::try_from(self.known)?;
            pool.push_tokens(&self.sequence, position, &text.tokens[self.known..end])?;
            self.known = end;
        }
        Ok(())
    }
}

impl Text {
    fn new(number: usize, request: &TextRequest, first_rank: usize) -> Self {
        let mut tokens = Vec::with_capacity(request.prompt.len() + request.max_new);
        tokens.extend_from_slice(&request.prompt);
        let logits = Vec::with_capacity(request.max_new * VOCABULARY);
        Self {
            tokens,
            logits,
            prompt: request.prompt.len(),
            first_rank,
            request: number,
            was_preempted: false,
        }
    }

    /// Chooses the next token by its scores.
    pub(crate) fn choose(&self, scores: &[f32]) -> u32 {
        ranked(scores, if self.tokens.len() == self.prompt { self.first_rank } else { 0 })
    }

    /// Guesses up to `count` next tokens: those that followed the last two tokens before.
    fn guess(&self, count: usize, drafts: &mut Vec<u32>) {
        let Some((before, last)) = self.tokens.split_last_chunk::<2>() else { return };
        if let Some(seen) = before.windows(2).rposition(|pair| pair == last) {
            drafts.extend(self.tokens[seen + 2..].iter().take(count));
        }
    }
}
