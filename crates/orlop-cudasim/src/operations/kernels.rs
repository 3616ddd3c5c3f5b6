//! Launches of kernels.

use crate::codes::{Failure, Outcome, describe};
use crate::driver::Driver;
use crate::ptx::Fault;
use crate::state::kernel::Launch;
use crate::state::work::{Submission, Work};
use orlop_race::AccessKind;
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
        let mut accesses = trace.accesses.map_err(|fault| self.report_fault(&fault))?;
        let device = self.stream(stream)?.device;
        for access in accesses.iter_mut().filter(|access| access.kind == AccessKind::Atomic) {
            // To threads of other devices, an update of another device's memory is a write.
            let found = self.locate(access.address);
            if found.is_some_and(|found| !found.is_host() && found.device != device) {
                access.kind = AccessKind::Write;
            }
        }
        let work = Work::Kernel(Arc::new(launch));
        self.submit(stream, Submission { name, work, accesses, duration: None })
    }

    /// Notes where a launch failed. Returns its code.
    pub(crate) fn report_fault(&mut self, fault: &Fault) -> Failure {
        let why = match describe(fault.failure.0) {
            _ if fault.failure == Failure::NOT_SUPPORTED => {
                "an address or a branch depends on data in memory"
            }
            Some((_, text)) => text.to_str().unwrap_or_default(),
            None => "an error",
        };
        self.modules.refusal = Some(format!("{}: {why}", fault.place));
        fault.failure
    }
}
