//! Detection of a period while it happens: a log of allocations and frees since an instant, the anchor.
//!
//! The anchor is where the fewest bytes are live: whenever fewer are live than at the anchor, the log
//! restarts. So that this is not a border between two layers of a network, the learner first watches the live
//! bytes for a while without a log. When as many bytes are live as at the anchor again, a period may have
//! ended, and the log is compared with what follows: if all of it repeats, in the same order and with the
//! same classes, it is the period. If not, it was a part of one, and the events since then are added to it.

use super::PeriodRequest;
use crate::Buffer;

/// An allocation of a class, the free of the allocation with this number, or the free of a block of a class
/// from before the anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LoggedEvent(u32);

const ALLOCATION: u32 = 1 << 31;
const FOREIGN: u32 = 1 << 30;

#[expect(
    clippy::cast_possible_truncation,
    reason = "`PeriodLearner::MAX_CLASSES`, `PeriodLearner::MAX_REQUESTS`"
)]
impl LoggedEvent {
    fn allocation(class: usize) -> Self {
        debug_assert!(class < PeriodLearner::MAX_CLASSES);
        Self(class as u32 | ALLOCATION)
    }

    fn free(number: usize) -> Self {
        debug_assert!(number < 2 * PeriodLearner::MAX_REQUESTS);
        Self(number as u32)
    }

    fn foreign(class: usize) -> Self {
        debug_assert!(class < PeriodLearner::MAX_CLASSES);
        Self(class as u32 | FOREIGN)
    }

    fn class(self) -> Option<usize> {
        (self.0 & ALLOCATION != 0).then_some((self.0 & !ALLOCATION) as usize)
    }

    fn freed(self) -> Option<usize> {
        (self.0 & (ALLOCATION | FOREIGN) == 0).then_some(self.0 as usize)
    }
}

/// A log on trial: the numbers of its events and allocations, and of the events that have repeated.
#[derive(Debug, Clone, Copy)]
struct Trial {
    events: usize,
    allocations: usize,
    matched: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LearnerPhase {
    /// For `left` more allocations, and then until the live bytes are at their minimum: `lowest` more than at
    /// first.
    Watching { left: isize, lowest: isize },
    #[default]
    Logging,
}

/// Detects the period of a workload from its allocations and frees, in constant time for each.
///
/// Each block needs a note, in which the learner stores a number, and a fingerprint that differs from other
/// live blocks': notes of blocks from before the anchor are stale.
///
/// ```
/// use orlop_plan::period::PeriodLearner;
///
/// let mut learner = PeriodLearner::new(4, 0);
/// let mut allocations = 0;
/// while !learner.is_period_from(7) {
///     for (class, bytes) in [(7, 4096), (3, 64)] {
///         let note = learner.log(class, bytes, 1).expect("the log has room");
///         learner.log_free(class, bytes, note, 1);
///         allocations += 1;
///     }
/// }
/// // Two allocations are watched, two are logged and two happen again.
/// assert_eq!(allocations, 6);
/// let classes: Vec<_> = learner.period(|_| 64).iter().map(|request| request.key).collect();
/// assert_eq!(classes, [7, 3]);
/// ```
#[derive(Debug, Default)]
pub struct PeriodLearner {
    events: Vec<LoggedEvent>,
    /// By number of the allocation, the fingerprint of its live block, or zero.
    live: Vec<u32>,
    /// The blocks and bytes that are live beyond those at the anchor. A negative number moves the anchor.
    blocks: isize,
    bytes: isize,
    trial: Option<Trial>,
    phase: LearnerPhase,
    max_requests: usize,
    min_events: usize,
}

impl PeriodLearner {
    /// Classes are smaller than this.
    pub const MAX_CLASSES: usize = 1 << 30;

    /// A period has at most this many requests.
    pub const MAX_REQUESTS: usize = 1 << 28;

    /// Creates an empty log, for periods of at most `max_requests` requests and at least `min_events` events:
    /// shorter ones were tried before and did not last.
    #[must_use]
    pub fn new(max_requests: usize, min_events: usize) -> Self {
        let max_requests = max_requests.min(Self::MAX_REQUESTS);
        Self {
            max_requests,
            phase: LearnerPhase::Watching { left: (max_requests / 2).cast_signed(), lowest: isize::MAX },
            min_events,
            ..Self::default()
        }
    }

    /// Returns `true` if a period is known that begins with an allocation of this class.
    #[must_use]
    pub fn is_period_from(&self, class: usize) -> bool {
        let first = self.events.iter().find_map(|event| event.class());
        self.is_complete() && first == Some(class)
    }

    fn is_complete(&self) -> bool {
        self.trial.is_some_and(|trial| trial.matched == trial.events)
    }

