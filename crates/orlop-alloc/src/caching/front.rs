//! What a thread has at hand: for each class a stack of blocks that were returned and not yet merged.

use super::class_in;
use super::classes::{CLASSES, size_of_class};
use crate::{AllocationId, Record};
use std::ptr::NonNull;

/// Blocks that nobody uses, linked through their records.
///
/// A chain owns its records: each is in one chain, and nobody else reaches it.
#[derive(Debug, Default)]
pub(super) struct Chain {
    top: Option<NonNull<Record>>,
    pub(super) count: usize,
}

// SAFETY: the records are the chain's own, and records may be sent.
unsafe impl Send for Chain {}

impl Chain {
    /// Adds a record that nobody else reaches.
    pub(super) fn push(&mut self, mut record: Box<Record>) {
        record.link = self.top;
        self.top = Some(NonNull::from(Box::leak(record)));
        self.count += 1;
    }

    pub(super) fn pop(&mut self) -> Option<Box<Record>> {
        let top = self.top?;
        // SAFETY: `push` leaked this box, and the chain owns it: taken back once.
        let record = unsafe { Box::from_raw(top.as_ptr()) };
        self.top = record.link;
        self.count -= 1;
        Some(record)
    }
}

/// The returned blocks of one class.
///
/// `room` and `high` count places, not blocks: both ways in and out then compare with zero or with one word.
#[derive(Debug, Clone, Copy)]
struct Stack {
    top: Option<NonNull<Record>>,
    /// How many blocks more the stack takes. Zero at first: the first block comes the slow way, and lists it.
    room: u16,
    /// The most room there was since the last look: so many places fewer than the limit were never emptied.
    high: u16,
    limit: u16,
}

impl Stack {
    const UNUSED: Self = Self { top: None, room: 0, high: 0, limit: 0 };

    fn count(&self) -> usize {
        usize::from(self.limit - self.room)
    }
}

/// One thread's stacks.
#[derive(Debug)]
pub(super) struct Front {
    stacks: [Stack; CLASSES],
    /// The classes whose stacks were ever used.
    listed: [u16; CLASSES],
    listed_count: usize,
}

// SAFETY: the records in the stacks are the front's own, and records may be sent.
unsafe impl Send for Front {}

impl Default for Front {
    fn default() -> Self {
        Self { stacks: [Stack::UNUSED; CLASSES], listed: [0; CLASSES], listed_count: 0 }
    }
}

/// A stack holds at most so many bytes, if that is at least the least number of blocks.
const STACK_BYTES: usize = 8 << 20;
const LEAST: usize = 8;
const MOST: usize = 256;

fn limit_of(class: usize) -> usize {
    (STACK_BYTES / size_of_class(class)).clamp(LEAST, MOST)
}

impl Front {
    /// The block that [`Front::take`] would take.
    #[inline(always)]
    pub(super) fn top(&self, class: usize) -> Option<&Record> {
        // SAFETY: a record of the stack, which owns it and is borrowed.
        self.stacks.get(class)?.top.map(|top| unsafe { top.as_ref() })
    }

    /// A block of this class.
    #[inline(always)]
    pub(super) fn take(&mut self, class: usize) -> Option<Box<Record>> {
        let stack = self.stacks.get_mut(class)?;
        let top = stack.top?;
        // SAFETY: `put` leaked this box into the stack, which owns it: taken back once.
        let record = unsafe { Box::from_raw(top.as_ptr()) };
        stack.top = record.link;
        stack.room += 1;
        stack.high = stack.high.max(stack.room);
        Some(record)
    }

    /// Whether a block of this class can be put at once. Not so for no class.
    #[inline(always)]
    pub(super) fn has_room(&self, class: usize) -> bool {
        self.stacks.get(class).is_some_and(|stack| stack.room > 0)
    }

    /// Keeps a block, for which there is room.
    #[inline(always)]
    pub(super) fn put(&mut self, mut record: Box<Record>) {
        let stack = &mut self.stacks[class_in(record.token)];
        // Who frees its address a second time is told.
        record.id = AllocationId::NONE;
        record.link = stack.top;
        stack.top = Some(NonNull::from(Box::leak(record)));
        stack.room -= 1;
    }

