//! Allocators and contexts, as their users need them. Authors of engines, adaptors and backends find the rest
//! in [`engine_support`](crate::engine_support).
//!
//! | what | items |
//! |---|---|
//! | requests and what they return | [`Request`], [`Tag`], [`Block`], [`MemoryBlock`], [`TypedBlock`] |
//! | the allocator of a device and a kind, and budgets | [`Context`], [`Budget`], [`Pressure`] |
//! | handles and their figures | [`AllocatorRef`], [`Allocator`], [`Stats`], [`MemoryMap`] |
//! | engines | [`caching`] (the CPU's default), [`bfc`], [`engine`] |
//! | their memory, and what can stand over them | [`backing`], [`adaptor`] |
//! | allocators by name and by environment variable | [`registry`], [`AllocatorConfig`] |
//! | Rust's collections and its global allocator | [`bare`] |
//! | events, logs; profiles of steps | [`Observer`], [`observe`], [`profile`] |
//! | why a request failed | [`Error`], [`OutOfMemory`] |

pub use orlop_alloc::{
    Access, AllocationId, Allocator, AllocatorRef, BinUse, Block, Deleter, DeviceMemory, Error, Event,
    ExternalAccount, LadderStep, LookupResult, MemoryBlock, Observer, OutOfMemory, Refusal, RefusalCause,
    RegionAction, RegionEvent, Request, Result, Semantics, SharedElements, Stats, Tag, TagUse, Totals,
    TypedBlock, Usage,
};
pub use orlop_alloc::{adaptor, backing, bare, bfc, caching, engine};
pub use orlop_context::{
    AllocatorConfig, AllocatorUse, Budget, BudgetStatus, Context, KindUse, MemoryMap, NodeAllocators,
    Pressure, PressureCallback, PressureGuard, PressureId, Source, StepCount,
};
pub use orlop_context::{observe, profile, registry};
