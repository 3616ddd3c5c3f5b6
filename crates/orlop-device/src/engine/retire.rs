//! Streams that end: retired ones, and foreign ones.
//!
//! Nothing can be recorded in a stream that was destroyed. A stream is *retired* before it is: the default
//! stream waits for all its work, on the device, gets its free memory, and stands for it wherever its number
//! is still noted. From time to time these notes are renewed in one pass over all chunks, and the numbers are
//! given to new streams. Where the device knows the end of its streams, a table of many asks it
//! ([`DeviceBacking::has_ended`]), and those whose work is complete are retired without a wait.
//!
//! The owner of a *foreign* stream does not retire it, and may destroy it as soon as its blocks are freed. So
//! its events are recorded when a block is freed, and never later; and no memory stays with it, since that
//! would have to be waited for later. Its requests are served from the memory of the default stream, which
//! it waits for.

use super::chunks::{ChunkState, Index};
use super::ladder::{CacheMiss, LoggedRequest};
use super::{DeviceBlock, DeviceRequest, Engine};
use crate::DeviceError;
use crate::backing::DeviceBacking;
use orlop_core::StreamId;

/// The numbers of fewer retired streams are not collected.
const COLLECTED_FROM: usize = 64;

impl<B: DeviceBacking> Engine<B> {
    /// Ends the use of a stream, which its owner destroys afterwards. Its free memory joins that of the
    /// default stream, which waits for the stream on the device. Blocks that were allocated for it, or that
    /// it uses, stay valid. The default stream is never retired.
    ///
    /// # Errors
    ///
    /// [`DeviceError::DuringCapture`] during a capture, in which no stream may be waited for; and
    /// [`DeviceError::Backing`] if the device failed. The stream must then not be destroyed: call this again.
    pub fn retire_stream(&mut self, stream: StreamId) -> Result<(), DeviceError> {
        let default = self.streams.default_number();
        match self.streams.known(stream) {
            Some(number) if number == default => return Ok(()),
            Some(number) => {
                self.hand_over(number, default)?;
                self.retire_number(number, default);
                self.streams.note_gone(stream);
            }
            None => {}
        }
        self.reserve_classes.remove(&stream);
        Ok(())
    }

    /// [`retire_stream`](Self::retire_stream), of a stream whose uses of live blocks may not be recorded yet:
    /// it is waited for even if it had no requests.
    pub(crate) fn retire_user(&mut self, stream: StreamId) -> Result<(), DeviceError> {
        if self.stats.allocation.all.current > 0 {
            self.streams.number_of_use(stream);
        }
        self.retire_stream(stream)
    }

    /// Retires the streams of which the device says that they have ended, but for the stream of a request.
    /// Their work is complete: nothing waits for them.
    #[cold]
    pub(crate) fn retire_ended(&mut self, requested: StreamId) {
        let default = self.streams.default_number();
        let ended = |&stream: &StreamId| stream != requested && self.backing.has_ended(stream);
        let ended: Vec<StreamId> = self.streams.existing().filter(ended).collect();
        for stream in ended {
            if let Some(number) = self.streams.known(stream).filter(|&number| number != default) {
                self.take_over(number, default);
                self.retire_number(number, default);
            }
        }
        self.reserve_classes.retain(|&stream, _| stream == requested || !self.backing.has_ended(stream));
        self.streams.thin_out();
    }

    fn retire_number(&mut self, number: u32, default: u32) {
        self.streams.retire(number, default);
        if self.streams.retired.len() >= self.pending.stuck.saturating_mul(2).max(COLLECTED_FROM) {
            self.collect_numbers(default);
        }
    }

    /// Makes the free memory of a stream that of another, which waits for it on the device, or else the host
    /// does.
    fn hand_over(&mut self, from: u32, to: u32) -> Result<(), DeviceError> {
        if self.is_capturing() {
            return Err(DeviceError::DuringCapture);
        }
        if self.try_wait_for(to, from).is_err() {
            self.finish_here(from)?;
        }
        self.take_over(from, to);
        Ok(())
    }

    /// Makes the free memory of a stream that of another, which has waited for it.
    fn take_over(&mut self, from: u32, to: u32) {
        self.index_last_freed();
        if self.watched_stream == from {
            self.free_by_address.clear();
            self.period = self.period.cleared();
            self.watched_stream = to;
        }
        self.move_memory(from, to);
    }

    /// Waits for a stream on the host, with the engine locked.
    fn finish_here(&mut self, stream: u32) -> Result<(), DeviceError> {
        let finished = self.backing.finish(self.streams.id(stream));
        let _noted = self.noted(finished);
        Ok(finished?)
    }

