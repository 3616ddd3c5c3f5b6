//! A log of requests that is searched for a period on demand.
//!
//! Times are counted in requests. The log tells how large each request was and how many requests later its
//! block was freed. A search takes the shortest period that ends with the last request; a period whose blocks
//! live longer than itself, or become ever more, is none.

use super::{Period, PeriodRequest};
use crate::Buffer;

/// The log holds at most this many requests. Half of them are forgotten then.
const CAPACITY: usize = 1 << 15;

/// A period that did not happen twice is accepted if this many requests have repeated.
const LEAST_REPEATED: usize = 256;

/// The number of requests that tell where in a period the workload is. Shorter periods are not looked for.
pub(super) const CONTEXT: usize = 16;

/// At least this many requests lie between two searches.
const PAUSE: u32 = 64;

/// A search looks at this many periods that happened twice, the shortest first.
const CANDIDATES: usize = 64;

/// The block is live.
const LIVE: u32 = u32::MAX;

/// Numbers are smaller than this, so that they differ from whatever stands for none.
const NUMBERS: u32 = u32::MAX / 2;

/// A request: its size, and the number of requests when its block was freed.
#[derive(Debug, Clone, Copy)]
struct LoggedRequest {
    size: usize,
    freed: u32,
}

/// Logs the requests of one workload and searches the log for a [`Period`] when it is asked to.
///
/// ```
/// use orlop_plan::period::PeriodSearch;
///
/// let mut search = PeriodSearch::default();
/// for _ in 0..2 {
///     for size in 1..=16 {
///         let number = search.log(size);
///         search.log_free(number);
///     }
/// }
/// let period = search.find().expect("it happened twice");
/// assert!(period.is_confirmed());
/// assert_eq!(period.requests().len(), 16);
/// ```
#[derive(Debug, Default)]
pub struct PeriodSearch {
    log: Vec<LoggedRequest>,
    /// The number of the log's first request.
    first: u32,
    /// No search is due before the request with this number.
    pause: u32,
    /// The number of confirmed periods that were rejected.
    rejected: u32,
}

impl PeriodSearch {
    /// Logs a request of `size` bytes. Returns its number, which is less than `u32::MAX / 2`.
    #[inline]
    pub fn log(&mut self, size: usize) -> u32 {
        if self.log.len() >= CAPACITY {
            self.forget();
        }
        let number = self.next_number();
        self.log.push(LoggedRequest { size, freed: LIVE });
        number
    }

    /// Logs that the block of the request with this number was freed. Numbers of forgotten requests are
    /// ignored.
    #[inline]
    pub fn log_free(&mut self, number: u32) {
        let now = self.next_number();
        if let Some(request) = self.log.get_mut(number.wrapping_sub(self.first) as usize) {
            request.freed = now;
        }
    }

    /// Returns an empty log whose numbers go on where these end: live blocks have numbers of this one.
    #[must_use]
    pub fn restart(&self) -> Self {
        Self { first: self.next_number(), ..Self::default() }
    }

    #[inline]
    fn next_number(&self) -> u32 {
        // The log is shorter than 2^16.
        self.first + u32::try_from(self.log.len()).unwrap_or(0)
    }

    #[cold]
    fn forget(&mut self) {
        self.log.drain(..CAPACITY / 2);
        self.first = match self.first.checked_add(u32::try_from(CAPACITY / 2).unwrap_or(0)) {
            Some(first) if first < NUMBERS => first,
            // Numbers begin again. Live blocks have old ones, and may be freed under a number that is in use
            // again: then one lifetime is wrong, once.
            _ => {
                self.log.clear();
                (self.pause, self.rejected) = (0, 0);
                0
            }
        };
    }

    /// Whether a search is due, and if it is, no further one for a while: occasions come in groups.
    pub fn take_turn(&mut self) -> bool {
        let now = self.next_number();
        let is_due = now >= self.pause;
        if is_due {
            self.pause = now + PAUSE;
        }
        is_due
    }

    /// Puts off the next search by this many requests.
    pub fn pause(&mut self, requests: usize) {
        self.pause = self.next_number().saturating_add(u32::try_from(requests).unwrap_or(u32::MAX));
    }

    /// Puts off the next search because this period is of no use, each time for longer. One that is not
    /// confirmed may be known better soon.
    pub fn reject(&mut self, period: &Period) {
        let length = u32::try_from(period.requests.len()).unwrap_or(u32::MAX);
        let pause = match period.is_confirmed {
            true => length.saturating_mul(1 << self.rejected.min(16)),
            false => (length / 16).max(PAUSE),
        };
        self.rejected += u32::from(period.is_confirmed);
        self.pause = self.next_number().saturating_add(pause);
    }

