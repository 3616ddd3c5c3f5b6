//! Comparison of two runs: what grew, and whether a run needs more than it may.
//!
//! | step | with |
//! |---|---|
//! | keep the figures of a run that are worth comparing | [`Profile`] |
//! | show what grew between two of them | [`Diff`] |
//! | fail a build that needs more memory than its baseline | [`Gate`] |

mod diff;
mod gate;
mod profile;

pub use self::diff::{Amount, DeviceDiff, Diff, Matching, SiteDiff};
pub use self::gate::{Check, Gate, Measure, Tolerance, UnknownTolerance};
pub use self::profile::{DeviceProfile, Profile, SiteProfile};
