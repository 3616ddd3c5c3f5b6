//! Learning the round that a program repeats: how large its requests are, and how long each block lives.
//!
//! Pages are moved where memory is fragmented, and a program that does the same again fragments it again. So what a stream
//! asks for is logged, and when pages had to be moved the log is searched for a round: so many requests after which the
//! same come again. Times are counted in requests. What lives on from one round into the next, and what else is only known
//! by half, gets a place of its own.
//!
//! Nothing here decides about memory: the engine places a block where it was planned if that is free (see
//! [`rehearse`](super::rehearse)), and as ever if it is not.

use super::chunks::NONE;
use crate::bfc::place::Life;
use std::collections::HashMap;
use std::ops::Range;

/// The log holds at most so many requests; half of them are forgotten then.
const MOST: usize = 1 << 15;

/// A round that did not happen twice is believed after so many requests in the same order.
const LEAST: usize = 256;

/// Where in the round the program is, if it left it, is known again after so many requests in the same order.
const CONTEXT: usize = 16;

/// At least so many requests lie between two searches.
const PAUSE: u32 = 64;

/// So many rounds are looked at, the shortest first.
const TRIES: usize = 64;

/// The block lives.
const LIVES: u32 = u32::MAX;

/// A request: what was granted, and how many requests there were when it came back.
#[derive(Debug, Clone, Copy)]
struct Asked {
    size: usize,
    until: u32,
}

/// One request of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) size: usize,
    /// Where its block belongs; `None` if anywhere.
    pub(super) address: Option<usize>,
}

/// A round as it was found.
#[derive(Debug)]
pub(super) struct Round {
    /// The number of its first request in the log.
    pub(super) first: u32,
    /// Whether it happened twice.
    is_whole: bool,
    /// Its place at which the fewest bytes are carried over.
    turn: usize,
    /// For each of its requests how large it is, and when its block lives; `None` if it never came back.
    pub(super) lives: Vec<(usize, Option<Life>)>,
}

/// What one stream asks for, and the plan for it.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    log: Vec<Asked>,
    /// The number of the log's first request.
    first: u32,
    /// Whether pages were moved for the last request.
    pub(super) has_moved: bool,
    /// Until then no round is searched for.
    rest: u32,
    /// How many whole rounds could not be planned.
    failures: u32,
    /// How many bytes may be held for the plan.
    pub(super) allowed: u64,
    /// From its turn on.
    plan: Vec<Step>,
    /// The pages that it needs, in order of address.
    footprint: Vec<Range<usize>>,
    /// Whether the turn has been passed since there is this plan.
    is_begun: bool,
    /// The step that is next, if the program is where it was before.
    next: Option<usize>,
    /// Steps by a fingerprint of those before them.
    places: HashMap<u64, usize>,
}

impl Rounds {
    /// A request was made: its number, and where the block belongs.
    #[inline]
    pub(super) fn asked(&mut self, size: usize) -> (u32, Option<usize>) {
        if self.log.len() >= MOST {
            self.forget();
        }
        let number = self.number();
        self.log.push(Asked { size, until: LIVES });
        (number, if self.plan.is_empty() { None } else { self.follow(size) })
    }

    /// The block of a request came back; numbers of what was forgotten are passed over.
    #[inline]
    pub(super) fn returned(&mut self, number: u32) {
        let now = self.number();
        if let Some(asked) = self.log.get_mut(number.wrapping_sub(self.first) as usize) {
            asked.until = now;
        }
    }

    /// Nothing is known. Numbers go on: blocks that live have those of before.
    pub(super) fn anew(&self) -> Self {
        Self { first: self.number(), ..Self::default() }
    }

    /// The number of the next request.
    #[inline]
    fn number(&self) -> u32 {
        // The log is shorter than 2^16.
        self.first + u32::try_from(self.log.len()).unwrap_or(0)
    }

