//! Whether recordings are of the same sequence of requests.

use crate::analyze::SiteName;
use crate::{LabError, Result};
use orlop_trace::history::{Sites, WorkStep, Workload};
use std::fmt;

/// A recording, as far as the alignment needs it.
pub(super) struct Aligned<'a> {
    pub(super) work: Workload,
    pub(super) sites: &'a Sites,
}

/// One request or free in two recordings that should be the same.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceDifference {
    /// The sizes of the two recordings.
    pub sizes: (u64, u64),
    /// What each of them does there.
    pub actions: (String, String),
}

impl fmt::Display for SequenceDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sizes, actions } = self;
        write!(f, "at size {}, {}; at size {}, {}", sizes.0, actions.0, sizes.1, actions.1)
    }
}

/// Checks that all recordings have the sequence of the first.
pub(super) fn check(recordings: &[Aligned<'_>], sizes: &[u64]) -> Result<()> {
    let Some((first, others)) = recordings.split_first() else { return Ok(()) };
    for (other, &size) in others.iter().zip(sizes.iter().skip(1)) {
        if let Some(actions) = difference(first, other) {
            let difference = SequenceDifference { sizes: (sizes[0], size), actions };
            return Err(LabError::SequencesDiffer { difference: Box::new(difference) });
        }
    }
    Ok(())
}

/// Returns the first difference, as texts.
fn difference(first: &Aligned<'_>, other: &Aligned<'_>) -> Option<(String, String)> {
    let starts = [first, other].map(|recording| recording.work.at_start);
    if starts[0] != starts[1] {
        let [here, there] = starts.map(|blocks| format!("{blocks} blocks are live at the start"));
        return Some((here, there));
    }
    let (mut steps, mut others) = (first.steps().into_iter(), other.steps().into_iter());
    loop {
        let (one, two) = (steps.next(), others.next());
        match (one, two) {
            (None, None) => return None,
            (Some((_, one)), Some((_, two))) if first.is_same(one, other, two) => {}
            _ => return Some((first.describe(one), other.describe(two))),
        }
    }
}

impl Aligned<'_> {
    /// Returns the allocations, frees and failures. When pending frees complete depends on the clock, and the
    /// order of consecutive frees on the addresses of objects (PyTorch: the casts of `autocast` are freed in
    /// the order of a hash table), so they are in the order of their blocks.
    fn steps(&self) -> Vec<(usize, WorkStep)> {
        let steps = self.work.steps.iter().copied().enumerate();
        let mut steps: Vec<(usize, WorkStep)> =
            steps.filter(|(_, step)| !matches!(step, WorkStep::Use(..) | WorkStep::Completed(_))).collect();
        let freed = |step: &(usize, WorkStep)| match step.1 {
            WorkStep::Free(id) => Some(id),
            _ => None,
        };
        for frees in steps.chunk_by_mut(|one, next| freed(one).is_some() && freed(next).is_some()) {
            frees.sort_by_key(freed);
        }
        steps
    }

    fn is_same(&self, step: WorkStep, other: &Self, there: WorkStep) -> bool {
        match (step, there) {
            (WorkStep::Allocate(one), WorkStep::Allocate(two)) => {
                one == two && {
                    let [here, there] = [self, other].map(|recording| recording.work.blocks[one as usize]);
                    let name =
                        |recording: &Self, site| SiteName::of(recording.sites, site).key(recording.sites);
                    (here.stream, here.pool) == (there.stream, there.pool)
                        && name(self, here.site) == name(other, there.site)
                }
            }
            (WorkStep::Free(one), WorkStep::Free(two)) => one == two,
            _ => false,
        }
    }

    fn describe(&self, at: Option<(usize, WorkStep)>) -> String {
        let Some((step, action)) = at else { return "the recording ends".to_owned() };
        // Messages number events from 1.
        let event = self.work.events.get(step).map_or(0, |&event| u64::from(event) + 1);
        let block = |id: u32| {
            let block = self.work.blocks[id as usize];
            let site = SiteName::of(self.sites, block.site);
            format!("block {id} of {} bytes by {}", block.bytes, site.display(self.sites))
        };
        match action {
            WorkStep::Allocate(id) => format!("event {event} allocates {}", block(id)),
            WorkStep::Free(id) => format!("event {event} frees {}", block(id)),
            WorkStep::Failed(bytes, _) => format!("event {event} runs out of memory with {bytes} bytes"),
            WorkStep::Use(..) | WorkStep::Completed(_) => format!("event {event} uses a block"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_trace::history::History;

    #[test]
    fn consecutive_frees_have_no_order() {
        let difference = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| History::parse(text.as_bytes()).unwrap());
            let [one, other] = [&one, &other]
                .map(|history| Aligned { work: Workload::of(&history.devices[0]), sites: &history.sites });
            difference(&one, &other)
        };
        let allocated = "a,0,8\na,1,16\na,2,32\n";
        let of = |frees: &str| format!("{allocated}{frees}");
        assert_eq!(difference(&of("f,2\nf,0\na,3,8\nf,1\n"), &of("f,0\nf,2\na,3,8\nf,1\n")), None);
        let found = difference(&of("f,2\nf,0\na,3,8\nf,1\n"), &of("f,2\nf,1\na,3,8\nf,0\n")).unwrap();
        assert!(found.0.contains("frees block 0") && found.1.contains("frees block 1"), "{found:?}");
    }
}
