//! The concurrent building blocks of orlop's allocators, each in one small type that loom checks unchanged.
//!
//! | type | what it guarantees |
//! |---|---|
//! | [`Slots`] | one value per thread slot; entered without a locked instruction; any thread can visit all |
//! | [`ShardedCounters`] | blocks and bytes per slot; exact sums at rest; detection of the last block |
//! | [`Handles`] | the number of an owner's handles; none is created after the last one was dropped |
//! | [`SwapCell`] | a value that is read often and replaced rarely, and dropped when it has no reader |
//! | [`RetainingCell`] | a value that is read in one load: a replaced one stays until the cell is dropped |
//! | [`ScopedRef`] | a reference lent to a thread-local for the duration of a call |
//! | [`RemoteFreeList`] | a lock-free list: any thread pushes, one swap takes the whole list |
//! | [`DropQueue`] | what any thread dropped, for an owner that looks without a lock and collects it |
//! | [`GrowableHeap`] | a central heap: threads that find it empty at the same time add one region |
//! | [`AllocationId`] | a number for each allocation, unique in the process, drawn without a shared counter |
//!
//! Safe code gets what these types protect in closures; it cannot keep a guard of a slot or of a reader. A
//! fast path that needs one has `unsafe` entries, with their contracts.
//!
//! Engines keep their data behind these types and need no atomics of their own. Under `--cfg loom` everything
//! is built from loom's primitives instead of `std`'s. Every atomic ordering has a name ([`ordering!`]), so
//! that a test can weaken it.
#![cfg_attr(not(test), deny(clippy::expect_used))]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod allocation_id;
mod counters;
mod drop_queue;
mod growable_heap;
mod handles;
#[cfg(not(loom))]
mod inherited;
mod primitives;
mod remote_free_list;
mod retaining_cell;
mod scoped_ref;
mod slots;
mod swap_cell;
pub mod thread_slot;
mod unread_values;

pub use self::allocation_id::AllocationId;
pub use self::counters::{
    Account, BlockCounter, FastGuard, OwnerState, QuiescedCounters, ShardedCounters, SlotCounts, Totals,
};
pub use self::drop_queue::DropQueue;
pub use self::growable_heap::{CentralHeap, GrowableHeap, HeapGrowth};
pub use self::handles::Handles;
pub use self::primitives::{
    ColdMutex, ColdMutexGuard, End, MutPtr, Mutex, MutexGuard, UnsafeCell, atomic, fence,
};
#[cfg(loom)]
#[doc(hidden)]
pub use self::primitives::{RawLock, mutated};
pub use self::remote_free_list::{Linked, RemoteFreeList, Taken};
pub use self::retaining_cell::RetainingCell;
pub use self::scoped_ref::ScopedRef;
pub use self::slots::{FastSlotGuard, QuiescedSlots, Slots};
pub use self::swap_cell::SwapCell;
pub use self::unread_values::UnreadValues;
