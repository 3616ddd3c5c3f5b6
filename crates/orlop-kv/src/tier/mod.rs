//! Tiers below the device: blocks in pinned host memory, and in a store behind it.
//!
//! | part | file |
//! |---|---|
//! | the name of a block's content | `key` |
//! | the bytes of a block in a store, with checksum, layout and key | `frame` |
//! | host memory with a budget, and what leaves it for the store | `host` |
//! | what a store has to do; files | `store`, `files` |
//! | copies between the pool's pages and host memory | `transfer` |
//!
//! A block is named by the hash of the last match unit that its tokens touch. The hash covers everything
//! before, so a name that is found has the content that the prompt would compute. A block that is torn, stale
//! or foreign is removed, and counted by cause: it is a miss.

mod files;
mod frame;
mod host;
mod key;
mod store;
mod transfer;

pub use self::files::FileStore;
pub use self::frame::TierFault;
pub(crate) use self::host::TierEvent;
pub use self::host::{KvTiers, TierStats};
pub use self::key::BlockKey;
pub use self::store::BlockStore;
pub use self::transfer::{DeviceTransfer, PageTransfer};
pub(crate) use self::transfer::{read_pages, write_pages};

/// A tier of KV memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum KvTier {
    /// The pool's pages.
    Device,
    /// Pinned host memory.
    Host,
    /// The store behind host memory.
    Store,
}