    #[cold]
    fn forget(&mut self) {
        self.log.drain(..MOST / 2);
        self.first = match self.first.checked_add(u32::try_from(MOST / 2).unwrap_or(0)) {
            Some(first) if first < NONE / 2 => first,
            // Numbers begin again. What lives has old ones, and may come back as another: then a life is wrong, once.
            _ => {
                self.log.clear();
                (self.rest, self.failures) = (0, 0);
                0
            }
        };
    }

    /// Whether blocks have places.
    #[inline]
    pub(super) fn is_planned(&self) -> bool {
        !self.plan.is_empty()
    }

    fn follow(&mut self, size: usize) -> Option<usize> {
        let fits = |&place: &usize| self.plan.get(place).is_some_and(|step| step.size == size);
        let place = self.next.filter(fits).or_else(|| {
            let place = self.places.get(&fingerprint(&self.log)?).copied();
            place.filter(fits)
        });
        self.next = place.map(|place| (place + 1) % self.plan.len());
        self.is_begun |= place == Some(0);
        self.plan.get(place?)?.address.filter(|_| self.is_begun)
    }

    /// Takes the plan for a round, whose last step was the last request. It begins at its turn, when the fewest blocks live
    /// that are not where it wants them.
    pub(super) fn plan(&mut self, round: &Round, mut plan: Vec<Step>, footprint: Vec<Range<usize>>) {
        plan.rotate_left(round.turn);
        let steps: Vec<Asked> = plan.iter().map(|step| Asked { size: step.size, until: LIVES }).collect();
        self.places = (CONTEXT..=steps.len())
            .rev()
            .filter_map(|end| Some((fingerprint(&steps[..end])?, end - 1)))
            .collect();
        self.next = Some((plan.len() - round.turn) % plan.len());
        self.is_begun = false;
        self.footprint = footprint;
        // Two rounds after it has begun it is as good as it will be.
        self.rest = self.number().saturating_add(u32::try_from(3 * plan.len()).unwrap_or(u32::MAX));
        self.plan = plan;
    }

    /// The first part of some addresses that no block of the plan needs.
    pub(super) fn outside(&self, addresses: Range<usize>) -> Range<usize> {
        let mut part = addresses;
        let first = self.footprint.partition_point(|pages| pages.end <= part.start);
        for pages in &self.footprint[first..] {
            if pages.start > part.start {
                part.end = part.end.min(pages.start);
                break;
            }
            part.start = pages.end.min(part.end);
        }
        part
    }

    /// A round could not be planned: the next search is later, and ever later. One that is only believed may be known
    /// better soon.
    pub(super) fn give_up(&mut self, round: &Round) {
        let length = u32::try_from(round.lives.len()).unwrap_or(u32::MAX);
        let pause = match round.is_whole {
            true => length.saturating_mul(1 << self.failures.min(16)),
            false => (length / 16).max(PAUSE),
        };
        self.failures += u32::from(round.is_whole);
        self.rest = self.number().saturating_add(pause);
    }

    /// Pages were moved. Whether it is time to search for a round: moves come in groups.
    pub(super) fn moved(&mut self) -> bool {
        let now = self.number();
        let long_ago = now >= self.rest;
        if long_ago {
            self.rest = now + PAUSE;
        }
        long_ago
    }

    /// The shortest round that ends with the last request, and has as many blocks in the end as in the beginning.
    pub(super) fn find(&self) -> Option<Round> {
        let same = self.matches();
        let log = &self.log;
        let whole = (CONTEXT..log.len()).filter(|&period| same[period] >= period).take(TRIES);
        let begun = (LEAST..log.len()).filter(|&period| same[period] >= LEAST && same[period] < period);
        let begun = begun.max_by_key(|&period| same[period]);
        whole.chain(begun).find_map(|period| self.round(period))
    }

