//! Analysis: where the bytes of one recording went.
//!
//! | question | with |
//! |---|---|
//! | which call sites have the live memory at the peak and at the end? | [`SnapshotInfo`] |
//! | what does fragmentation cost? | [`Fragmentation`], [`SegmentsInfo`] |
//! | why did a request fail, and what is the least to release for it? | [`OutOfMemoryReport`] |
//! | which mapped files and foreign memory are there beside the allocators'? | [`ExternalMemory`] |
//! | what did the context, libraries and other processes take? | [`ForeignMemory`] |
//! | what refused requests, and were they served in the end? | [`RefusalCount`] |
//! | what are the sizes and lifetimes of a plain trace? | [`TraceInfo`] |
//!
//! Call sites are named by their informative frames: [`SiteName`]. Bytes of blocks are requested bytes,
//! unless noted otherwise; bytes of segments are those reserved from the device.

mod external;
mod failures;
mod foreign_memory;
mod fragmentation;
mod least_cover;
mod live_memory;
mod naming;
mod out_of_memory;
mod refusals;
mod site_name;
#[cfg(test)]
mod site_name_tests;
mod snapshot_info;
mod trace_info;

pub use self::external::ExternalMemory;
pub use self::foreign_memory::ForeignMemory;
pub use self::fragmentation::{Fragmentation, PoolUse, SegmentPool, SegmentsInfo};
pub use self::live_memory::{BlockUsage, GroupUsage, LiveMemory, UsageRanking};
pub(crate) use self::naming::SiteGroups;
pub use self::naming::SiteNaming;
pub use self::out_of_memory::{InferredLimit, OutOfMemoryReport, ReleaseMethod, ReleaseOption};
pub use self::refusals::RefusalCount;
pub use self::site_name::{LIVE_AT_START, NO_SITE, SiteName, stack_lines};
pub use self::snapshot_info::{DeviceInfo, InstantInfo, SnapshotInfo};
pub(crate) use self::snapshot_info::{peak_reserved, with_start};
pub use self::trace_info::{Lifetimes, SizeBucket, TraceInfo};
