//! The suite detects allocators that violate its rules: otherwise a suite that checks nothing would pass.

use orlop_alloc::backing::{BackingRef, System};
use orlop_alloc::bfc::Bfc;
use orlop_alloc::{Allocator, Request, Result, Usage, engine_support::RawBlock};
use orlop_core::{Alignment, Device, MemoryKind};
use orlop_testkit::{SuiteProfile, conformance_over};
use std::panic::catch_unwind;
use std::sync::Arc;

/// The injected flaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InjectedFlaw {
    None,
    ForgetsZeroing,
    ForgetsAlignment,
    ForgetsKind,
    LeaksFreedBlocks,
    HidesReserved,
    ReportsNoTrimmedBytes,
}

#[derive(Debug)]
struct FlawedAllocator {
    inner: Bfc<BackingRef>,
    flaw: InjectedFlaw,
}

// SAFETY: violates the contract on purpose, but harmlessly: blocks are the engine's, disjoint, and hold only
// bytes, which need no alignment.
unsafe impl Allocator for FlawedAllocator {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let mut request = *request;
        match self.flaw {
            InjectedFlaw::ForgetsZeroing => request.zeroed = false,
            InjectedFlaw::ForgetsAlignment => request.align = Alignment::ONE,
            InjectedFlaw::ForgetsKind => request.kind = MemoryKind::Default,
            _ => {}
        }
        self.inner.allocate(&request)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        if self.flaw == InjectedFlaw::LeaksFreedBlocks {
            return Ok(());
        }
        // SAFETY: guaranteed by the caller; the engine's own block.
        unsafe { self.inner.deallocate(block) }
    }

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn name(&self) -> &str {
        "broken"
    }

    fn usage(&self) -> Usage {
        let usage = self.inner.usage();
        if self.flaw == InjectedFlaw::HidesReserved {
            Usage { reserved: usage.reserved / 4, ..usage }
        } else {
            usage
        }
    }

    fn reset_peak(&self) {
        self.inner.reset_peak();
    }

    fn trim(&self, target: u64) -> u64 {
        let given = self.inner.trim(target);
        if self.flaw == InjectedFlaw::ReportsNoTrimmedBytes { 0 } else { given }
    }
}

fn passes(flaw: InjectedFlaw) -> bool {
    let make = move |backing| FlawedAllocator { inner: Bfc::new(backing), flaw }.into_ref().erase();
    catch_unwind(|| conformance_over("broken", SuiteProfile::strict(), || Arc::new(System::new()), make))
        .is_ok()
}

#[test]
fn every_flaw_is_found() {
    assert!(passes(InjectedFlaw::None), "it passes without a flaw");
    for flaw in [
        InjectedFlaw::ForgetsZeroing,
        InjectedFlaw::ForgetsAlignment,
        InjectedFlaw::ForgetsKind,
        InjectedFlaw::LeaksFreedBlocks,
        InjectedFlaw::HidesReserved,
        InjectedFlaw::ReportsNoTrimmedBytes,
    ] {
        assert!(!passes(flaw), "{flaw:?} was not detected");
    }
}
