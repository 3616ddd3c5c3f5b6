//! Copies between the oracle's memory and a tier, and stores that fail.

use super::Oracle;
use super::devices::Devices;
use orlop_alloc::{Block, Error};
use orlop_kv::{BlockKey, BlockStore, PageTransfer, PoolMemory, PoolMemoryMut};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Fails one call in `one_in`; 0 for none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    pub(crate) one_in: Arc<AtomicU32>,
    /// Panics, if it is not 0.
    pub(crate) panics: Arc<AtomicU32>,
    calls: Arc<AtomicU32>,
}

impl Faults {
    fn check(&self) -> io::Result<()> {
        assert_eq!(self.panics.load(Relaxed), 0, "an injected panic");
        let (one_in, call) = (self.one_in.load(Relaxed), self.calls.fetch_add(1, Relaxed));
        let fails = one_in > 0 && (call.wrapping_mul(2_654_435_761) >> 16).is_multiple_of(one_in);
        if fails { Err(io::Error::other("an injected fault")) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct OracleTransfer {
    devices: Devices,
    faults: Faults,
}

impl OracleTransfer {
    fn words(ranges: &[Range<u64>]) -> Vec<u64> {
        let words = ranges.iter().flat_map(|range| {
            assert!(range.start.is_multiple_of(8) && range.end.is_multiple_of(8));
            range.start / 8..range.end / 8
        });
        words.collect()
    }
}

impl PageTransfer for OracleTransfer {
    fn read(&mut self, _: &PoolMemory, ranges: &[Range<u64>], host: &mut Block) -> Result<(), Error> {
        let (words, _) = host.bytes_mut()?.as_chunks_mut::<8>();
        let stamps = self.devices.read(&Self::words(ranges));
        assert_eq!(words.len(), stamps.len());
        for (to, stamp) in words.iter_mut().zip(stamps) {
            *to = stamp.to_le_bytes();
        }
        self.faults.check().map_err(|error| Error::Backend(Box::new(error)))
    }

    fn write(&mut self, _: PoolMemoryMut<'_>, ranges: &[Range<u64>], host: &Block) -> Result<(), Error> {
        let (words, _) = host.bytes()?.as_chunks::<8>();
        let slots = Self::words(ranges);
        assert_eq!(words.len(), slots.len());
        let stamps = slots.into_iter().zip(words.iter().map(|word| u64::from_le_bytes(*word)));
        self.devices.write(&stamps.collect::<Vec<_>>());
        self.faults.check().map_err(|error| Error::Backend(Box::new(error)))
    }
}

/// A store in memory, which the test can reach into.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryStore {
    blocks: Arc<Mutex<HashMap<BlockKey, Vec<u8>>>>,
    pub(crate) faults: Faults,
    /// Fails every read.
    pub(crate) fails_reads: Arc<AtomicU32>,
    /// Fails every question whether a block is there.
    pub(crate) fails_lookups: Arc<AtomicU32>,
    /// The keys of these questions.
    lookups: Arc<Mutex<Vec<BlockKey>>>,
    /// Declares reads done before the bytes are there.
    pub(crate) is_early: Arc<AtomicU32>,
}

impl MemoryStore {
    pub(crate) fn failing(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    /// Takes the keys that were looked up, in order.
    pub(crate) fn take_lookups(&self) -> Vec<BlockKey> {
        std::mem::take(&mut self.lookups.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut HashMap<BlockKey, Vec<u8>>) -> R) -> R {
        run(&mut self.blocks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BlockStore for MemoryStore {
    fn put(&mut self, key: BlockKey, bytes: &[u8]) -> io::Result<()> {
        self.faults.check()?;
        self.with(|blocks| blocks.insert(key, bytes.to_vec()));
        Ok(())
    }

    fn get(&mut self, key: BlockKey, limit: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
        self.faults.check()?;
        if self.fails_reads.load(Relaxed) > 0 {
            return Err(io::Error::other("an injected fault"));
        }
        let Some(found) = self.with(|blocks| blocks.get(&key).cloned()) else { return Ok(false) };
        bytes.extend_from_slice(&found[..found.len().min(limit)]);
        if self.is_early.load(Relaxed) > 0 {
            let half = bytes.len() / 2;
            bytes[half..].fill(0);
        }
        Ok(true)
    }

    fn contains(&mut self, key: BlockKey) -> io::Result<bool> {
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        if self.fails_lookups.load(Relaxed) > 0 {
            return Err(io::Error::other("an injected fault"));
        }
        Ok(self.with(|blocks| blocks.contains_key(&key)))
    }

    fn remove(&mut self, key: BlockKey) -> io::Result<()> {
        self.faults.check()?;
        self.with(|blocks| blocks.remove(&key));
        Ok(())
    }
}

impl Oracle {
    /// Returns copies between this oracle's memory and a tier. They must not outlive the oracle.
    pub(crate) fn transfer(&self, faults: Faults) -> Box<dyn PageTransfer> {
        Box::new(OracleTransfer { devices: self.devices.clone(), faults })
    }
}
