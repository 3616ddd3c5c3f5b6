//! The requests of the example: prompts that share a beginning, two samples of one prompt, drafts, and one
//! that is more urgent than the others.

use super::model::VOCABULARY;

/// A request: a prompt, and how many tokens to generate.
#[derive(Debug, Clone)]
pub(crate) struct TextRequest {
    pub(crate) prompt: Vec<u32>,
    pub(crate) max_new: usize,
    /// The step in which it arrives.
    pub(crate) arrives: u64,
    /// Requests of a lower priority are preempted for it.
    pub(crate) priority: u8,
    /// Texts to generate. The second one is a fork that begins with the second best token.
    pub(crate) samples: usize,
    /// The maximum of draft tokens in a step.
    pub(crate) drafts: usize,
}

/// Returns the requests, by arrival.
pub(crate) fn requests() -> Vec<TextRequest> {
    let system = (0..40).map(|at| token(at * at + 3));
    let request = |number: usize, own: usize, max_new| TextRequest {
        prompt: system.clone().chain((0..own).map(|at| token(17 * number + 5 * at + at * at))).collect(),
        max_new,
        arrives: 0,
        priority: 0,
        samples: 1,
        drafts: 0,
    };
    vec![
        request(0, 21, 40),
        TextRequest { samples: 2, ..request(1, 33, 32) },
        TextRequest { drafts: 3, ..request(2, 14, 48) },
        TextRequest { priority: 1, arrives: 24, ..request(3, 90, 24) },
        TextRequest { arrives: 40, ..request(4, 50, 24) },
        TextRequest { drafts: 3, arrives: 60, ..request(0, 45, 24) },
    ]
}

fn token(number: usize) -> u32 {
    u32::try_from(number % VOCABULARY).unwrap_or_default()
}
