//! [`Occupancy`]: the requests of a trace at their times, in a pool that shares nothing between them.

use super::page_scheme::{PageScheme, SchemePages};
use super::{KvModel, RequestTrace, TraceRequest};
use crate::Result;
use orlop_kv::{AdmissionRequest, ChainFields, KvError, KvGeometry, KvPool, Sequence, Tenant};
use serde::Serialize;
use std::collections::VecDeque;

/// Milliseconds of a step: one token of each sequence.
const STEP_MS: u64 = 40;
/// Prompt tokens of a step.
const CHUNK: u32 = 800;

/// The peak of what a scheme would have held for the same sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SchemePeak {
    /// The scheme's name.
    pub scheme: &'static str,
    /// The peak in bytes.
    pub bytes: u64,
}

/// What a pool held for the requests of a trace, without reuse.
///
/// A request starts when it has arrived and fits, and those before it have started. It computes 20,000 prompt
/// tokens a second, then 25 tokens a second.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Occupancy {
    /// The peak of the bytes held: large pages that are not empty.
    pub peak_held: u64,
    /// The peak of the bytes needed: those of the tokens that layers still attend to, without rounding.
    pub peak_needed: u64,
    /// The peak of the tokens of running sequences.
    pub peak_tokens: u64,
    /// The maximum number of requests that ran at once.
    pub peak_running: u64,
    /// Requests that waited for memory, and the longest time that one did.
    pub delayed: u64,
    /// The longest wait for memory, in milliseconds.
    pub max_delay_ms: u64,
    /// Requests that can never fit.
    pub refused: u64,
    /// Other schemes with the same sequences; those that do not serve the model are left out.
    pub schemes: Vec<SchemePeak>,
}

struct Running {
    sequence: Sequence,
    /// Tokens computed, and those before the last step.
    len: u32,
    before: u32,
    input: u32,
    end: u32,
}

struct Replay<'a> {
    pool: KvPool,
    geometry: KvGeometry,
    schemes: Vec<SchemePages>,
    prompt: &'a [u32],
    running: Vec<Running>,
    /// Whether the first waiting request does not fit beside the running ones.
    is_full: bool,
    now: u64,
    occupancy: Occupancy,
}

impl Occupancy {
    /// Replays a trace in a pool of `bytes` bytes.
    ///
    /// # Errors
    /// If the model's groups do not fit together, or the pool is smaller than a large page.
    pub fn of(trace: &RequestTrace, model: &KvModel, bytes: u64) -> Result<Self> {
        let geometry = KvGeometry::new(model.groups.clone())?;
        let builder = KvPool::builder(geometry.clone()).bytes(bytes).prefix_cache(false).steps_in_flight(0);
        let longest = trace.requests.iter().map(|request| request.input).max().unwrap_or(0);
        let prompt = vec![0; longest as usize];
        let schemes =
            PageScheme::ALL.iter().filter_map(|&scheme| Some((scheme, scheme.pages(&model.groups)?)));
        let (names, schemes): (Vec<_>, Vec<_>) = schemes.unzip();
        let peaks = names.iter().map(|scheme| SchemePeak { scheme: scheme.name(), bytes: 0 }).collect();
        let mut replay = Replay {
            pool: builder.build_detached()?,
            geometry,
            schemes,
            prompt: &prompt,
            running: Vec::new(),
            is_full: false,
            now: 0,
            occupancy: Self { schemes: peaks, ..Self::default() },
        };
        let mut waiting: VecDeque<&TraceRequest> = trace.requests.iter().collect();
        while !waiting.is_empty() || !replay.running.is_empty() {
            replay.start(&mut waiting)?;
            replay.step()?;
            if let Some(next) = waiting.front().filter(|_| replay.running.is_empty()) {
                // Nothing happens until then.
                replay.now = replay.now.max(next.arrival_ms);
            }
        }
        Ok(replay.occupancy)
    }
}

