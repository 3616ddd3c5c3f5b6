//! Memory from one stream to another. A block that was freed in one stream may still be in use there; another stream may
//! have it if it waits, on the device, until the first has come so far. The host waits for nothing.
//!
//! PyTorch's allocator does not do this: memory stays with the stream that it was first asked for.

use super::backing::DeviceBacking;
use super::chunks::{Index, State};
use super::engine::{Engine, Search};
use std::collections::BTreeSet;

impl<B: DeviceBacking> Engine<B> {
    /// The best fitting free chunk of another stream, out of its index; the stream that asked waits for that one.
    pub(super) fn steal(&mut self, search: Search) -> Option<Index> {
        let pool = &self.pools[search.pool as usize];
        let others = pool.streams().filter(|&(stream, of)| stream != search.stream && !of.free.is_empty());
        let found = others.filter_map(|(_, of)| Some(of.free.find(&self.chunks, search.size)?.0));
        let found = found.filter(|&chunk| self.policy.serves(self.chunks[chunk].size, search.size));
        let chunk = found.min_by_key(|&chunk| (self.chunks[chunk].size, self.chunks[chunk].address))?;
        self.take(chunk);
        self.wait_for(search.stream, self.chunks[chunk].stream);
        self.stats.num_stream_steals += 1;
        Some(chunk)
    }

    fn wait_for(&mut self, stream: u32, other: u32) {
        let event = self.backing.record(self.streams.id(other));
        self.backing.wait(self.streams.id(stream), event);
    }

    /// Gives one stream all free memory, so that neighbours of different streams merge.
    pub(super) fn gather(&mut self, stream: u32) {
        let free =
            self.chunks.iter().filter(|(_, chunk)| chunk.state == State::Free && chunk.stream != stream);
        let foreign: Vec<(Index, u32)> = free
            .filter(|(_, chunk)| !self.private.has_users(self.pools[chunk.pool as usize].private))
            .map(|(index, chunk)| (index, chunk.stream))
            .collect();
        let others: BTreeSet<u32> = foreign.iter().map(|&(_, other)| other).collect();
        for other in others {
            self.wait_for(stream, other);
            self.stats.num_stream_steals += 1;
        }
        for &(index, _) in &foreign {
            self.take(index);
            self.chunks[index].stream = stream;
            self.put(index);
        }
        for (index, _) in foreign {
            // It may be merged into one before it by now; and behind a neighbour may be the next one.
            while self.chunks[index].state == State::Free && self.has_free_neighbour(index) {
                self.take(index);
                self.uncount_split(index);
                self.insert_free(index);
            }
        }
    }

    fn has_free_neighbour(&self, index: Index) -> bool {
        let chunk = &self.chunks[index];
        let merges = |neighbour: Index| {
            let other = self.chunks.get(neighbour);
            other.is_some_and(|other| {
                other.state == State::Free && other.stream == chunk.stream && other.pool == chunk.pool
            })
        };
        merges(chunk.previous) || merges(chunk.next)
    }

    /// A free piece is about to be put in anew, and counted then.
    fn uncount_split(&mut self, index: Index) {
        let chunk = self.chunks[index];
        if !chunk.is_whole() && !self.is_paged(&chunk) {
            let small = self.pools[chunk.pool as usize].small;
            self.stats.inactive_split.sub(small, 1);
            self.stats.inactive_split_bytes.sub(small, chunk.size as u64);
        }
    }
}
