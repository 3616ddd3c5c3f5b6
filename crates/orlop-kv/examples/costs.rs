//! Measures what the pool's operations cost.
//!
//! ```text
//! cargo run --release -p orlop-kv --example costs [hash] [step] [fork] [evict] [threads] [lookup]
//! ```

use orlop_kv::{AdmissionRequest, ChainFields, KvGeometry, KvPool, LayerGroup, Sequence, Tenant};
use std::error::Error;
use std::hint::black_box;
use std::sync::Mutex;
use std::thread;
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

/// Steps of 256 sequences that decode a token each, in a pool whose blocks have been used before.
fn step() -> Result<()> {
    let mut pool = KvPool::builder(hybrid()?).bytes(80 << 30).build_detached()?;
    decode(&mut pool)?;
    pool.discard_cache();
    let (inside, first, whole) = decode(&mut pool)?;
    let mean = (15.0 * inside + first) / 16.0;
    println!("append: {inside:.2} ns per token and group inside a block");
    println!("append: {first:.1} ns with a new block, {mean:.2} ns in the mean");
    println!("a step of 256 sequences: {whole:.1} us");
    Ok(())
}

/// Returns the medians of an append inside a block, and with a new one, in ns for a group, and of a step in
/// us.
fn decode(pool: &mut KvPool) -> Result<(f64, f64, f64)> {
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
    Ok((inside, first, ns(whole, 1000.0)))
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

/// Admissions of prompts with 1,000 blocks in use, on one thread and on two that share the pool: keys are
/// computed outside of the lock.
fn threads() -> Result<()> {
    let mut pool = KvPool::builder(full()?).large_pages(80_000).build_detached()?;
    for family in 0..64 {
        let admission = pool.admit(&AdmissionRequest::new(fields(), &tokens(family, 16_000), 1))?;
        pool.append(&admission.sequence, 16_000)?;
        let step = pool.close_step();
        pool.settle(step)?;
        pool.finish(admission.sequence)?;
    }
    let (hasher, pool) = (pool.hasher(), Mutex::new(pool));
    let serve = &|thread: u32, rounds: u32| {
        for round in 0..rounds {
            let prompt = tokens((thread * 31 + round * 7) % 64, 16_001);
            let hashed = hasher.hash(AdmissionRequest::new(fields(), &prompt, 1));
            let admitted =
                pool.lock().map_err(|_| "poisoned")?.admit_hashed(hashed).map_err(|_| "refused")?;
            black_box(admitted.hit);
        }
        Ok::<(), &str>(())
    };
    let per_second = |threads: u32| {
        let start = Instant::now();
        thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|at| scope.spawn(move || serve(at, 300))).collect();
            running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a panic")?)
        })?;
        Ok::<f64, Box<dyn Error>>(f64::from(threads * 300) / start.elapsed().as_secs_f64())
    };
    // One after the other, so that what else the machine does concerns both.
    let rounds = (0..11).map(|_| {
        let one = per_second(1)?;
        Ok((one, per_second(2)? / one))
    });
    let (mut one, mut ratio): (Vec<f64>, Vec<f64>) = rounds.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    one.sort_unstable_by(f64::total_cmp);
    ratio.sort_unstable_by(f64::total_cmp);
    let (one, ratio) = (one[5], ratio[5]);
    println!("threads: {one:.0} admissions of 1,000 blocks a second on one, {ratio:.2} x on two");
    Ok(())
}

fn main() -> Result<()> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    if is_chosen("hash") {
        hash()?;
    }
    if is_chosen("step") {
        step()?;
    }
    if is_chosen("fork") {
        fork()?;
    }
    if is_chosen("evict") {
        eviction(10_000)?;
        eviction(1_000_000)?;
    }
    if is_chosen("threads") {
        threads()?;
    }
    if is_chosen("lookup") {
        lookup(60)?;
        lookup(1000)?;
    }
    Ok(())
}