    /// Makes room for a block of this class. What has to go for that, older blocks first in the chain, is the
    /// caller's.
    pub(super) fn make_room(&mut self, class: usize) -> Chain {
        let stack = &mut self.stacks[class];
        if stack.limit == 0 {
            let limit = u16::try_from(limit_of(class)).unwrap_or(u16::MAX);
            *stack = Stack { top: None, room: limit, high: 0, limit };
            // There are as many places as classes, and each is listed once.
            self.listed[self.listed_count] = u16::try_from(class).unwrap_or(0);
            self.listed_count += 1;
            return Chain::default();
        }
        let keep = usize::from(stack.limit / 2);
        self.cut(class, keep)
    }

    /// Takes the lowest blocks of a stack, all but the upper `keep`.
    fn cut(&mut self, class: usize, keep: usize) -> Chain {
        let stack = &mut self.stacks[class];
        let mut chain = Chain { top: None, count: stack.count().saturating_sub(keep) };
        if chain.count == 0 {
            return chain;
        }
        let mut link = &mut stack.top;
        for _ in 0..keep {
            if let Some(record) = link {
                // SAFETY: a record of the stack, which owns it and is borrowed exclusively.
                link = unsafe { &mut record.as_mut().link };
            }
        }
        chain.top = link.take();
        // A stack has fewer blocks than its limit says, which is a `u16`.
        stack.room += u16::try_from(chain.count).unwrap_or(0);
        stack.high = stack.high.max(stack.room);
        chain
    }

    /// Takes the blocks that were not used since the last call.
    pub(super) fn idle(&mut self, mut give: impl FnMut(Chain)) {
        for place in 0..self.listed_count {
            let class = usize::from(self.listed[place]);
            let stack = &self.stacks[class];
            // Of `limit - room` blocks, the lowest `limit - high` were not touched.
            let keep = usize::from(stack.high.saturating_sub(stack.room));
            let chain = self.cut(class, keep);
            let stack = &mut self.stacks[class];
            stack.high = stack.room;
            if chain.count > 0 {
                give(chain);
            }
        }
    }

    /// Takes all blocks.
    pub(super) fn all(&mut self, mut give: impl FnMut(Chain)) {
        for place in 0..self.listed_count {
            let chain = self.cut(usize::from(self.listed[place]), 0);
            if chain.count > 0 {
                give(chain);
            }
        }
    }

    /// Puts blocks of a class into its stack, as many as there is room for.
    pub(super) fn refill(&mut self, class: usize, chain: &mut Chain) {
        while self.has_room(class) {
            let Some(record) = chain.pop() else { break };
            self.put(record);
        }
    }

    /// All blocks, to look at.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> + '_ {
        self.stacks.iter().flat_map(|stack| {
            let mut next = stack.top;
            std::iter::from_fn(move || {
                // SAFETY: a record of the stack, which owns it and is borrowed.
                let record = unsafe { next?.as_ref() };
                next = record.link;
                Some(record)
            })
        })
    }

    /// Whether the places add up.
    pub(super) fn is_consistent(&self) -> bool {
        self.stacks.iter().all(|stack| {
            let (mut next, mut count) = (stack.top, 0);
            while let Some(record) = next {
                // SAFETY: as in `records`.
                next = unsafe { record.as_ref() }.link;
                count += 1;
            }
            count == stack.count() && stack.room <= stack.limit
        })
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // The engine has emptied it; what is left after a panic is only the records' memory.
        self.all(|mut chain| while chain.pop().is_some() {});
    }
}

/// Batches of returned blocks on their way from threads that return to threads that allocate.
#[derive(Debug, Default)]
pub(super) struct Depot {
    batches: Vec<(usize, Chain)>,
}

impl Depot {
    pub(super) fn put(&mut self, class: usize, chain: Chain) {
        if chain.count > 0 {
            self.batches.push((class, chain));
        }
    }

    /// The latest batch of this class.
    pub(super) fn take(&mut self, class: usize) -> Option<Chain> {
        let place = self.batches.iter().rposition(|&(of, _)| of == class)?;
        Some(self.batches.swap_remove(place).1)
    }

    /// All batches.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Chain> + '_ {
        self.batches.drain(..).map(|(_, chain)| chain)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn blocks(&self) -> usize {
        self.batches.iter().map(|(_, chain)| chain.count).sum()
    }
}
