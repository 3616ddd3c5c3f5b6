//! Launches of kernels.

use crate::codes::Outcome;
use crate::driver::Driver;
use crate::state::kernel::Launch;
use crate::state::work::{Submission, Work};
use std::sync::Arc;

impl Driver {
    /// Submits a launch to a stream, with the accesses of its kernel.
    ///
    /// # Errors
    ///
    /// `NOT_SUPPORTED` if PTX accesses what only its data decides.
    pub(crate) fn launch(&mut self, stream: u64, mut launch: Launch) -> Outcome {
        let (name, trace) = (Arc::clone(&launch.name), launch.trace(&self.memory));
        if let Some(race) = trace.race {
            self.report_race_within(&name, stream, race);
        }
        let (work, accesses) = (Work::Kernel(Arc::new(launch)), trace.accesses?);
        self.submit(stream, Submission { name, work, accesses, duration: None })
    }
}
