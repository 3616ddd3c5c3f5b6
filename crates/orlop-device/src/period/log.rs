//! The period of a workload that repeats: the sizes of its requests, and the lifetime of each block.
//!
//! Pages move where memory is fragmented, and a program that repeats itself fragments it again. So the
//! requests of a stream are logged, and when pages had to move the log is searched for a period: the number
//! of requests after which the same sizes come again. Times are counted in requests. A block that lives on
//! into the next period, or whose lifetime is not known, gets a place that no other block shares.
//!
//! Nothing here decides about memory: the engine allocates a block at its planned place if that is free (see
//! [`plan`](super::plan)), and by best fit if it is not.

use crate::engine::NONE;
use orlop_alloc::engine_support::Life;
use std::collections::HashMap;
use std::ops::Range;

/// The maximum of logged requests. Half of them are forgotten then.
const MAX_LOGGED: usize = 1 << 15;

/// A period that was not seen twice as a whole is believed after this many requests in the same order.
const MIN_REPEATED: usize = 256;

/// After a divergence, the position in the period is known again after this many requests in the same order.
const CONTEXT: usize = 16;

/// The minimum of requests between two searches.
const PAUSE: u32 = 64;

/// A search looks at this many periods at most, the shortest first.
const MAX_TRIES: usize = 64;

/// The end of a block that is live.
const LIVE: u32 = u32::MAX;

/// A request: its rounded size, and the number of requests when its block was freed.
#[derive(Debug, Clone, Copy)]
struct LoggedRequest {
    size: usize,
    until: u32,
}

/// A request of a period plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedRequest {
    pub(crate) size: usize,
    /// The planned address of its block. `None` if it has none.
    pub(crate) address: Option<usize>,
}

/// A period that was found.
#[derive(Debug)]
pub(crate) struct Period {
    /// The number of its first request in the log.
    pub(crate) first: u32,
    /// Whether it was seen twice as a whole.
    is_whole: bool,
    /// The request at which the fewest bytes are live: a plan begins there.
    turn: usize,
    /// For each request its size and the lifetime of its block; `None` if it accumulates.
    pub(crate) lives: Vec<(usize, Option<Life>)>,
}

/// The log of one stream, and the plan that is made from it.
#[derive(Debug, Default)]
pub(crate) struct PeriodLog {
    log: Vec<LoggedRequest>,
    /// The number of the log's first request.
    first: u32,
    /// Whether pages moved for the last request.
    pub(crate) has_moved: bool,
    /// No period is searched for before the request of this number.
    rest: u32,
    /// The number of whole periods that could not be planned.
    failures: u32,
    /// The bytes that may be reserved for the plan.
    pub(crate) allowed: u64,
    /// The period plan, from its turn on. Empty: there is none.
    plan: Vec<PlannedRequest>,
    /// The pages that the plan needs, in order of address.
    footprint: Vec<Range<usize>>,
    /// Whether the turn was passed since the plan was made.
    is_begun: bool,
    /// The next request of the plan. `None` after a divergence.
    next: Option<usize>,
    /// Requests of the plan by a fingerprint of those before them.
    positions: HashMap<u64, usize>,
}

impl PeriodLog {
    /// Logs a request. Returns its number, and the planned address of its block.
    #[inline]
    pub(crate) fn log_request(&mut self, size: usize) -> (u32, Option<usize>) {
        if self.log.len() >= MAX_LOGGED {
            self.forget();
        }
        let number = self.number();
        self.log.push(LoggedRequest { size, until: LIVE });
        (number, if self.plan.is_empty() { None } else { self.follow(size) })
    }

    /// Logs that the block of a request was freed. Numbers of forgotten requests are ignored.
    #[inline]
    pub(crate) fn log_free(&mut self, number: u32) {
        let now = self.number();
        if let Some(asked) = self.log.get_mut(number.wrapping_sub(self.first) as usize) {
            asked.until = now;
        }
    }

    /// Returns an empty log. Its numbers go on, since live blocks have earlier ones.
    pub(crate) fn cleared(&self) -> Self {
        Self { first: self.number(), ..Self::default() }
    }

    /// Returns the number of the next request.
    #[inline]
    fn number(&self) -> u32 {
        // The log is shorter than 2^16.
        self.first + u32::try_from(self.log.len()).unwrap_or(0)
    }

    #[cold]
    fn forget(&mut self) {
        self.log.drain(..MAX_LOGGED / 2);
        self.first = match self.first.checked_add(u32::try_from(MAX_LOGGED / 2).unwrap_or(0)) {
            Some(first) if first < NONE / 2 => first,
            // Numbers begin again. A live block with an old one can end the life of another request, once.
            _ => {
                self.log.clear();
                (self.rest, self.failures) = (0, 0);
                0
            }
        };
    }

    /// Returns `true` if there is a period plan.
    #[inline]
    pub(crate) fn is_planned(&self) -> bool {
        !self.plan.is_empty()
    }

