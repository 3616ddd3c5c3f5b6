//! Learning the round that a thread repeats: a log of its large allocations and returns since some moment, the anchor.
//!
//! The anchor is where the thread had least: whenever it has less than there, the log begins anew. So that it is not
//! where one layer of a network ends and the next begins, the learner first only watches for a while how much the thread
//! has. When it has as much as at the anchor again, that may be the end of a round, and the log goes on trial: if all of
//! it happens once more, in the same order and with the same classes, it is learned. If not, it was only a part, and what
//! was seen meanwhile is added to it.
//!
//! Nothing here decides about memory: whoever follows what was learned checks each step (see [`super::plan`]).

#![expect(clippy::cast_possible_truncation, reason = "classes and numbers of allocations are small: `NOTES`")]

use super::classes::size_of_class;
use super::token::NOTES;
use crate::bfc::place::Life;

/// An allocation of a class; or the return of the allocation with this number; or of something from before the anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event(u32);

const ALLOCATION: u32 = 1 << 31;
const STRANGER: u32 = 1 << 30;

impl Event {
    fn allocation(class: usize) -> Self {
        Self(class as u32 | ALLOCATION)
    }

    fn stranger(class: usize) -> Self {
        Self(class as u32 | STRANGER)
    }

    fn class(self) -> Option<usize> {
        (self.0 & ALLOCATION != 0).then_some((self.0 & !ALLOCATION) as usize)
    }

    fn returned(self) -> Option<usize> {
        (self.0 & (ALLOCATION | STRANGER) == 0).then_some(self.0 as usize)
    }
}

/// The log is on trial: its first so many events and allocations, of which so many happened again.
#[derive(Debug, Clone, Copy)]
struct Trial {
    events: usize,
    allocations: usize,
    matched: usize,
}

/// One allocation of a round that was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Learned {
    pub(super) class: usize,
    /// `None` if it outlives the round.
    pub(super) life: Option<Life>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// For so many allocations more, and then until the thread has as little as after the return after which it had
    /// least: so many bytes more than at first.
    Watching { left: isize, lowest: isize },
    #[default]
    Logging,
}

/// What happened since the anchor.
#[derive(Debug, Default)]
pub(super) struct Learner {
    events: Vec<Event>,
    /// By number of the allocation: a fingerprint of its record while it lives, else zero.
    holders: Vec<u32>,
    /// What the thread has more than at the anchor. Less than nothing moves the anchor.
    blocks: isize,
    bytes: isize,
    trial: Option<Trial>,
    phase: Phase,
    /// The log may hold so many allocations.
    most: usize,
    /// Rounds of fewer events are not tried: they were, and did not last.
    least: usize,
}

impl Learner {
    /// With an empty log, for rounds of at most so many allocations and at least so many events.
    pub(super) fn new(most: usize, least: usize) -> Self {
        Self {
            most: most.min(NOTES / 2 - 1),
            phase: Phase::Watching { left: (most / 2).cast_signed(), lowest: isize::MAX },
            least,
            ..Self::default()
        }
    }

    /// Whether a round has been learned, which begins with a block of this class.
    pub(super) fn has_learned(&self, class: usize) -> bool {
        let first = self.events.iter().find_map(|event| event.class());
        self.is_complete() && first == Some(class)
    }

    fn is_complete(&self) -> bool {
        self.trial.is_some_and(|trial| trial.matched == trial.events)
    }

    /// How many events the round has.
    pub(super) fn length(&self) -> usize {
        self.trial.map_or(0, |trial| trial.events)
    }

    /// A block of a class was handed out; what tells it from others that live is in `fingerprint`. Gives the note for the
    /// block, or `None` if the log is full without a round.
    pub(super) fn allocated(&mut self, class: usize, fingerprint: u32) -> Option<usize> {
        if self.trial.is_none() && self.holders.len() >= self.most {
            return None;
        }
        self.blocks += 1;
        self.bytes += size_of_class(class).cast_signed();
        if let Phase::Watching { left, .. } = &mut self.phase {
            *left -= 1;
            // It never has as little again: not a round.
            return (*left >= -self.most.cast_signed()).then_some(0);
        }
        self.note(Event::allocation(class));
        self.holders.push(fingerprint);
        // Notes begin with one; none is zero.
        Some(self.holders.len())
    }