    /// For each distance how many of the last requests are as large as those so much earlier: the Z function of the log,
    /// backwards.
    fn matches(&self) -> Vec<usize> {
        let count = self.log.len();
        let size = |back: usize| self.log[count - 1 - back].size;
        let mut same = vec![0; count];
        let (mut left, mut right) = (0, 0);
        for place in 1..count {
            if place < right {
                same[place] = same[place - left].min(right - place);
            }
            while place + same[place] < count && size(same[place]) == size(place + same[place]) {
                same[place] += 1;
            }
            if place + same[place] > right {
                (left, right) = (place, place + same[place]);
            }
        }
        same
    }

    /// The last so many requests as a round; `None` if blocks live longer than that, or become ever more.
    fn round(&self, period: usize) -> Option<Round> {
        let begin = self.log.len().checked_sub(period)?;
        let mut lives = Vec::with_capacity(period);
        let (mut all, mut kept) = (0_usize, 0_usize);
        for (place, asked) in self.log[begin..].iter().enumerate() {
            let before = (begin + place).checked_sub(period).map(|place| self.duration(place));
            let lived = self.duration(begin + place).or_else(|| before.flatten());
            if lived.is_some_and(|lived| lived > period) {
                return None;
            }
            all = all.saturating_add(asked.size);
            // It and the one a round before live both: they may be ever more.
            if lived.is_none() && before.is_some() {
                kept = kept.saturating_add(asked.size);
            }
            lives.push((asked.size, lived));
        }
        if kept > all / 64 {
            return None;
        }
        let turn = turn(&lives);
        let first = self.first + u32::try_from(begin).unwrap_or(0);
        let lives = lives.iter().enumerate().map(|(place, &(size, lived))| {
            let from = (place + period - turn) % period;
            let until = lived.map(|lived| from + lived).filter(|&until| until <= period);
            let life = match until {
                Some(until) => (u32::try_from(from).ok()?, u32::try_from(until).ok()?),
                // It goes on in the next round.
                None => (0, u32::MAX),
            };
            let accumulates = lived.is_none() && (begin + place) >= period;
            Some((size, (!accumulates).then_some(Life { from: life.0, until: life.1, size })))
        });
        Some(Round { first, is_whole: begin >= period, turn, lives: lives.collect::<Option<_>>()? })
    }

    /// For how many requests a block lived; `None` if it lives.
    fn duration(&self, place: usize) -> Option<usize> {
        let until = self.log.get(place).filter(|asked| asked.until != LIVES)?.until;
        Some((until.wrapping_sub(self.first) as usize).saturating_sub(place))
    }

    /// Bytes of the log and the plan.
    pub(super) fn bytes(&self) -> usize {
        self.log.capacity() * size_of::<Asked>()
            + self.plan.capacity() * size_of::<Step>()
            + self.footprint.capacity() * size_of::<Range<usize>>()
            + self.places.capacity() * size_of::<(u64, usize)>()
    }
}

/// The place from which on a round carries the fewest bytes over its end.
fn turn(lives: &[(usize, Option<usize>)]) -> usize {
    let period = lives.len();
    let mut change = vec![0_i128; period + 1];
    for (place, &(size, lived)) in lives.iter().enumerate() {
        let size = i128::try_from(size).unwrap_or(0);
        // A block is carried over a turn that is behind its request and before its return.
        let (from, until) = (place + 1, place + lived.unwrap_or(0));
        if from < until {
            change[from] += size;
            change[until.min(period)] -= size;
            if until > period {
                change[0] += size;
                change[until - period] -= size;
            }
        }
    }
    let mut carried = 0;
    let sums = change[..period].iter().map(|change| {
        carried += change;
        carried
    });
    sums.enumerate().min_by_key(|&(_, carried)| carried).map_or(0, |(place, _)| place)
}

/// Of the last requests; `None` if there are too few.
fn fingerprint(log: &[Asked]) -> Option<u64> {
    let last = log.last_chunk::<CONTEXT>()?;
    Some(last.iter().fold(0, |sum: u64, asked| {
        (sum ^ asked.size as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }))
}

// No memory is touched there, and an interpreter takes minutes for a log that forgets.
#[cfg(all(test, not(loom), not(miri)))]
#[path = "rounds_tests.rs"]
mod tests;
