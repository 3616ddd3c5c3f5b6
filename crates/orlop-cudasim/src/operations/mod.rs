//! What calls do to the whole driver, as methods of [`Driver`](crate::driver::Driver).
//!
//! Those that pass virtual time are methods of [`DriverGuard`](crate::guard::DriverGuard), which can release
//! the lock for a host function. Each file uses only those above it in this table.
//!
//! | file | holds |
//! |---|---|
//! | `pools` | memory pools: charges, trims |
//! | `memory` | what an address belongs to; allocations, and the charge to their device |
//! | `accesses` | the race check |
//! | `virtual_memory` | reservations, physical memory, mappings |
//! | `capture` | captures: what they record, what they refuse |
//! | `streams` | submission to streams, and the order among them |
//! | `kernels`, `events`, `graphs` | what is submitted to streams |
//! | `execute` | the effect of an operation |
//! | `clock` | virtual time: the completion of operations |
//! | `synchronize` | waits of the host |
//! | `stream_memory` | allocation in the order of a stream |

mod accesses;
mod capture;
mod clock;
mod events;
mod execute;
mod graphs;
mod kernels;
mod memory;
mod pools;
pub(crate) mod process_events;
mod stream_memory;
mod streams;
mod synchronize;
mod virtual_memory;
