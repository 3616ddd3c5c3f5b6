//! Replays a request trace against a pool without memory.
//!
//! ```text
//! cargo run --release -p orlop-kv --example replay -- bytes TRACE [MODEL]
//! cargo run --release -p orlop-kv --example replay -- reuse TRACE MODEL POOL_GIB CHECKPOINT_TOKENS
//! ```
//!
//! `bytes` prints the peak of the bytes held over the peak of the bytes needed, without reuse, in 40 GiB: a
//! request starts on arrival or when it fits, computes 20,000 prompt tokens per second, and then 25 tokens
//! per second. `reuse` serves one request at a time and prints the share of prompt tokens that were reused; 0
//! for `CHECKPOINT_TOKENS` keeps checkpoints at ends of prompts and junctions only.
//!
//! Traces are gzipped: JSON lines with `timestamp`, `input_length`, `output_length` and `hash_ids`, or CSV
//! with `arrival_ms`, `input_tokens`, `output_tokens`.

use flate2::read::GzDecoder;
use orlop_kv::{
    AdmissionRequest, ChainFields, CheckpointPolicy, KvGeometry, KvPool, MODELS, Sequence, Tenant,
    model_groups,
};
use std::error::Error;
use std::fs::File;
use std::io::Read;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Milliseconds of a step: one decoded token.
const STEP_MS: u64 = 40;
/// Prompt tokens of a step.
const CHUNK: u32 = 800;

struct TraceRequest {
    arrival_ms: u64,
    input: u32,
    output: u32,
    hash_ids: Vec<u32>,
}

fn read(path: &str) -> Result<Vec<TraceRequest>> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    if path.contains(".jsonl") {
        return text.lines().map(|line| json_request(line).ok_or_else(|| line.to_owned().into())).collect();
    }
    let rows = text.lines().skip(1).enumerate();
    rows.map(|(row, line)| csv_request(row as u64, line).ok_or_else(|| line.to_owned().into())).collect()
}

fn json_request(line: &str) -> Option<TraceRequest> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let number = |name: &str| u32::try_from(value.get(name)?.as_u64()?).ok();
    let ids = value.get("hash_ids")?.as_array()?;
    let ids = ids.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect::<Option<_>>()?;
    Some(TraceRequest {
        arrival_ms: value.get("timestamp")?.as_u64()?,
        input: number("input_length")?,
        output: number("output_length")?,
        hash_ids: ids,
    })
}

fn csv_request(row: u64, line: &str) -> Option<TraceRequest> {
    let mut fields = line.split(',').map(str::trim);
    // Without arrivals, four requests a second.
    let arrival_ms = match fields.next()? {
        "" => row * 250,
        field => field.parse::<f64>().ok()?.max(0.0).round().to_string().parse().ok()?,
    };
    let (input, output) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(TraceRequest { arrival_ms, input, output, hash_ids: Vec::new() })
}

struct Running {
    sequence: Sequence,
    len: u32,
    input: u32,
    end: u32,
}

