//! A small inference engine: mapped weights, an arena for prompts, an execution plan for single tokens, a KV
//! cache in pages within a budget, preemption, and a recording.
//!
//! ```text
//! cargo run --release -p orlop --example engine
//! ```
//!
//! The page `docs/engine.md` goes through this program part by part. The decoder itself, which has random
//! weights, is in `engine/decoder.rs`.

#[path = "engine/decoder.rs"]
mod decoder;

use self::decoder::Model;
use orlop::exec::{BufferId, BufferSpec, Execution, PlanBuilder};
use orlop::memory::backing::System;
use orlop::memory::engine::Arena;
use orlop::memory::{Budget, Pressure, Tag};
use orlop::prelude::*;
use orlop::tensor;
use orlop::trace::recorder::Recorder;
use orlop::types::ByteSize;
use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard};

const VOCABULARY: usize = 64;
const WIDTH: usize = 64;
const LAYERS: usize = 2;
/// Tokens in a page of the KV cache.
const PAGE_TOKENS: usize = 8;
/// Keys and values of all layers.
const PAGE_BYTES: usize = LAYERS * 2 * PAGE_TOKENS * WIDTH * size_of::<f32>();
/// Tokens that are generated for each prompt.
const NEW_TOKENS: usize = 24;
/// Tokens of one sequence that are generated before the next one's turn.
const TURN: usize = 4;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A text that is being generated. Its pages can be dropped at any time between turns: the next turn computes
/// them again.
struct Sequence {
    number: usize,
    tokens: Vec<usize>,
    /// The length of the text when it is complete.
    end: usize,
    pages: Vec<Tensor>,
    /// Tokens whose keys and values are in the pages.
    cached: usize,
}

/// The sequences that wait for their next turn.
#[derive(Default)]
struct Queue {
    sequences: VecDeque<Sequence>,
    preempted: usize,
}

impl Queue {
    fn lock(queue: &Mutex<Self>) -> MutexGuard<'_, Self> {
        queue.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Drops the pages of the sequences with the last turns, up to `bytes`. Returns the bytes.
    fn preempt(&mut self, bytes: u64) -> u64 {
        let mut freed = 0;
        let victims = self.sequences.iter_mut().rev().filter(|sequence| !sequence.pages.is_empty());
        for victim in victims {
            if freed >= bytes {
                break;
            }
            freed += (victim.pages.len() * PAGE_BYTES) as u64;
            victim.pages.clear();
            victim.cached = 0;
            self.preempted += 1;
        }
        freed
    }
}

/// The buffers of the plan for one token.
struct Buffers {
    hidden: BufferId,
    /// By layer: queries, keys and values; what attention returns; the hidden layer of the network.
    layers: Vec<[BufferId; 3]>,
    scores: BufferId,
}

struct Engine<'a> {
    context: &'a Context,
    model: &'a Model,
    arena: AllocatorRef<Arena<System>>,
    execution: Execution,
    buffers: Buffers,
}

impl<'a> Engine<'a> {
    fn new(context: &'a Context, model: &'a Model) -> Result<Self> {
        let spec = |name: &str, width| BufferSpec::new(name, [1, width], DType::F32);
        let last = 1 + 2 * LAYERS as u64;
        let mut plan = PlanBuilder::new();
        let hidden = plan.buffer(spec("hidden", WIDTH)?, 0..=last)?;
        let mut layers = Vec::new();
        for step in (1..last).step_by(2) {
            let qkv = plan.buffer(spec("qkv", 3 * WIDTH)?, step..=step)?;
            let mixed = plan.buffer(spec("mixed", WIDTH)?, step..=step)?;
            let up = plan.buffer(spec("up", 4 * WIDTH)?, step + 1..=step + 1)?;
            layers.push([qkv, mixed, up]);
        }
        let scores = plan.buffer(spec("scores", VOCABULARY)?, last..=last)?;
        let plan = plan.finish()?;
        for arena in plan.arenas() {
            println!(
                "one token: {} in one arena, {}",
                ByteSize(arena.bytes() as u64),
                arena.plan().verdict()
            );
        }
        let (execution, buffers) = (plan.prepare(context)?, Buffers { hidden, layers, scores });
        Ok(Self { context, model, arena: Arena::new(System::new(), 64 << 10).into_ref(), execution, buffers })
    }

    /// Computes the tokens that are not in the cache, and appends the next one.
    fn advance(&mut self, sequence: &mut Sequence) -> Result<()> {
        let options = TensorOptions::new().context(self.context).kind(MemoryKind::KvCache);
        while sequence.pages.len() * PAGE_TOKENS < sequence.tokens.len() {
            // If the budget is reached, the callback of `serve` preempts other sequences.
            sequence.pages.push(Tensor::empty([LAYERS, 2, PAGE_TOKENS, WIDTH], options)?);
        }
        let next = match &sequence.tokens[sequence.cached..] {
            &[token] => self.decode(token, &sequence.pages, sequence.cached)?,
            tokens => {
                let next = self.prefill(tokens, &sequence.pages, sequence.cached)?;
                self.arena.reset()?;
                next
            }
        };
        sequence.cached = sequence.tokens.len();
        sequence.tokens.push(next);
        Ok(())
    }

