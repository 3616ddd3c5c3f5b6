//! The concurrent protocols of the crate, each in one small type that loom checks verbatim.
//!
//! | type | what it promises |
//! |---|---|
//! | [`Slots`] | one value per thread slot; a thread enters its own without a locked instruction, and any thread can visit every slot |
//! | [`Ledger`] | bytes and blocks counted by slot; sums are exact at a quiet moment and never negative; tells who must destroy the owner |
//! | [`Handles`] | the handles of an owner: they can be made from blocks too, but never again after the last one went |
//! | [`Lent`] | a value that is read often and replaced at times: what was replaced goes when nobody reads it |
//! | [`StreamUses`] | the set of streams that used a block, in one word that is zero when there are none |
//! | [`Returns`] | a list that any thread adds to and one takes whole, without a lock |
//! | [`Grown`] | a centre that grows: threads that find it empty at the same time gain one region, not one each |
//!
//! Engines, here and in other crates, put their data behind these and need no atomics of their own.

mod accounts;
mod grown;
mod handles;
mod ledger;
mod lent;
mod returns;
mod slots;
mod streams;
pub mod thread_slot;

pub use crate::sync::{Mutex, MutexGuard};

pub use self::accounts::{Account, Counter, Entry, Totals};
pub use self::grown::{Centre, Grown, Growth};
pub use self::handles::Handles;
pub use self::ledger::{AllCounted, Figures, Holding, Ledger};
pub use self::lent::{Lent, Loan};
pub use self::returns::{Linked, Returns};
pub use self::slots::{AllHeld, Held, Slots};
pub use self::streams::StreamUses;