/// Returns the peaks of the bytes held and needed, and the number of refused requests.
fn bytes(requests: &[TraceRequest], model: &str) -> Result<(u64, u64, usize)> {
    let geometry = KvGeometry::new(model_groups(model).ok_or("an unknown model")?)?;
    let builder = KvPool::builder(geometry.clone()).bytes(40 << 30).prefix_cache(false).steps_in_flight(0);
    let mut pool = builder.build_detached()?;
    let fields = ChainFields::new(Tenant::Shared, model, "");
    let (mut running, mut waiting, mut now): (Vec<Running>, _, u64) =
        (Vec::new(), requests.iter().peekable(), 0);
    let (mut held, mut needed, mut refused) = (0, 0, 0);
    let prompt = vec![0; requests.iter().map(|request| request.input).max().unwrap_or(0) as usize];
    while waiting.peek().is_some() || !running.is_empty() {
        while let Some(request) = waiting.peek().filter(|request| request.arrival_ms <= now) {
            let mut asked = AdmissionRequest::new(fields, &prompt[..request.input as usize], request.output);
            asked.chunk = Some(CHUNK);
            match pool.admit(&asked) {
                Ok(admission) => running.push(Running {
                    sequence: admission.sequence,
                    len: 0,
                    input: request.input,
                    end: request.input + request.output.max(1) - 1,
                }),
                Err(orlop_kv::KvError::OutOfPages { .. }) => break,
                Err(_) => refused += 1,
            }
            waiting.next();
        }
        let mut need = 0;
        for sequence in &mut running {
            let left = sequence.input.saturating_sub(sequence.len);
            let tokens = if left > 0 { left.min(CHUNK) } else { 1 };
            pool.append(&sequence.sequence, tokens)?;
            need += geometry.needed_bytes(sequence.len, tokens);
            sequence.len += tokens;
        }
        let stats = pool.stats();
        (held, needed) = (held.max(stats.held_bytes), needed.max(need));
        let step = pool.close_step();
        running.retain(|sequence| sequence.len < sequence.end);
        pool.settle(step)?;
        now += STEP_MS;
    }
    Ok((held, needed, refused))
}

/// Returns the share of prompt tokens that were reused.
fn reuse(requests: &[TraceRequest], model: &str, gib: u64, every: u32) -> Result<f64> {
    let geometry = KvGeometry::new(model_groups(model).ok_or("an unknown model")?)?;
    let policy = CheckpointPolicy { every: (every > 0).then_some(every), ..CheckpointPolicy::default() };
    // The trace says nothing about units below 512 tokens.
    let builder = KvPool::builder(geometry).bytes(gib << 30).match_unit(512);
    let mut pool = builder.checkpoints(policy).build_detached()?;
    let fields = ChainFields::new(Tenant::Shared, model, "");
    let (mut prompt, mut refused, mut queries) = (Vec::new(), 0, 0);
    for request in requests {
        prompt.clear();
        prompt.extend(request.hash_ids.iter().flat_map(|&id| [id; 512]).take(request.input as usize));
        queries += u64::from(request.input);
        let mut asked = AdmissionRequest::new(fields, &prompt, 1);
        asked.chunk = Some(8192);
        let Ok(admission) = pool.admit(&asked) else {
            refused += 1;
            continue;
        };
        let mut len = admission.hit;
        while len < request.input {
            let checkpoint = pool.tokens_to_checkpoint(&admission.sequence)?.unwrap_or(8192);
            let tokens = checkpoint.min(request.input - len).min(8192);
            pool.append(&admission.sequence, tokens)?;
            let step = pool.close_step();
            pool.settle(step)?;
            len += tokens;
        }
        pool.finish(admission.sequence)?;
    }
    let stats = pool.stats();
    if refused > 0 {
        println!("{refused} requests did not fit");
    }
    println!("{stats:?}");
    println!("{} B of metadata", pool.metadata_bytes());
    Ok(stats.hit_tokens as f64 / queries as f64)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["bytes", trace, ref models @ ..] => {
            let requests = read(trace)?;
            for model in if models.is_empty() { &MODELS[..] } else { models } {
                let (held, needed, refused) = bytes(&requests, model)?;
                let ratio = held as f64 / needed as f64;
                println!("{model:20} {ratio:.3}  held {held} B, needed {needed} B, {refused} refused");
            }
        }
        ["reuse", trace, model, gib, every] => {
            let share = reuse(&read(trace)?, model, gib.parse()?, every.parse()?)?;
            println!("{model}, {gib} GiB, every {every}: {:.1} % of the prompt tokens reused", 100.0 * share);
        }
        _ => return Err("bytes TRACE [MODEL]... | reuse TRACE MODEL POOL_GIB CHECKPOINT_TOKENS".into()),
    }
    Ok(())
}
