//! Plays a period of allocations, now and then with a divergence, and checks every block.

use crate::backing::{HugePages, Mmap};
use crate::caching::Caching;
use crate::{Allocator as _, AllocatorRef, Block, Request};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

pub(super) fn allocator() -> AllocatorRef<Caching<Mmap>> {
    Caching::new(Mmap::new().huge_pages(HugePages::Never)).into_ref()
}

/// One allocation of a period: its bytes, and the number of further allocations before its free.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeriodStep {
    pub(super) bytes: usize,
    pub(super) duration: usize,
}

/// What happens instead of the period, now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Divergence {
    Nothing,
    LeavesOut,
    Adds,
    ReturnsLate,
    ReturnsElsewhere,
    ReturnsByAddress,
    AsksForZeros,
    Trims,
}

/// A block whose every page is marked as its own.
pub(super) struct Marked {
    /// `None` once given up.
    block: Option<Block>,
    mark: u8,
}

impl Marked {
    pub(super) fn new(allocator: &AllocatorRef<Caching<Mmap>>, bytes: usize, mark: u8, zeroed: bool) -> Self {
        let mut request = Request::new(bytes);
        request.zeroed = zeroed;
        let mut block = allocator.allocate(&request).expect("memory");
        let content = block.bytes_mut().expect("of the host");
        if zeroed {
            assert!(content.iter().step_by(64).all(|&byte| byte == 0));
        }
        content.iter_mut().step_by(512).for_each(|byte| *byte = mark);
        content[bytes - 1] = mark;
        Self { block: Some(block), mark }
    }

    fn into_block(mut self) -> Block {
        self.check();
        self.block.take().expect("not given up yet")
    }

    pub(super) fn check(&self) {
        let Some(block) = &self.block else { return };
        let content = block.bytes().expect("of the host");
        let same = |byte: &u8| *byte == self.mark;
        assert!(content.iter().step_by(512).all(same) && content.last().is_some_and(same));
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.check();
    }
}

/// Plays periods over an allocator, and returns some blocks late or on another thread.
pub(super) struct Player<'a> {
    pub(super) allocator: &'a AllocatorRef<Caching<Mmap>>,
    pub(super) elsewhere: mpsc::Sender<Marked>,
    late: VecDeque<Marked>,
    marks: u8,
}

impl<'a> Player<'a> {
    pub(super) fn new(allocator: &'a AllocatorRef<Caching<Mmap>>, elsewhere: mpsc::Sender<Marked>) -> Self {
        Self { allocator, elsewhere, late: VecDeque::new(), marks: 0 }
    }

    /// Plays a period, with a divergence at `at`.
    pub(super) fn play(&mut self, period: &[PeriodStep], divergence: Divergence, at: usize) {
        let mut live: Vec<Vec<Marked>> = period.iter().map(|_| Vec::new()).collect();
        for (index, step) in period.iter().enumerate() {
            let here = index == at % period.len();
            for block in std::mem::take(&mut live[index]) {
                match divergence {
                    Divergence::ReturnsLate if here => self.late.push_back(block),
                    Divergence::ReturnsElsewhere if index % 3 == at % 3 => {
                        self.elsewhere.send(block).expect("it listens");
                    }
                    Divergence::ReturnsByAddress if here => {
                        let ptr = block.into_block().into_raw_ptr().expect("of an allocator");
                        // SAFETY: given up just now.
                        unsafe { self.allocator.free(ptr, None) }.expect("live");
                        // SAFETY: refused, and only looked up.
                        assert!(unsafe { self.allocator.free(ptr, None) }.is_err());
                    }
                    _ => drop(block),
                }
            }
            match divergence {
                Divergence::LeavesOut if here => continue,
                Divergence::Adds if here => {
                    let added = self.block(3 * step.bytes / 2, false);
                    self.late.push_back(added);
                }
                Divergence::Trims if here => {
                    self.allocator.trim(0);
                }
                _ => {}
            }
            let block = self.block(step.bytes, divergence == Divergence::AsksForZeros);
            let until = index + 1 + step.duration;
            if let Some(ending) = live.get_mut(until) {
                ending.push(block);
            }
        }
        if divergence == Divergence::Nothing {
            self.late.pop_front();
        }
    }

    pub(super) fn block(&mut self, bytes: usize, zeroed: bool) -> Marked {
        self.marks = self.marks.wrapping_add(1).max(1);
        Marked::new(self.allocator, bytes, self.marks, zeroed)
    }
}

pub(super) fn plans(allocator: &AllocatorRef<Caching<Mmap>>) -> usize {
    allocator.plans.load(Ordering::Relaxed)
}

pub(super) fn with_player(play: impl FnOnce(&mut Player<'_>)) {
    let allocator = allocator();
    let (elsewhere, returned) = mpsc::channel::<Marked>();
    thread::scope(|scope| {
        scope.spawn(move || returned.into_iter().for_each(drop));
        play(&mut Player::new(&allocator, elsewhere));
    });
    allocator.verify().expect("invariants");
    let all = allocator.stats().totals.all;
    assert_eq!((all.live_bytes, all.allocations), (0, all.frees));
    allocator.trim(0);
    assert_eq!(allocator.stats().usage.reserved, 0);
}

/// The periods of [`layers`] that are played until it has been learned for sure.
pub(super) const ENOUGH: usize = 60;

/// What sizes are multiples of.
pub(super) const PAGE: usize = if cfg!(miri) { 128 } else { 4096 };

pub(super) fn layers() -> Vec<PeriodStep> {
    let layer = [(80, 1), (300, 3), (40, 0), (120, 2), (300, 1), (16, 0)];
    let layers = (0..6).flat_map(|n| layer.map(|(pages, duration)| (pages + n, duration)));
    layers.map(|(pages, duration)| PeriodStep { bytes: pages * PAGE - 100, duration }).collect()
}
