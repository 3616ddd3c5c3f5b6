//! The lab: what a [`History`](crate::history::History) says about where the bytes went.
//!
//! | question | with |
//! |---|---|
//! | who holds the memory, at the peak and in the end? what does fragmentation cost? | [`SnapshotInfo`] |
//! | what did a request that failed lack, and what would have been the least to give up for it? | [`OutOfMemoryReport`] |
//! | what were all segments like at this moment? | [`Moments`] |
//! | what grew between two runs? | [`Profile`], [`Diff`] |
//! | does a run need more than it may? | [`Profile`], [`Gate`] |
//!
//! Call sites are named by the frames that say something to a person: [`SiteName`]. Bytes of blocks are as asked for,
//! unless something else is said; bytes of segments are as the device gave them.

mod diff;
mod fragmentation;
mod gate;
mod holders;
mod info;
mod moment;
mod names;
mod naming;
mod out_of_memory;
mod profile;

#[cfg(test)]
mod made;
#[cfg(test)]
mod moment_tests;
#[cfg(test)]
mod naming_tests;
#[cfg(test)]
mod tests;

pub use self::diff::{Amount, DeviceDiff, Diff, Matching, SiteDiff};
pub use self::fragmentation::{Fragmentation, PoolUse, SegmentPool, SegmentsInfo};
pub use self::gate::{Check, Gate, Measure, Tolerance, UnknownTolerance};
pub use self::holders::{Holder, Holdings, Share, Shares};
pub(crate) use self::info::peak_reserved_after;
pub use self::info::{DeviceInfo, MomentInfo, SnapshotInfo};
pub use self::moment::Moments;
pub use self::names::Naming;
pub use self::naming::{BEFORE, NO_SITE, SiteName};
pub use self::out_of_memory::{InferredLimit, OutOfMemoryReport, Release, Way};
pub use self::profile::{DeviceProfile, Profile, SiteProfile};
