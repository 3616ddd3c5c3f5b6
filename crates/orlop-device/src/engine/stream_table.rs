//! The numbers of streams: small ones, by which pools and queues are indexed.
//!
//! A [`StreamId`] is never reused, but its number is, after the stream was retired: so the tables have the
//! size of the streams that exist, not of all that ever existed. In between, while chunks or events still
//! have its number, it stands for the default stream, which waited for all work of the retired one.

use crate::StreamIdSet;
use orlop_core::StreamId;

/// With fewer streams, the device is not asked which of them have ended.
const MIN_CROWD: usize = 64;

/// What a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberState {
    /// A stream whose owner says when it ends.
    Used,
    /// A stream that may end at any time.
    Foreign,
    /// A stream that has ended: the default stream, which waited for it.
    Retired,
    /// Nothing: the next new stream gets the number.
    Vacant,
}

/// The streams of an engine.
#[derive(Debug)]
pub(crate) struct StreamTable {
    /// By number. Of a vacant number, the stream that it was.
    ids: Vec<StreamId>,
    states: Vec<NumberState>,
    /// The number that was asked for last: it is in use, if there are any.
    last: u32,
    vacant: Vec<u32>,
    /// The numbers of retired streams.
    pub(crate) retired: Vec<u32>,
    /// The ids of streams that their owners retired. Blocks that were live then may still name them.
    gone: StreamIdSet,
    /// The number of a stream of a request that the device was not asked about.
    new: Option<u32>,
    /// Whether a stream was retired or is foreign, is new, or there were many.
    pub(crate) is_uncommon: bool,
    /// Whether there are many streams, some of which may have ended.
    pub(crate) is_crowded: bool,
    /// The number of streams from which on it is crowded.
    crowd: usize,
    default: StreamId,
}

impl StreamTable {
    /// Creates a table for a device with this default stream.
    pub(crate) fn new(default: StreamId) -> Self {
        Self {
            ids: Vec::new(),
            states: Vec::new(),
            last: 0,
            vacant: Vec::new(),
            retired: Vec::new(),
            gone: StreamIdSet::default(),
            new: None,
            is_uncommon: false,
            is_crowded: false,
            crowd: MIN_CROWD,
            default,
        }
    }

    /// Returns the number of a stream. Programs have few, and mostly use the same again.
    #[inline]
    pub(crate) fn number(&mut self, stream: StreamId) -> u32 {
        if self.ids.get(self.last as usize) == Some(&stream) { self.last } else { self.other(stream) }
    }

    fn other(&mut self, stream: StreamId) -> u32 {
        self.last = match self.known(stream) {
            Some(number) => number,
            None => {
                let number = self.add(stream);
                (self.new, self.is_uncommon) = (Some(number), true);
                number
            }
        };
        self.last
    }

    /// Returns the stream of a request if it is new, once.
    pub(crate) fn take_new(&mut self) -> Option<StreamId> {
        let new = self.new.take()?;
        let is_over = |state: &NumberState| matches!(state, NumberState::Foreign | NumberState::Retired);
        self.is_uncommon = self.is_crowded || self.gone.ranges() > 0 || self.states.iter().any(is_over);
        Some(self.id(new))
    }

    /// Forgets a new stream, which the device does not know.
    pub(crate) fn forget_new(&mut self, stream: StreamId) {
        if let Some(number) = self.known(stream) {
            self.vacate(number);
            self.last = self.default_number();
        }
    }

    /// Returns the number of a stream that has one.
    pub(crate) fn known(&self, stream: StreamId) -> Option<u32> {
        let is_used = |state: &NumberState| matches!(state, NumberState::Used | NumberState::Foreign);
        let mut known = (0..).zip(self.ids.iter().zip(&self.states));
        known.find(|&(_, (&id, state))| id == stream && is_used(state)).map(|(number, _)| number)
    }

    /// Returns the number of a stream that used a block: for a stream that its owner retired, that of the
    /// default stream, which has waited for it.
    pub(crate) fn number_of_use(&mut self, stream: StreamId) -> u32 {
        match self.known(stream) {
            None if self.gone.contains(stream) => self.default_number(),
            Some(number) => number,
            None => self.add(stream),
        }
    }

