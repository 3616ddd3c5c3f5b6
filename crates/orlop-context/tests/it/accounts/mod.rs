//! The accounts of a context: every allocator, and external memory.

mod charges;
mod explicit;
pub(crate) mod external;
mod observed;

use orlop_alloc::adaptor::Limit;
use orlop_alloc::backing::System;
use orlop_alloc::engine::{Arena, Direct};
use orlop_alloc::{Allocator, AllocatorRef, Request};
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{Device, MemoryKind};

const KIND: MemoryKind = MemoryKind::Workspace;

/// A context of its own, without settings of the environment.
fn context() -> Context {
    Context::with(Device::CPU, AllocatorConfig::new())
}

/// A context with a hard budget for [`KIND`].
fn budgeted(bytes: u64) -> Context {
    let context = context();
    context.set_budget(Device::CPU, KIND, Budget::hard(bytes)).expect("nothing else borrows from it");
    context
}

/// The bytes charged to the budget of [`KIND`].
fn live(context: &Context) -> u64 {
    context.budget_status(Device::CPU, KIND).live
}

fn request(bytes: usize) -> Request {
    Request::new(bytes).kind(KIND)
}

fn arena() -> AllocatorRef {
    Arena::new(System::new(), 1 << 20).into_ref().erase()
}

fn limited(upstream: &AllocatorRef) -> AllocatorRef {
    Limit::new(upstream.clone(), 1 << 20).into_ref().erase()
}

/// An allocator that keeps no statistics.
fn silent() -> AllocatorRef {
    AllocatorRef::with_statistics(Direct::new(System::new()), false).erase()
}