    /// Returns the number of events of the period.
    #[must_use]
    pub fn events(&self) -> usize {
        self.trial.map_or(0, |trial| trial.events)
    }

    /// Logs that a block of a class was allocated. Its fingerprint is not zero and differs from other live
    /// blocks'. Returns the note for the block, less than twice the maximum number of requests, or `None` if
    /// the log is full and there is no period.
    pub fn log(&mut self, class: usize, bytes: usize, fingerprint: u32) -> Option<usize> {
        if self.trial.is_none() && self.live.len() >= self.max_requests {
            return None;
        }
        self.blocks += 1;
        self.bytes += bytes.cast_signed();
        if let LearnerPhase::Watching { left, .. } = &mut self.phase {
            *left -= 1;
            // The minimum of live bytes is not reached again: there is no period.
            return (*left >= -self.max_requests.cast_signed()).then_some(0);
        }
        self.note(LoggedEvent::allocation(class));
        self.live.push(fingerprint);
        // Notes begin with one; none is zero.
        Some(self.live.len())
    }

    /// Logs that a block of a class was freed, with its note and its fingerprint.
    pub fn log_free(&mut self, class: usize, bytes: usize, note: usize, fingerprint: u32) {
        self.blocks -= 1;
        self.bytes -= bytes.cast_signed();
        if let LearnerPhase::Watching { left, lowest } = &mut self.phase {
            *lowest = self.bytes.min(*lowest);
            if *left <= 0 && self.bytes == *lowest {
                self.begin();
            }
            return;
        }
        if self.blocks < 0 || self.bytes < 0 {
            self.begin();
            return;
        }
        let number = note.wrapping_sub(1);
        let known = self.live.get_mut(number).filter(|live| **live == fingerprint);
        let number = known.map(|live| {
            *live = 0;
            number
        });
        let event = match (number, self.trial) {
            (Some(number), None) => LoggedEvent::free(number),
            (Some(number), Some(trial)) if number >= trial.allocations => {
                LoggedEvent::free(number - trial.allocations)
            }
            // A block from before the trial. The logged free was of a block from before the log.
            _ => LoggedEvent::foreign(class),
        };
        self.note(event);
        // A log beyond the maximum is not tried: on trial it becomes twice as long.
        let is_period = (self.blocks, self.bytes) == (0, 0) && self.events.len() >= self.min_events;
        if self.trial.is_none() && is_period && self.live.len() <= self.max_requests {
            self.trial = Some(Trial { events: self.events.len(), allocations: self.live.len(), matched: 0 });
        }
    }

    /// Adds an event to the log, or matches it with the log on trial.
    fn note(&mut self, event: LoggedEvent) {
        let Some(trial) = &mut self.trial else {
            self.events.push(event);
            return;
        };
        if self.events.get(trial.matched) == Some(&event) {
            trial.matched += 1;
            return;
        }
        // It was only a part of the period. The repeated events belong to it.
        let &mut Trial { allocations, matched, .. } = trial;
        self.trial = None;
        let moved = |event: LoggedEvent| {
            event.freed().map_or(event, |number| LoggedEvent::free(number + allocations))
        };
        self.events.extend_from_within(..matched);
        let from = self.events.len() - matched;
        for event in &mut self.events[from..] {
            *event = moved(*event);
        }
        self.events.push(moved(event));
    }

    /// Restarts the log here.
    fn begin(&mut self) {
        self.phase = LearnerPhase::Logging;
        self.events.clear();
        self.live.clear();
        (self.blocks, self.bytes, self.trial) = (0, 0, None);
    }

    /// Returns the requests of the period, in order. Lifetimes are counted in events; `bytes_of` gives the
    /// size of a class.
    #[must_use]
    pub fn period(&self, bytes_of: impl Fn(usize) -> u64) -> Vec<PeriodRequest> {
        let mut requests: Vec<PeriodRequest> = Vec::new();
        for (moment, event) in (0..).zip(&self.events[..self.events()]) {
            if let Some(class) = event.class() {
                let buffer = Buffer::unaligned(moment..u64::MAX, bytes_of(class));
                requests.push(PeriodRequest { key: class, buffer: Some(buffer) });
            } else if let Some(buffer) =
                event.freed().and_then(|number| requests.get_mut(number)?.buffer.as_mut())
            {
                buffer.end = moment;
            }
        }
        for request in &mut requests {
            request.buffer = request.buffer.filter(|buffer| buffer.end != u64::MAX);
        }
        requests
    }