    /// Notes that the owner of a stream retired it.
    pub(crate) fn note_gone(&mut self, stream: StreamId) {
        self.gone.insert(stream);
    }

    fn add(&mut self, stream: StreamId) -> u32 {
        // A stream that has requests again was not destroyed.
        self.gone.remove(stream);
        if self.existing().count() >= self.crowd {
            (self.is_crowded, self.is_uncommon) = (true, true);
        }
        if let Some(number) = self.vacant.pop() {
            self.ids[number as usize] = stream;
            self.states[number as usize] = NumberState::Used;
            return number;
        }
        self.ids.push(stream);
        self.states.push(NumberState::Used);
        // The ids of 2^32 streams would fill the memory first.
        u32::try_from(self.ids.len() - 1).unwrap_or(0)
    }

    /// Returns the number of the default stream.
    pub(crate) fn default_number(&mut self) -> u32 {
        let default = self.default;
        self.known(default).unwrap_or_else(|| self.add(default))
    }

    /// Returns the number of a stream that has not ended and is not foreign: the first one's, or that of the
    /// default stream.
    pub(crate) fn existing_number(&mut self) -> u32 {
        let has_first = self.states.first().is_none_or(|&first| first == NumberState::Used);
        if has_first { 0 } else { self.default_number() }
    }

    /// Returns the stream that a number stands for.
    #[inline]
    pub(crate) fn id(&self, number: u32) -> StreamId {
        match self.states.get(number as usize) {
            Some(NumberState::Used | NumberState::Foreign) => self.ids[number as usize],
            _ => self.default,
        }
    }

    /// Returns the streams that can be waited for.
    pub(crate) fn existing(&self) -> impl Iterator<Item = StreamId> + '_ {
        let existing = self.ids.iter().zip(&self.states);
        existing.filter(|&(_, &state)| state == NumberState::Used).map(|(&id, _)| id)
    }

    /// Notes that the device was asked which streams have ended: next when there are twice as many.
    pub(crate) fn thin_out(&mut self) {
        self.is_crowded = false;
        self.crowd = self.existing().count().saturating_mul(2).max(MIN_CROWD);
    }

    /// Notes that a stream is foreign.
    pub(crate) fn set_foreign(&mut self, number: u32) {
        if self.ids[number as usize] != self.default {
            self.states[number as usize] = NumberState::Foreign;
            self.is_uncommon = true;
        }
    }

    /// Returns `true` if a stream is foreign.
    pub(crate) fn has_foreign(&self) -> bool {
        self.states.contains(&NumberState::Foreign)
    }

    #[inline]
    pub(crate) fn is_foreign(&self, number: u32) -> bool {
        self.states.get(number as usize) == Some(&NumberState::Foreign)
    }

    /// Notes that a stream has ended. `default` is the number that stands for it.
    pub(crate) fn retire(&mut self, number: u32, default: u32) {
        self.states[number as usize] = NumberState::Retired;
        self.is_uncommon = true;
        self.retired.push(number);
        self.last = default;
    }

    /// Returns `true` for the number of a retired stream.
    pub(crate) fn is_retired(&self, number: u32) -> bool {
        self.states.get(number as usize) == Some(&NumberState::Retired)
    }

    /// Gives the number of a retired stream to the next new one.
    pub(crate) fn vacate(&mut self, number: u32) {
        self.states[number as usize] = NumberState::Vacant;
        self.vacant.push(number);
    }

    /// Returns `true` for a number without a stream.
    pub(crate) fn is_vacant(&self, number: u32) -> bool {
        self.states.get(number as usize).is_none_or(|&state| state == NumberState::Vacant)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.ids.capacity() * (size_of::<StreamId>() + size_of::<NumberState>())
            + (self.vacant.capacity() + self.retired.capacity()) * size_of::<u32>()
            + self.gone.ranges() * 2 * size_of::<StreamId>()
    }
}