    /// Returns the shortest period that ends with the last request and has as many live blocks at its end as
    /// at its start. Takes time in proportion to the log, and to the periods that it looks at.
    #[must_use]
    pub fn find(&self) -> Option<Period> {
        let repeated = self.repeated();
        let log = &self.log;
        let confirmed = (CONTEXT..log.len()).filter(|&length| repeated[length] >= length).take(CANDIDATES);
        let begun = (LEAST_REPEATED..log.len())
            .filter(|&length| repeated[length] >= LEAST_REPEATED && repeated[length] < length);
        let begun = begun.max_by_key(|&length| repeated[length]);
        confirmed.chain(begun).find_map(|length| self.period(length))
    }

    /// For each distance, how many of the last requests are as large as those that much earlier: the Z
    /// function of the log, backwards.
    fn repeated(&self) -> Vec<usize> {
        let count = self.log.len();
        let size = |back: usize| self.log[count - 1 - back].size;
        let mut repeated = vec![0; count];
        let (mut left, mut right) = (0, 0);
        for index in 1..count {
            if index < right {
                repeated[index] = repeated[index - left].min(right - index);
            }
            while index + repeated[index] < count && size(repeated[index]) == size(index + repeated[index]) {
                repeated[index] += 1;
            }
            if index + repeated[index] > right {
                (left, right) = (index, index + repeated[index]);
            }
        }
        repeated
    }

    /// The last `length` requests as a period; `None` if blocks live longer than that, or become ever more.
    fn period(&self, length: usize) -> Option<Period> {
        let begin = self.log.len().checked_sub(length)?;
        let mut durations = Vec::with_capacity(length);
        let (mut all, mut kept) = (0_usize, 0_usize);
        for (index, request) in self.log[begin..].iter().enumerate() {
            let before = (begin + index).checked_sub(length).map(|index| self.duration(index));
            let duration = self.duration(begin + index).or_else(|| before.flatten());
            if duration.is_some_and(|duration| duration > length) {
                return None;
            }
            all = all.saturating_add(request.size);
            // Its block and the one of a period before are both live: they may be ever more.
            if duration.is_none() && before.is_some() {
                kept = kept.saturating_add(request.size);
            }
            durations.push((request.size, duration));
        }
        if kept > all / 64 {
            return None;
        }
        let turn = turn(&durations);
        let requests = durations.iter().enumerate().map(|(index, &(size, duration))| {
            let start = (index + length - turn) % length;
            let end = duration.map(|duration| start + duration).filter(|&end| end <= length);
            let lifetime = match end {
                Some(end) => u64::try_from(start).ok()?..u64::try_from(end).ok()?,
                // It goes on in the next period.
                None => Period::ALWAYS,
            };
            let accumulates = duration.is_none() && begin + index >= length;
            let buffer = Buffer::unaligned(lifetime, u64::try_from(size).ok()?);
            Some(PeriodRequest { key: size, buffer: (!accumulates).then_some(buffer) })
        });
        Some(Period {
            first: self.first + u32::try_from(begin).unwrap_or(0),
            is_confirmed: begin >= length,
            turn,
            requests: requests.collect::<Option<_>>()?,
        })
    }

    /// For how many requests the block of a request was live; `None` if it still is.
    fn duration(&self, index: usize) -> Option<usize> {
        let freed = self.log.get(index).filter(|request| request.freed != LIVE)?.freed;
        Some((freed.wrapping_sub(self.first) as usize).saturating_sub(index))
    }

    /// A fingerprint of the last requests and the size of the last one; `None` if there are too few.
    #[inline]
    pub(super) fn context(&self) -> Option<u64> {
        let last = self.log.last_chunk::<CONTEXT>()?;
        Some(fingerprint(last.iter().map(|request| request.size)))
    }

    /// The size of the last request.
    #[inline]
    pub(super) fn last_size(&self) -> Option<usize> {
        Some(self.log.last()?.size)
    }

    /// Bytes of the log.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.log.capacity() * size_of::<LoggedRequest>()
    }
}

/// Tells one context from another.
#[inline]
pub(super) fn fingerprint(sizes: impl Iterator<Item = usize>) -> u64 {
    sizes.fold(0, |sum: u64, size| (sum ^ size as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

/// The index of the request before which the fewest bytes are live, by sizes and durations.
fn turn(durations: &[(usize, Option<usize>)]) -> usize {
    let length = durations.len();
    let mut change = vec![0_i128; length + 1];
    for (index, &(size, duration)) in durations.iter().enumerate() {
        let size = i128::try_from(size).unwrap_or(0);
        // A block is live across a turn that comes after its request and before its free.
        let (start, end) = (index + 1, index + duration.unwrap_or(0));
        if start < end {
            change[start] += size;
            change[end.min(length)] -= size;
            if end > length {
                change[0] += size;
                change[end - length] -= size;
            }
        }
    }
    let mut live = 0;
    let sums = change[..length].iter().map(|change| {
        live += change;
        live
    });
    sums.enumerate().min_by_key(|&(_, live)| live).map_or(0, |(index, _)| index)
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