    /// Notes that a stream is foreign: its owner keeps it until all blocks that were allocated for it or used
    /// by it are freed, and until the end of a capture in which they were, but does not retire it. Its events
    /// are recorded when such a block is freed, and never later.
    ///
    /// Each request on it costs a wait for the default stream on the device, and each free an event: where
    /// the end of a stream is known, [`retire_stream`](Self::retire_stream) is cheaper. During a capture its
    /// requests fail with [`DeviceError::DuringCapture`].
    ///
    /// If the event cannot be recorded, it is recorded later. So after a failed call
    /// ([`last_failure`](Self::last_failure)) the owner keeps the stream until the engine is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`retire_stream`](Self::retire_stream), if the stream was used before.
    pub fn adopt_foreign_stream(&mut self, stream: StreamId) -> Result<(), DeviceError> {
        let default = self.streams.default_number();
        if let Some(known) = self.streams.known(stream).filter(|&number| number != default) {
            self.hand_over(known, default)?;
            self.disown_pending(known, default);
        }
        let number = self.streams.number_of_use(stream);
        self.streams.set_foreign(number);
        Ok(())
    }

    /// Allocates a block for a foreign stream, from the cached memory of the default stream.
    #[cold]
    pub(crate) fn allocate_foreign(
        &mut self,
        request: &DeviceRequest,
        foreign: u32,
        logged: Option<LoggedRequest>,
    ) -> Result<DeviceBlock, CacheMiss> {
        let default = self.streams.default_number();
        match self.allocate_on(request, default, logged) {
            Ok(block) => self.lend(block, foreign).map_err(CacheMiss::Refused),
            Err(CacheMiss::Request { request, requested, logged, .. }) => {
                Err(CacheMiss::Request { request, requested, logged, foreign })
            }
            Err(refused) => Err(refused),
        }
    }

    /// Makes a block of the default stream one of a foreign stream, which waits for the default stream.
    pub(crate) fn lend(&mut self, block: DeviceBlock, foreign: u32) -> Result<DeviceBlock, DeviceError> {
        let default = self.streams.default_number();
        match self.try_wait_for(foreign, default) {
            Ok(()) => {
                self.chunks[block.0].stream = foreign;
                Ok(block)
            }
            Err(error) => {
                self.free(block)?;
                Err(error)
            }
        }
    }

    /// Makes the memory of a block the default stream's, before it is freed, if the block's stream was
    /// retired or is foreign. A foreign one then counts as another stream that uses it.
    #[cold]
    pub(crate) fn disown(&mut self, index: Index) {
        let stream = self.chunks[index].stream;
        if self.streams.is_foreign(stream) {
            self.add_use(index, stream);
        } else if !self.streams.is_retired(stream) {
            return;
        }
        self.chunks[index].stream = self.streams.default_number();
    }

    /// Lets another stream, which waited for this one, stand for it in blocks that were freed and still wait
    /// for events: those that are recorded, and those that will be.
    fn disown_pending(&mut self, stream: u32, other: u32) {
        let pending = self.chunks.iter().filter(|(_, chunk)| chunk.state == ChunkState::Pending);
        let pending: Vec<Index> = pending.map(|(index, _)| index).collect();
        for index in pending {
            if self.chunks[index].stream == stream {
                self.chunks[index].stream = other;
            }
            if self.remove_use(index, stream) {
                self.add_use(index, other);
            }
        }
    }

    /// Makes the free memory of a stream that of another, which waited for it.
    fn move_memory(&mut self, from: u32, to: u32) {
        self.regions.change_stream(from, to);
        for pool in 0..self.pools.len() {
            let Some(of) = self.pools[pool].stream(from) else { continue };
            let free = if of.free.is_empty() { Vec::new() } else { of.free.all(&self.chunks) };
            let unmapped = of.unmapped.iter();
            let unmapped: Vec<Index> = unmapped.map(|place| place.chunk).collect();
            // No two of them are neighbours: those had merged.
            for index in free {
                self.take(index);
                self.uncount_split(index);
                self.chunks[index].stream = to;
                self.insert_free(index);
            }
            for index in unmapped {
                self.take_unmapped(index);
                self.chunks[index].stream = to;
                self.merge_around(index, ChunkState::Unmapped);
                self.put_unmapped(index);
            }
        }
    }

    /// Replaces the numbers of retired streams in all chunks, and gives them to new streams.
    fn collect_numbers(&mut self, default: u32) {
        self.retry_events();
        let mut noted = Vec::new();
        let in_use: Vec<Index> = self
            .chunks
            .iter()
            .filter(|(_, chunk)| matches!(chunk.state, ChunkState::Live | ChunkState::Pending))
            .map(|(index, _)| index)
            .collect();
        for index in in_use {
            if self.streams.is_retired(self.chunks[index].stream) {
                self.chunks[index].stream = default;
            }
            let users = self.users(index).filter(|&user| self.streams.is_retired(user));
            let users: Vec<u32> = users.collect();
            if self.chunks[index].state == ChunkState::Pending {
                // It waits for events that could not be recorded.
                noted.extend(users);
                continue;
            }
            for user in users {
                self.remove_use(index, user);
                if self.chunks[index].stream != default {
                    self.add_use(index, default);
                }
            }
        }
        let retired = std::mem::take(&mut self.streams.retired);
        for &number in &retired {
            self.move_memory(number, default);
            if noted.contains(&number) || !self.pending.drop_queue(number) {
                self.streams.retired.push(number);
            } else {
                self.streams.vacate(number);
            }
        }
        self.pending.stuck = self.streams.retired.len();
    }
}