    /// Returns the bytes of the log.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.events.capacity() * size_of::<LoggedEvent>() + self.live.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays events: an allocation of a class under a name, or its free.
    struct LearnerPlayer {
        learner: PeriodLearner,
        live: Vec<(char, usize, u32)>,
        next: u32,
        is_full: bool,
    }

    fn class_of(name: char) -> usize {
        name as usize - 'A' as usize
    }

    fn bytes_of(class: usize) -> usize {
        10_000 * (1 + class)
    }

    impl LearnerPlayer {
        fn new(max_requests: usize, min_events: usize) -> Self {
            let learner = PeriodLearner::new(max_requests, min_events);
            Self { learner, live: Vec::new(), next: 0, is_full: false }
        }

        /// An upper-case letter allocates, its lower-case letter frees the oldest of that name.
        fn play(&mut self, events: &str) {
            for event in events.chars() {
                let name = event.to_ascii_uppercase();
                let class = class_of(name);
                if self.is_full || event == name && self.learner.is_period_from(class) {
                    // An engine stops learning here, or makes a plan.
                    return;
                }
                if event == name {
                    self.next += 1;
                    match self.learner.log(class, bytes_of(class), self.next) {
                        Some(note) => self.live.push((name, note, self.next)),
                        None => self.is_full = true,
                    }
                } else {
                    let index = self.live.iter().position(|&(known, ..)| known == name);
                    let (_, note, fingerprint) = self.live.remove(index.expect("it is live"));
                    self.learner.log_free(class, bytes_of(class), note, fingerprint);
                }
            }
        }

        /// Returns the period if it begins with `first`: the names of its requests, or a star for those that
        /// cannot be planned.
        fn period(&self, first: char) -> Option<String> {
            let name = |request: &PeriodRequest| match request.buffer {
                Some(_) => ('A'..='Z').nth(request.key).unwrap_or('?'),
                None => '*',
            };
            let period = || self.learner.period(|_| 64).iter().map(name).collect();
            self.learner.is_period_from(class_of(first)).then(period)
        }
    }

    #[test]
    fn a_period_is_known_after_it_has_happened_twice() {
        let mut player = LearnerPlayer::new(4, 0);
        player.play("ABab");
        player.play("ABabABa");
        assert_eq!(player.period('A'), None);
        player.play("b");
        assert_eq!(player.period('A'), Some("AB".into()));
        assert_eq!(player.period('B'), None);
    }

    #[test]
    fn a_part_that_repeats_within_a_period_is_not_the_period() {
        let mut player = LearnerPlayer::new(20, 0);
        for _ in 0..8 {
            player.play("ABbBbBbCac");
        }
        assert_eq!(player.period('A'), Some("ABBBC".into()));
        // Also if the parts end with no more live bytes than at the anchor.
        let mut player = LearnerPlayer::new(40, 10);
        for _ in 0..12 {
            player.play("AaAaAaBb");
        }
        let learned = player.period('A').unwrap();
        assert!(learned.len().is_multiple_of(4) && learned.contains("AAAB"), "{learned}");
    }

    #[test]
    fn blocks_that_outlive_their_period_are_not_planned() {
        let mut player = LearnerPlayer::new(8, 0);
        player.play("Z");
        for _ in 0..8 {
            player.play("ABabZz");
        }
        assert_eq!(player.period('A'), Some("AB*".into()));
    }

    #[test]
    fn blocks_that_accumulate_are_no_period() {
        let mut player = LearnerPlayer::new(16, 0);
        for _ in 0..16 {
            player.play("ABab");
            player.play("C");
        }
        assert!(player.is_full && player.period('A').is_none());
    }

    #[test]
    fn lifetimes_are_from_allocation_to_free() {
        let mut player = LearnerPlayer::new(2, 0);
        player.play("ABba");
        player.play("ABbaABba");
        let period = player.learner.period(|_| 64);
        let lifetimes: Vec<_> = period.iter().filter_map(|request| request.buffer).collect();
        assert_eq!(lifetimes, [Buffer::unaligned(0..3, 64), Buffer::unaligned(1..2, 64)]);
    }

    #[test]
    fn a_log_that_nearly_repeats_stays_short() {
        // Each time the whole log repeats, and only the last two frees are swapped.
        let mut player = LearnerPlayer::new(16, 0);
        player.play(&"Aa".repeat(8)); // Watched, and not logged.
        let mut all = "ABab".to_owned();
        player.play(&all);
        while !player.is_full && all.len() < 1 << 12 {
            let (start, end) = all.split_at(all.len() - 2);
            let again: String = start.chars().chain(end.chars().rev()).collect();
            player.play(&again);
            assert!(player.learner.live.len() <= 2 * 16, "{}", player.learner.live.len());
            all += &again;
        }
    }
}