    fn follow(&mut self, size: usize) -> Option<usize> {
        let fits = |&place: &usize| self.plan.get(place).is_some_and(|step| step.size == size);
        let place = self.next.filter(fits).or_else(|| {
            let place = self.positions.get(&fingerprint(&self.log)?).copied();
            place.filter(fits)
        });
        self.next = place.map(|place| (place + 1) % self.plan.len());
        self.is_begun |= place == Some(0);
        self.plan.get(place?)?.address.filter(|_| self.is_begun)
    }

    /// Sets the plan for a period whose last request was the last one logged. It begins at its turn, when the
    /// fewest blocks are live that are not at their planned places.
    pub(crate) fn plan(
        &mut self,
        period: &Period,
        mut plan: Vec<PlannedRequest>,
        footprint: Vec<Range<usize>>,
    ) {
        plan.rotate_left(period.turn);
        let steps: Vec<LoggedRequest> =
            plan.iter().map(|step| LoggedRequest { size: step.size, until: LIVE }).collect();
        self.positions = (CONTEXT..=steps.len())
            .rev()
            .filter_map(|end| Some((fingerprint(&steps[..end])?, end - 1)))
            .collect();
        self.next = Some((plan.len() - period.turn) % plan.len());
        self.is_begun = false;
        self.footprint = footprint;
        // Two periods after it has begun it does not get better.
        self.rest = self.number().saturating_add(u32::try_from(3 * plan.len()).unwrap_or(u32::MAX));
        self.plan = plan;
    }

    /// Returns the first part of a range of addresses that no block of the plan needs.
    pub(crate) fn outside(&self, addresses: Range<usize>) -> Range<usize> {
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

    /// Postpones the next search after a period that could not be planned, longer each time. More may soon be
    /// known of a period that was not seen as a whole.
    pub(crate) fn postpone(&mut self, period: &Period) {
        let length = u32::try_from(period.lives.len()).unwrap_or(u32::MAX);
        let pause = match period.is_whole {
            true => length.saturating_mul(1 << self.failures.min(16)),
            false => (length / 16).max(PAUSE),
        };
        self.failures += u32::from(period.is_whole);
        self.rest = self.number().saturating_add(pause);
    }

    /// Notes that pages moved. Returns `true` if it is time to search for a period: moves come in groups.
    pub(crate) fn moved(&mut self) -> bool {
        let now = self.number();
        let long_ago = now >= self.rest;
        if long_ago {
            self.rest = now + PAUSE;
        }
        long_ago
    }

    /// Finds the shortest period that ends with the last request and keeps no more blocks at its end than at
    /// its start.
    pub(crate) fn find(&self) -> Option<Period> {
        let same = self.matches();
        let log = &self.log;
        let whole = (CONTEXT..log.len()).filter(|&period| same[period] >= period).take(MAX_TRIES);
        let begun =
            (MIN_REPEATED..log.len()).filter(|&period| same[period] >= MIN_REPEATED && same[period] < period);
        let begun = begun.max_by_key(|&period| same[period]);
        whole.chain(begun).find_map(|period| self.period(period))
    }

    /// Returns, for each distance, the number of last requests that have the sizes of those at this distance
    /// before: the Z function of the log, backwards.
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

    /// Returns the last `period` requests as a period. `None` if blocks live longer than that, or accumulate.
    fn period(&self, period: usize) -> Option<Period> {
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
            // It and the one a period before are both live: they may accumulate.
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
                // It goes on into the next period.
                None => (0, u32::MAX),
            };
            let accumulates = lived.is_none() && (begin + place) >= period;
            Some((size, (!accumulates).then_some(Life { from: life.0, until: life.1, size })))
        });
        Some(Period { first, is_whole: begin >= period, turn, lives: lives.collect::<Option<_>>()? })
    }

    /// Returns the lifetime of a block in requests. `None` if it is live.
    fn duration(&self, place: usize) -> Option<usize> {
        let until = self.log.get(place).filter(|asked| asked.until != LIVE)?.until;
        Some((until.wrapping_sub(self.first) as usize).saturating_sub(place))
    }

    /// Returns the bytes of the log and the plan.
    pub(crate) fn bytes(&self) -> usize {
        self.log.capacity() * size_of::<LoggedRequest>()
            + self.plan.capacity() * size_of::<PlannedRequest>()
            + self.footprint.capacity() * size_of::<Range<usize>>()
            + self.positions.capacity() * size_of::<(u64, usize)>()
    }
}

/// Returns the request from which on a period carries the fewest bytes over its end.
fn turn(lives: &[(usize, Option<usize>)]) -> usize {
    let period = lives.len();
    let mut change = vec![0_i128; period + 1];
    for (place, &(size, lived)) in lives.iter().enumerate() {
        let size = i128::try_from(size).unwrap_or(0);
        // A block is carried over a turn that is after its request and before its free.
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

/// Returns the fingerprint of the last requests. `None` if there are too few.
fn fingerprint(log: &[LoggedRequest]) -> Option<u64> {
    let last = log.last_chunk::<CONTEXT>()?;
    Some(last.iter().fold(0, |sum: u64, asked| {
        (sum ^ asked.size as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }))
}

// These touch no memory, and Miri takes minutes for a log that forgets.
#[cfg(all(test, not(loom), not(miri)))]
#[path = "log_tests.rs"]
mod tests;