    /// A block of a class came back.
    pub(super) fn returned(&mut self, class: usize, note: usize, fingerprint: u32) {
        self.blocks -= 1;
        self.bytes -= size_of_class(class).cast_signed();
        if let Phase::Watching { left, lowest } = &mut self.phase {
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
        let known = self.holders.get_mut(number).filter(|holder| **holder == fingerprint);
        let number = known.map(|holder| {
            *holder = 0;
            number
        });
        let event = match (number, self.trial) {
            (Some(number), None) => Event(number as u32),
            (Some(number), Some(trial)) if number >= trial.allocations => {
                Event((number - trial.allocations) as u32)
            }
            // Of the round before the trial's: there it was of the round before.
            _ => Event::stranger(class),
        };
        self.note(event);
        // What is longer than it may be is not tried: a log on trial becomes twice as long.
        let is_round = (self.blocks, self.bytes) == (0, 0) && self.events.len() >= self.least;
        if self.trial.is_none() && is_round && self.holders.len() <= self.most {
            self.trial =
                Some(Trial { events: self.events.len(), allocations: self.holders.len(), matched: 0 });
        }
    }

    /// Adds an event to the log, or finds it in the part on trial.
    fn note(&mut self, event: Event) {
        let Some(trial) = &mut self.trial else {
            self.events.push(event);
            return;
        };
        if self.events.get(trial.matched) == Some(&event) {
            trial.matched += 1;
            return;
        }
        // It was only a part of the round. What happened again belongs to it.
        let &mut Trial { allocations, matched, .. } = trial;
        self.trial = None;
        let moved =
            |event: Event| event.returned().map_or(event, |number| Event((number + allocations) as u32));
        self.events.extend_from_within(..matched);
        let from = self.events.len() - matched;
        for event in &mut self.events[from..] {
            *event = moved(*event);
        }
        self.events.push(moved(event));
    }

    /// Begins anew here.
    fn begin(&mut self) {
        self.phase = Phase::Logging;
        self.events.clear();
        self.holders.clear();
        (self.blocks, self.bytes, self.trial) = (0, 0, None);
    }

    /// The round: its allocations in order.
    pub(super) fn round(&self) -> Vec<Learned> {
        let mut round: Vec<Learned> = Vec::new();
        for (moment, event) in (0..).zip(&self.events[..self.length()]) {
            if let Some(class) = event.class() {
                round.push(Learned {
                    class,
                    life: Some(Life { from: moment, until: u32::MAX, size: size_of_class(class) }),
                });
            } else if let Some(life) =
                event.returned().and_then(|number| round.get_mut(number)?.life.as_mut())
            {
                life.until = moment;
            }
        }
        for learned in &mut round {
            learned.life = learned.life.filter(|life| life.until != u32::MAX);
        }
        round
    }

    /// Bytes of the log.
    pub(super) fn bytes(&self) -> usize {
        self.events.capacity() * size_of::<Event>() + self.holders.capacity() * size_of::<u32>()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::classes::class_for;
    use super::*;

    /// Plays events: an allocation of a class under a name, or its return.
    struct Player {
        learner: Learner,
        live: Vec<(char, usize, usize)>,
        next: u32,
        full: bool,
    }

    impl Player {
        fn new(most: usize, least: usize) -> Self {
            Self { learner: Learner::new(most, least), live: Vec::new(), next: 0, full: false }
        }

        /// An upper-case letter allocates, its lower-case letter returns the oldest of that name.
        fn play(&mut self, events: &str) {
            for event in events.chars() {
                let name = event.to_ascii_uppercase();
                let class = class_for(10_000 * (1 + name as usize - 'A' as usize));
                if self.full || event == name && self.learner.has_learned(class) {
                    // The engine learns no more, or makes a plan now.
                    return;
                }
                if event == name {
                    self.next += 1;
                    match self.learner.allocated(class, self.next) {
                        Some(note) => self.live.push((name, note, self.next as usize)),
                        None => self.full = true,
                    }
                } else {
                    let place = self.live.iter().position(|&(known, ..)| known == name);
                    let (_, note, fingerprint) = self.live.remove(place.expect("it lives"));
                    self.learner.returned(class, note, fingerprint as u32);
                }
            }
        }

        fn learned(&self, first: char) -> Option<String> {
            let class = |name: char| class_for(10_000 * (1 + name as usize - 'A' as usize));
            let name =
                |learned: &Learned| ('A'..='Z').find(|&name| class(name) == learned.class).unwrap_or('?');
            let round = || {
                self.learner.round().iter().map(|l| if l.life.is_some() { name(l) } else { '*' }).collect()
            };
            self.learner.has_learned(class(first)).then(round)
        }
    }

    #[test]
    fn a_round_is_learned_when_it_has_happened_twice() {
        let mut player = Player::new(4, 0);
        player.play("ABab");
        player.play("ABabABa");
        assert_eq!(player.learned('A'), None);
        player.play("b");
        assert_eq!(player.learned('A'), Some("AB".into()));
        assert_eq!(player.learned('B'), None);
    }

    #[test]
    fn the_part_that_repeats_within_a_round_is_not_the_round() {
        let mut player = Player::new(20, 0);
        for _ in 0..8 {
            player.play("ABbBbBbCac");
        }
        assert_eq!(player.learned('A'), Some("ABBBC".into()));
        // Also where the parts end with nothing more than at the anchor.
        let mut player = Player::new(40, 10);
        for _ in 0..12 {
            player.play("AaAaAaBb");
        }
        let learned = player.learned('A').unwrap();
        assert!(learned.len().is_multiple_of(4) && learned.contains("AAAB"), "{learned}");
    }

    #[test]
    fn blocks_that_outlive_their_round_come_from_elsewhere() {
        let mut player = Player::new(8, 0);
        player.play("Z");
        for _ in 0..8 {
            player.play("ABabZz");
        }
        assert_eq!(player.learned('A'), Some("AB*".into()));
    }

    #[test]
    fn what_grows_for_ever_is_no_round() {
        let mut player = Player::new(16, 0);
        for _ in 0..16 {
            player.play("ABab");
            player.play("C");
        }
        assert!(player.full && player.learned('A').is_none());
    }

    #[test]
    fn lives_are_from_allocation_to_return() {
        let mut player = Player::new(2, 0);
        player.play("ABba");
        player.play("ABbaABba");
        let lives: Vec<_> =
            player.learner.round().iter().map(|l| l.life.map(|l| (l.from, l.until)).unwrap()).collect();
        assert_eq!(lives, [(0, 3), (1, 2)]);
    }

    #[test]
    fn a_log_that_is_nearly_a_round_again_and_again_stays_short() {
        // Each time all that was comes again, and only the last two returns are the other way round.
        let mut player = Player::new(16, 0);
        player.play(&"Aa".repeat(8)); // Watched, and not logged.
        let mut all = "ABab".to_owned();
        player.play(&all);
        while !player.full && all.len() < 1 << 12 {
            let (start, end) = all.split_at(all.len() - 2);
            let again: String = start.chars().chain(end.chars().rev()).collect();
            player.play(&again);
            assert!(player.learner.holders.len() <= 2 * 16, "{}", player.learner.holders.len());
            all += &again;
        }
    }
}
