//! The verdict on a replay: whether the run completes, what it reserves, and what to try next.

use super::SimulationOutcome;
use crate::verdict::{RunVerdict, quoted};
use orlop_core::ByteSize;

impl SimulationOutcome {
    /// Judges the replay. `file` is the recording, as commands name it.
    #[must_use]
    pub fn verdict(&self, file: &str) -> RunVerdict {
        let (peak, live) = (ByteSize(self.peak_reserved), ByteSize(self.peak_live));
        let memory = self.memory.map_or_else(String::new, |bytes| format!(" in {}", ByteSize(bytes)));
        let next = format!("orlop what-if {} tries other settings and allocators.", quoted(file));
        let Some(failed) = self.out_of_memory else {
            let retries = match self.retries {
                0 => "without a retry".to_owned(),
                1 => "with 1 retry".to_owned(),
                retries => format!("with {retries} retries"),
            };
            return RunVerdict::new(
                format!("The run completes{memory} {retries}, and reserves {peak} at its peak."),
                format!("That is {:.3} times the peak of live bytes, {live}.", self.ratio),
                next,
            );
        };
        let when = failed.event.map_or_else(
            || "at the start".to_owned(),
            |event| format!("at event {}", event.saturating_add(1)),
        );
        let [bytes, live, reserved] = [failed.bytes, failed.live, failed.reserved].map(ByteSize);
        RunVerdict::new(
            format!("The run fails{memory} {when}: no room for {bytes}."),
            format!(
                "{live} are live; of {reserved} reserved, {} are free, the largest chunk {}.",
                ByteSize(failed.cached),
                ByteSize(failed.largest_free)
            ),
            next,
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::simulate::{AllocatorRules, Simulation};
    use orlop_trace::history::{History, Workload};

    #[test]
    fn a_run_completes_or_fails_at_an_event() {
        let history = History::parse(&b"a,0,1048576\na,1,4194304\nf,0\n"[..]).expect("a trace");
        let work = Workload::of(&history.devices[0]);
        let rules = AllocatorRules::torch("").expect("settings");
        let verdict = Simulation::new(&work).run(&rules).verdict("a b.csv");
        let finding = "The run completes without a retry, and reserves 22.0 MiB at its peak.";
        assert_eq!(verdict.finding, finding);
        assert_eq!(verdict.remedy, "That is 4.400 times the peak of live bytes, 5.00 MiB.");
        assert!(verdict.next.starts_with("orlop what-if 'a b.csv' "), "{verdict}");
        let verdict = Simulation::new(&work).memory(3 << 20).run(&rules).verdict("a");
        assert_eq!(verdict.finding, "The run fails in 3.00 MiB at event 2: no room for 4.00 MiB.");
        assert!(verdict.remedy.starts_with("1.00 MiB are live; of 2.00 MiB reserved, 1.00 MiB"), "{verdict}");
    }
}
