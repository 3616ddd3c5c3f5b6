//! Budgets by scope: how much the live bytes of a device may grow while a scope is open.
//!
//! A request is admitted and served under one lock, so that two threads cannot share the rest of a budget.
//! Without an open budget a request reads one flag.

use crate::abi::{guarded, note};
use crate::error::TorchError;
use crate::process;
use orlop_core::ByteSize;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The budgets of a device that are open.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    open: Mutex<OpenBudgets>,
    is_any_open: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct OpenBudgets {
    budgets: Vec<OpenBudget>,
    last_id: u64,
}

#[derive(Debug)]
struct OpenBudget {
    id: u64,
    /// The bytes that may be live beyond those at the opening.
    bytes: u64,
    /// The live bytes at the opening.
    before: u64,
}

impl Budgets {
    /// Admits a request if all open budgets have room for it. The caller keeps the guard until the block is
    /// counted.
    pub(crate) fn admit(
        &self,
        bytes: usize,
        live: impl FnOnce() -> u64,
    ) -> Result<Option<MutexGuard<'_, OpenBudgets>>, TorchError> {
        // Relaxed: a request at the moment of the opening may be on either side of it.
        if !self.is_any_open.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let open = self.lock();
        let live = live();
        for budget in &open.budgets {
            let used = live.saturating_sub(budget.before);
            if used.saturating_add(bytes as u64) > budget.bytes {
                return Err(TorchError::Budget { budget: ByteSize(budget.bytes), used: ByteSize(used) });
            }
        }
        Ok(Some(open))
    }

    /// Opens a budget and returns its id, which is not 0.
    fn open(&self, bytes: u64, live: impl FnOnce() -> u64) -> u64 {
        let mut open = self.lock();
        open.last_id += 1;
        let budget = OpenBudget { id: open.last_id, bytes, before: live() };
        open.budgets.push(budget);
        self.is_any_open.store(true, Ordering::Relaxed);
        open.last_id
    }

    /// Closes a budget; scopes of several threads end in any order.
    fn close(&self, id: u64) {
        let mut open = self.lock();
        open.budgets.retain(|budget| budget.id != id);
        self.is_any_open.store(!open.budgets.is_empty(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, OpenBudgets> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a budget: until it is closed, the live bytes of the device grow by at most `bytes`. A request beyond
/// fails as one for which the device has no memory.
///
/// Returns the id of the budget; 0 is an error
/// ([`orlop_torch_last_error`](crate::orlop_torch_last_error)).
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_open_budget(device: c_int, bytes: u64) -> u64 {
    let opened = guarded(|| {
        let heap = process::heap(device)?;
        Ok(heap.budgets.open(bytes, || heap.live_bytes()))
    });
    note(opened).unwrap_or(0)
}

/// Closes a budget. An unknown id is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_close_budget(device: c_int, id: u64) {
    note(guarded(|| {
        process::heap(device)?.budgets.close(id);
        Ok(())
    }));
}