    /// Any number of tokens: the tensors are in an arena, as large as they have to be.
    fn prefill(&self, tokens: &[usize], pages: &[Tensor], first: usize) -> tensor::Result<usize> {
        let (rows, arena) = (tokens.len(), self.arena.clone().erase());
        let options = TensorOptions::new().context(self.context).allocator(&arena);
        let options = options.kind(MemoryKind::Workspace).tag(Tag::new("prompt"));
        let hidden = Tensor::empty([rows, WIDTH], options)?;
        self.model.embed(tokens, &hidden)?;
        for layer in &self.model.layers {
            let qkv = Tensor::empty([rows, 3 * WIDTH], options)?;
            layer.attend([&hidden, &qkv, &Tensor::empty([rows, WIDTH], options)?], pages, first)?;
            layer.feed_forward(&hidden, &Tensor::empty([rows, 4 * WIDTH], options)?)?;
        }
        self.model.next_token(&hidden, &Tensor::empty([1, VOCABULARY], options)?)
    }

    /// One token: the tensors are at their planned places, and each step lends those that are live in it.
    fn decode(&mut self, token: usize, pages: &[Tensor], position: usize) -> Result<usize> {
        let Buffers { hidden, layers, scores } = &self.buffers;
        self.execution.begin()?;
        self.model.embed(&[token], self.execution.step(0)?.tensor(*hidden)?)?;
        let mut step = 1;
        for (layer, [qkv, mixed, up]) in self.model.layers.iter().zip(layers) {
            let lent = self.execution.step(step)?;
            layer.attend(
                [lent.tensor(*hidden)?, lent.tensor(*qkv)?, lent.tensor(*mixed)?],
                pages,
                position,
            )?;
            let lent = self.execution.step(step + 1)?;
            layer.feed_forward(lent.tensor(*hidden)?, lent.tensor(*up)?)?;
            step += 2;
        }
        let lent = self.execution.step(step)?;
        Ok(self.model.next_token(lent.tensor(*hidden)?, lent.tensor(*scores)?)?)
    }
}

/// Generates a text for each prompt, in turns. `after_turn` gets the number of the sequence.
fn serve(
    context: &Context,
    model: &Model,
    prompts: &[Vec<usize>],
    mut after_turn: impl FnMut(usize) -> Result<()>,
) -> Result<Vec<Vec<usize>>> {
    let mut engine = Engine::new(context, model)?;
    let mut queue = Queue::default();
    for (number, prompt) in prompts.iter().enumerate() {
        let (tokens, end) = (prompt.clone(), prompt.len() + NEW_TOKENS);
        queue.sequences.push_back(Sequence { number, tokens, end, pages: Vec::new(), cached: 0 });
    }
    let queue = Arc::new(Mutex::new(queue));
    let waiting = Arc::clone(&queue);
    let preempt = move |pressure: &Pressure| Queue::lock(&waiting).preempt(pressure.bytes);
    let callback = context.on_pressure(MemoryKind::KvCache, Arc::new(preempt));

    let mut texts = vec![Vec::new(); prompts.len()];
    loop {
        // A sequence is not in the queue during its turn, so it is never preempted then.
        let Some(mut sequence) = Queue::lock(&queue).sequences.pop_front() else { break };
        let end = sequence.end.min(sequence.tokens.len() + TURN);
        while sequence.tokens.len() < end {
            engine.advance(&mut sequence)?;
        }
        let number = sequence.number;
        if sequence.tokens.len() < sequence.end {
            Queue::lock(&queue).sequences.push_back(sequence);
        } else {
            texts[number] = sequence.tokens;
        }
        after_turn(number)?;
    }
    context.remove_on_pressure(callback);
    let peak = context.stats(Device::CPU).kind(MemoryKind::KvCache).peak_bytes;
    println!("KV cache: at most {}, {} preemptions\n", ByteSize(peak), Queue::lock(&queue).preempted);
    Ok(texts)
}

pub(crate) fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let weights = folder.path().join("model.safetensors");
    Model::write(&weights)?;
    let prompts: Vec<Vec<usize>> = (0..4).map(|prompt| (prompt..12 + 5 * prompt).collect()).collect();

    let context = Context::new();
    let model = Model::map(&context, &weights)?;
    let expected = serve(&context, &model, &prompts, |_| Ok(()))?;

    // The same with memory for ten pages, recorded. Budgets and observers come before the first allocation.
    let context = Context::new();
    let budget = Budget::hard(10 * PAGE_BYTES as u64).strict();
    context.set_budget(Device::CPU, MemoryKind::KvCache, budget)?;
    let path = std::env::temp_dir().join("orlop-engine.orlop");
    let recording = Recorder::to_file(&path)?;
    context.add_observer(recording.observer());
    let model = Model::map(&context, &weights)?;
    let mut map = None;
    let texts = serve(&context, &model, &prompts, |number| {
        map.get_or_insert_with(|| context.memory_map());
        recording.annotate(&format!("end of a turn of sequence {number}"));
        Ok(())
    })?;
    context.remove_observer(&recording.observer());
    let written = recording.finish()?;

    println!("the texts are identical: {}", texts == expected);
    if let Some(map) = map {
        println!("\nafter the first turn:\n{map}");
    }
    println!("\n{} events, {} lost: orlop report {}", written.events, written.lost, path.display());
    Ok(())
}
