//! Comparison of two runs: what grew, and whether a run exceeds its baseline.
//!
//! | step | with |
//! |---|---|
//! | store the metrics of a run for comparison | [`Profile`] |
//! | show what grew between two runs | [`Diff`] |
//! | fail a build that needs more memory than its baseline | [`Gate`] |

mod diff;
mod gate;
mod profile;
mod verdict;

pub use self::diff::{DeviceDiff, Diff, MetricChange, SiteDiff, SiteMatching};
pub use self::gate::{Gate, GateMetric, MetricCheck, Tolerance, UnknownTolerance};
pub use self::profile::{DeviceProfile, Profile, SiteProfile};
