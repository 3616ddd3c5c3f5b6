//! The suite finds allocators that break their promises: without this, a suite that checks nothing would pass.

use orlop_alloc::backing::{Global, System};
use orlop_alloc::bfc::Bfc;
use orlop_alloc::{Allocator, AllocatorRef, RawBlock, Request, Result, Usage};
use orlop_core::{Alignment, Device, MemoryKind};
use orlop_testkit::{SuiteProfile, conformance_over};
use std::panic::catch_unwind;
use std::sync::Arc;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    ForgetsZeroing,
    ForgetsAlignment,
    ForgetsTheKind,
    KeepsWhatComesBack,
    HidesReserved,
    TrimsAndSaysNothing,
}

#[derive(Debug)]
struct Broken {
    inner: Bfc<Global>,
    flaw: Flaw,
}

// SAFETY: not as promised, on purpose, but no worse than that: blocks are the engine's, disjoint, and hold
// bytes only, which need no alignment.
unsafe impl Allocator for Broken {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let mut request = *request;
        match self.flaw {
            Flaw::ForgetsZeroing => request.zeroed = false,
            Flaw::ForgetsAlignment => request.align = Alignment::ONE,
            Flaw::ForgetsTheKind => request.kind = MemoryKind::Default,
            _ => {}
        }
        self.inner.allocate(&request)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        if self.flaw == Flaw::KeepsWhatComesBack {
            return Ok(());
        }
        // SAFETY: the caller's promises; the engine's own block.
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
        if self.flaw == Flaw::HidesReserved { Usage { reserved: usage.reserved / 4, ..usage } } else { usage }
    }

    fn reset_peak(&self) {
        self.inner.reset_peak();
    }

    fn trim(&self, target: u64) -> u64 {
        let given = self.inner.trim(target);
        if self.flaw == Flaw::TrimsAndSaysNothing { 0 } else { given }
    }
}

fn passes(flaw: Flaw) -> bool {
    let make = move |backing| {
        AllocatorRef::new(Broken { inner: Bfc::builder(backing).build_engine(), flaw }).erase()
    };
    catch_unwind(|| conformance_over("broken", SuiteProfile::strict(), || Arc::new(System::new()), make))
        .is_ok()
}

#[test]
fn every_flaw_is_found() {
    assert!(passes(Flaw::None), "without a flaw it passes");
    for flaw in [
        Flaw::ForgetsZeroing,
        Flaw::ForgetsAlignment,
        Flaw::ForgetsTheKind,
        Flaw::KeepsWhatComesBack,
        Flaw::HidesReserved,
        Flaw::TrimsAndSaysNothing,
    ] {
        assert!(!passes(flaw), "{flaw:?} was not noticed");
    }
}
