//! Writers that outlast their guards: the owners of memory that is bound to a part of a pool.
//!
//! # Pools in pools
//!
//! A storage that is bound to a part of a pool can itself be the pool of another one, and so on. The last
//! handle of the innermost storage is then the last one of its pool, and so on outwards. A recursion would
//! end the stack, so a registration that is dropped while the thread is dropping another one leaves its pool
//! to that one.

use super::cell::StorageCell;
use super::guard::{Registration, WriteGuard};
use crate::error::Result;
use crate::shared::Shared;
#[cfg(not(loom))]
use std::cell::RefCell;

/// The registration of a writer that outlasts its guard: it ends when this is dropped.
#[derive(Debug)]
pub(super) struct WriteRegistration {
    /// Taken when this is dropped.
    cell: Option<Shared<StorageCell>>,
    registration: Registration,
}

impl WriteRegistration {
    /// Takes the registration of a guard of this cell. Without bytes there is nothing to exclude: that of an
    /// empty range ends at once.
    pub(super) fn of(
        cell: &Shared<StorageCell>,
        guard: impl FnOnce(&StorageCell) -> Result<WriteGuard<'_>>,
    ) -> Result<Self> {
        let (mut registration, former) = guard(cell)?.into_registration();
        if registration == Registration::EMPTY {
            registration.end_write(cell);
            registration = Registration::NONE;
        }
        let registration = Self { cell: Some(cell.clone()), registration };
        drop(former);
        Ok(registration)
    }
}

impl Drop for WriteRegistration {
    fn drop(&mut self) {
        let Some(cell) = self.cell.take() else { return };
        self.registration.end_write(&cell);
        release(cell);
    }
}

#[cfg(not(loom))]
thread_local! {
    /// The pools that are still to be released, while this thread is releasing one.
    static WAITING: RefCell<Option<Vec<Shared<StorageCell>>>> = const { RefCell::new(None) };
}

/// Ends the loop of `release`, also by a panic of a destructor.
#[cfg(not(loom))]
struct EndOfLoop;

#[cfg(not(loom))]
impl Drop for EndOfLoop {
    fn drop(&mut self) {
        // Pools that are left after a panic are released in loops of their own.
        let rest = WAITING.with_borrow_mut(Option::take);
        drop(rest);
    }
}

/// Releases a pool, and those whose parts it and they are bound to.
#[cfg(not(loom))]
fn release(pool: Shared<StorageCell>) {
    let mut next = Some(pool);
    let is_left = WAITING.try_with(|waiting| match &mut *waiting.borrow_mut() {
        Some(waiting) => {
            waiting.extend(next.take());
            true
        }
        none @ None => {
            *none = Some(Vec::new());
            false
        }
    });
    // In a thread that is ending there is no list.
    if is_left != Ok(false) {
        return;
    }
    let _end = EndOfLoop;
    while let Some(pool) = next {
        drop(pool);
        next = WAITING.with_borrow_mut(|waiting| waiting.as_mut().and_then(Vec::pop));
    }
}

/// Models have short chains, and their threads share thread-locals.
#[cfg(loom)]
fn release(pool: Shared<StorageCell>) {
    drop(pool);
}
