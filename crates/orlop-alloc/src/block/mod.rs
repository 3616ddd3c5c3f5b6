//! Requests, and the blocks that serve them.
//!
//! | file | contents |
//! |---|---|
//! | `request`, `tag` | what a user requests, and the name it is accounted under |
//! | `owned` | [`Block`]: one owner, returns its memory when dropped |
//! | `memory_block` | [`MemoryBlock`]: several owners |
//! | `typed` | [`TypedBlock`]: an array of elements |
//! | `shared_elements` | [`SharedElements`]: ranges of one, with several owners |
//! | `part` | a block that is a part of another one |
//! | `raw` | [`RawBlock`] and its [`Record`]: what engines, adaptors and handles exchange |
//! | `records` | recycling of records |
//! | `record_slab` | [`RecordSlab`]: dense records of an engine |
//! | `stream_uses`, `streams` | the streams that used a block, and how they are recorded |
//! | `deleter` | how foreign memory is freed |
//! | `copying` | copies and fills; blocks that a device may still use |
//! | `pending_copy` | [`PendingCopy`]: a block of host memory that a device is writing |

mod cloning;
mod copying;
mod deleter;
mod memory_block;
mod owned;
mod part;
mod pending_copy;
mod raw;
mod record_slab;
mod records;
mod request;
mod shared_elements;
mod source;
mod stream_uses;
mod streams;
mod tag;
mod typed;

pub use self::copying::CopyRange;
pub(crate) use self::copying::leak_unfinished;
pub use self::deleter::Deleter;
pub use self::memory_block::MemoryBlock;
pub use self::owned::Block;
pub use self::pending_copy::{CopyStatus, PendingCopy};
pub(crate) use self::raw::Owner;
pub use self::raw::{RawBlock, Record};
pub use self::record_slab::RecordSlab;
pub(crate) use self::records::recycle_record;
pub use self::request::Request;
pub use self::shared_elements::SharedElements;
pub use self::stream_uses::StreamUses;
pub use self::tag::Tag;
pub use self::typed::TypedBlock;
