//! Measures what the pool's operations cost.
//!
//! ```text
//! cargo run --release -p orlop-kv --example costs
//! ```

use orlop_kv::{AdmissionRequest, ChainFields, KvGeometry, KvPool, LayerGroup, Sequence, Tenant};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn fields() -> ChainFields<'static> {
    ChainFields::new(Tenant::Shared, "weights", "bf16")
}

fn tokens(family: u32, count: u32) -> Vec<u32> {
    (0..count).map(|at| family.wrapping_mul(2_654_435_761).wrapping_add(at)).collect()
}

/// Runs a closure `rounds` times, and returns the median of its times.
fn median(rounds: usize, mut run: impl FnMut(usize) -> Result<Duration>) -> Result<Duration> {
    let mut times = (0..rounds).map(&mut run).collect::<Result<Vec<Duration>>>()?;
    times.sort_unstable();
    Ok(times[rounds / 2])
}

fn ns(time: Duration, per: f64) -> f64 {
    time.as_secs_f64() * 1e9 / per
}

fn hybrid() -> Result<KvGeometry> {
    Ok(KvGeometry::new(vec![
        LayerGroup::full("full", 12, 2048),
        LayerGroup::window("window", 12, 2048, 128),
    ])?)
}

fn full() -> Result<KvGeometry> {
    Ok(KvGeometry::new(vec![LayerGroup::full("full", 32, 4096)])?)
}

/// A step of 256 sequences that decode a token each.
fn step() -> Result<()> {
    let mut pool = KvPool::builder(hybrid()?).bytes(80 << 30).build_detached()?;
    let mut sequences: Vec<Sequence> = Vec::new();
    for family in 0..256 {
        let admission = pool.admit(&AdmissionRequest::new(fields(), &tokens(family, 512), 4096))?;
        pool.append(&admission.sequence, 512)?;
        sequences.push(admission.sequence);
    }
    let step = pool.close_step();
    pool.settle(step)?;
    let mut append = [Vec::new(), Vec::new()];
    let whole = median(1001, |round| {
        let start = Instant::now();
        for sequence in &sequences {
            pool.append(sequence, 1)?;
        }
        append[usize::from(round % 16 == 0)].push(start.elapsed());
        let step = pool.close_step();
        pool.settle(step)?;
        let token = [u32::try_from(round)?];
        for sequence in &sequences {
            let (len, _) = pool.len(sequence)?;
            pool.push_tokens(sequence, len - 1, &token)?;
        }
        Ok(start.elapsed())
    })?;
    append.iter_mut().for_each(|times| times.sort_unstable());
    let [inside, first] = append.map(|times| ns(times[times.len() / 2], 512.0));
    let mean = (15.0 * inside + first) / 16.0;
    println!("append: {inside:.2} ns per token and group inside a block");
    println!("append: {first:.1} ns with a new block, {mean:.2} ns in the mean");
    println!("a step of 256 sequences: {:.1} us", ns(whole, 1000.0));
    Ok(())
}

fn hash() -> Result<()> {
    let pool = KvPool::builder(full()?).bytes(1 << 30).build_detached()?;
    let prompt = tokens(1, 100_000);
    let request = AdmissionRequest::new(fields(), &prompt, 1);
    let time = median(51, |_| {
        let start = Instant::now();
        black_box(pool.prefix_keys(black_box(&request)));
        Ok(start.elapsed())
    })?;
    println!("hash: {:.2} ns per token", ns(time, 100_000.0));
    Ok(())
}

/// Lookup of 1,000 blocks with pinning, in an index of `chains` times 1,000 blocks.
fn lookup(chains: u32) -> Result<()> {
    let mut pool = KvPool::builder(full()?).large_pages(chains * 1000 + 2000).build_detached()?;
    for family in 0..chains {
        let prompt = tokens(family, 16_000);
        let admission = pool.admit(&AdmissionRequest::new(fields(), &prompt, 1))?;
        pool.append(&admission.sequence, 16_000)?;
        let step = pool.close_step();
        pool.settle(step)?;
        pool.finish(admission.sequence)?;
    }
    let bytes = pool.metadata_bytes() as f64 / (f64::from(chains) * 1000.0);
    println!("{chains},000 cached blocks: {bytes:.1} B of metadata each");
    let mut admitted = |is_used: bool| {
        let mut held = Vec::new();
        let time = median(51, |round| {
            let family = u32::try_from(round)?.wrapping_mul(7919) % chains;
            let prompt = tokens(family, 16_001);
            let request = AdmissionRequest::new(fields(), &prompt, 1);
            if is_used {
                held.push(pool.admit(&request)?);
            }
            let start = Instant::now();
            black_box(pool.prefix_keys(&request));
            let hashing = start.elapsed();
            let start = Instant::now();
            let admission = pool.admit(&request)?;
            let time = start.elapsed().saturating_sub(hashing);
            assert_eq!(admission.hit, 16_000);
            drop(admission);
            pool.reclaimable_now();
            Ok(time)
        })?;
        println!(
            "  lookup of 1,000 blocks, {}: {:.1} us",
            if is_used { "in use" } else { "cached" },
            ns(time, 1000.0)
        );
        Ok::<(), Box<dyn Error>>(())
    };
    admitted(false)?;
    admitted(true)
}

fn fork() -> Result<()> {
    let mut pool = KvPool::builder(hybrid()?).bytes(80 << 30).build_detached()?;
    let admission = pool.admit(&AdmissionRequest::new(fields(), &tokens(1, 16_000), 1))?;
    pool.append(&admission.sequence, 16_000)?;
    let step = pool.close_step();
    pool.settle(step)?;
    let time = median(201, |_| {
        let start = Instant::now();
        let fork = pool.fork(&admission.sequence, 16_000)?;
        let time = start.elapsed();
        drop(fork);
        // The drop is collected here, not in the next round.
        pool.reclaimable_now();
        Ok(time)
    })?;
    println!("fork of 1,000 blocks: {:.2} us per group", ns(time, 2000.0));
    Ok(())
}

fn eviction(pages: u32) -> Result<()> {
    let mut pool = KvPool::builder(full()?).large_pages(pages).build_detached()?;
    for family in 0..pages / 100 {
        let prompt = tokens(family, 1600);
        let admission = pool.admit(&AdmissionRequest::new(fields(), &prompt, 1))?;
        pool.append(&admission.sequence, 1600)?;
        let step = pool.close_step();
        pool.settle(step)?;
        pool.finish(admission.sequence)?;
    }
    let mut times = Vec::new();
    for _ in 0..5000 {
        let start = Instant::now();
        pool.evict();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!(
        "eviction among {pages} pages: median {:.0} ns, p99 {:.0} ns",
        ns(times[2500], 1.0),
        ns(times[4950], 1.0)
    );
    Ok(())
}

fn main() -> Result<()> {
    hash()?;
    step()?;
    fork()?;
    eviction(10_000)?;
    eviction(1_000_000)?;
    lookup(60)?;
    lookup(1000)
}