impl Replay<'_> {
    /// Starts requests in their order, as long as they fit. One that does not fit is tried again when a
    /// sequence has ended.
    fn start(&mut self, waiting: &mut VecDeque<&TraceRequest>) -> Result<()> {
        while let Some(request) = waiting.front().filter(|request| request.arrival_ms <= self.now) {
            if self.is_full {
                break;
            }
            let prompt = &self.prompt[..request.input as usize];
            let fields = ChainFields::new(Tenant::Shared, "", "");
            let mut admission = AdmissionRequest::new(fields, prompt, request.output);
            admission.chunk = Some(CHUNK);
            match self.pool.admit(&admission) {
                Ok(admission) => {
                    let delay = self.now - request.arrival_ms;
                    // A request that arrives within a step waits for the next one in any case.
                    if delay >= STEP_MS {
                        self.occupancy.delayed += 1;
                        self.occupancy.max_delay_ms = self.occupancy.max_delay_ms.max(delay);
                    }
                    let (sequence, input) = (admission.sequence, request.input);
                    let end = input + request.output.max(1) - 1;
                    // Without a token to compute, it has ended.
                    if end > 0 {
                        self.running.push(Running { sequence, len: 0, before: 0, input, end });
                    }
                }
                Err(KvError::OutOfPages { .. }) => {
                    self.is_full = !self.running.is_empty();
                    break;
                }
                Err(KvError::NeverFits { .. }) => self.occupancy.refused += 1,
                Err(error) => return Err(error.into()),
            }
            waiting.pop_front();
        }
        Ok(())
    }

    /// Advances every sequence, and ends those that are complete.
    fn step(&mut self) -> Result<()> {
        let Self { pool, geometry, schemes, running, is_full, occupancy, .. } = self;
        let (mut needed, mut tokens) = (0, 0);
        let mut held = vec![0; schemes.len()];
        for sequence in &mut *running {
            let left = sequence.input.saturating_sub(sequence.len);
            let scheduled = if left > 0 { left.min(CHUNK) } else { 1 };
            pool.append(&sequence.sequence, scheduled)?;
            needed += geometry.needed_bytes(sequence.len, scheduled);
            for (held, scheme) in held.iter_mut().zip(schemes.iter()) {
                *held += scheme.bytes(sequence.before, sequence.len, scheduled);
            }
            sequence.before = sequence.len;
            sequence.len += scheduled;
            tokens += u64::from(sequence.len);
        }
        let stats = pool.stats();
        occupancy.peak_held = occupancy.peak_held.max(stats.held_bytes);
        occupancy.peak_needed = occupancy.peak_needed.max(needed);
        occupancy.peak_tokens = occupancy.peak_tokens.max(tokens);
        occupancy.peak_running = occupancy.peak_running.max(running.len() as u64);
        for (peak, held) in occupancy.schemes.iter_mut().zip(held) {
            peak.bytes = peak.bytes.max(held);
        }
        let step = pool.close_step();
        let before = running.len();
        running.retain(|sequence| sequence.len < sequence.end);
        *is_full &= running.len() == before;
        pool.settle(step)?;
        self.now += STEP_MS;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupancy(text: &str, bytes: u64) -> Occupancy {
        let trace = RequestTrace::parse(text).unwrap();
        Occupancy::of(&trace, &KvModel::find("llama-3-8b").unwrap(), bytes).unwrap()
    }

    #[test]
    fn a_request_without_tokens_ends_at_once() {
        let text = "arrival_ms,input_tokens,output_tokens\n0,0,0\n0,0,1\n5,16,2\n";
        let occupancy = occupancy(text, 4000 * 32 * 4096);
        assert_eq!((occupancy.peak_running, occupancy.refused), (1, 0));
    }

    #[test]
    fn requests_wait_for_memory_and_those_that_never_fit_are_refused() {
        let text = "arrival_ms,input_tokens,output_tokens\n0,1600,10\n0,1600,10\n90,99999,1\n";
        let token = 32 * 4096;
        let both = occupancy(text, 4000 * token);
        assert_eq!((both.peak_running, both.delayed, both.refused), (2, 0, 1));
        let one = occupancy(text, 2000 * token);
        // The first one computes its prompt in two steps, and its other tokens in nine.
        assert_eq!((one.peak_running, one.delayed, one.max_delay_ms, one.refused), (1, 1, 11 * STEP_MS, 1));
        assert_eq!(one.peak_needed, (1600 + 9) * token);
        assert!(one.peak_held >= one.peak_needed);
    }
}
