//! A log of requests that is searched for a period on demand.
//!
//! Times are counted in requests. The log has the size of each request, and the number of requests until its
//! block was freed. A search returns the shortest period that ends with the last request. A sequence whose
//! blocks outlive it, or accumulate, is not a period.

use super::{Period, PeriodRequest};
use crate::Buffer;

/// The maximum length of the log. When it is full, the older half is removed.
const CAPACITY: usize = 1 << 15;

/// A period that did not happen twice is accepted if this many requests have repeated.
const MIN_REPEATED: usize = 256;

/// The number of requests that identify a position in a period, and the minimum length of a period.
pub(super) const CONTEXT: usize = 16;

/// The minimum number of requests between two searches.
const PAUSE: u32 = 64;

/// The maximum number of periods that happened twice in a search, the shortest first.
const CANDIDATES: usize = 64;

/// The block is live.
const LIVE: u32 = u32::MAX;

/// Numbers are smaller than this, so that they differ from any value for none.
const NUMBERS: u32 = u32::MAX / 2;

/// A request: its size, and the number of requests when its block was freed.
#[derive(Debug, Clone, Copy)]
struct LoggedRequest {
    size: usize,
    freed: u32,
}

/// Logs the requests of one workload and searches the log for a [`Period`] on demand.
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

    /// Returns an empty log that continues the numbers of this one, which live blocks have.
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
            // Numbers begin again. A live block with an old number may be freed under a number that is in use
            // again: one lifetime is then wrong, once.
            _ => {
                self.log.clear();
                (self.pause, self.rejected) = (0, 0);
                0
            }
        };
    }

    /// Returns `true` if a search is due. The next one is then deferred, because occasions come in groups.
    pub fn take_turn(&mut self) -> bool {
        let now = self.next_number();
        let is_due = now >= self.pause;
        if is_due {
            self.pause = now + PAUSE;
        }
        is_due
    }

    /// Defers the next search by this many requests.
    pub fn pause(&mut self, requests: usize) {
        self.pause = self.next_number().saturating_add(u32::try_from(requests).unwrap_or(u32::MAX));
    }

    /// Defers the next search because this period cannot be used, each time for longer. If the period is
    /// not confirmed, a better one may be found soon.
    pub fn reject(&mut self, period: &Period) {
        let length = u32::try_from(period.requests.len()).unwrap_or(u32::MAX);
        let pause = match period.is_confirmed {
            true => length.saturating_mul(1 << self.rejected.min(16)),
            false => (length / 16).max(PAUSE),
        };
        self.rejected += u32::from(period.is_confirmed);
        self.pause = self.next_number().saturating_add(pause);
    }

    /// Returns the shortest period that ends with the last request and has the same live blocks at its end as
    /// at its start. The time is linear in the log and in the periods that are considered.
    #[must_use]
    pub fn find(&self) -> Option<Period> {
        let repeated = self.repeated();
        let log = &self.log;
        let confirmed = (CONTEXT..log.len()).filter(|&length| repeated[length] >= length).take(CANDIDATES);
        let begun = (MIN_REPEATED..log.len())
            .filter(|&length| repeated[length] >= MIN_REPEATED && repeated[length] < length);
        let begun = begun.max_by_key(|&length| repeated[length]);
        confirmed.chain(begun).find_map(|length| self.period(length))
    }

    /// Returns, for each distance, the number of last requests whose sizes equal those that much earlier: the
    /// Z function of the reversed log.
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

    /// Returns the last `length` requests as a period; `None` if blocks outlive it, or accumulate.
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
            // Its block and that of the period before are both live: they may accumulate.
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
                // It is live across the end of the period.
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

    /// Returns the number of requests for which the block of a request was live; `None` if it still is.
    fn duration(&self, index: usize) -> Option<usize> {
        let freed = self.log.get(index).filter(|request| request.freed != LIVE)?.freed;
        Some((freed.wrapping_sub(self.first) as usize).saturating_sub(index))
    }

    /// Returns a fingerprint of the last requests; `None` if there are too few.
    #[inline]
    pub(super) fn context(&self) -> Option<u64> {
        let last = self.log.last_chunk::<CONTEXT>()?;
        Some(fingerprint(last.iter().map(|request| request.size)))
    }

    /// Returns the size of the last request.
    #[inline]
    pub(super) fn last_size(&self) -> Option<usize> {
        Some(self.log.last()?.size)
    }

    /// Returns the bytes of the log.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.log.capacity() * size_of::<LoggedRequest>()
    }
}

/// Returns a hash of a context.
#[inline]
pub(super) fn fingerprint(sizes: impl Iterator<Item = usize>) -> u64 {
    sizes.fold(0, |sum: u64, size| (sum ^ size as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

/// Returns the index of the request before which the fewest bytes are live, from sizes and durations.
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
