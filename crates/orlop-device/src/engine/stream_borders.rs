//! Free neighbours of different streams, and how they become one chunk.
//!
//! Chunks of one stream merge as soon as they are free. Neighbours of different streams do not: a stream that
//! uses the merged chunk must wait for both, and most requests are served without a wait. But if they never
//! merge, memory that several streams share is cut into ever smaller chunks, and pages that two streams share
//! can never move. So such neighbours are listed, and merge before reserved bytes grow beyond the peak: the
//! request's stream waits for the others, on the device, once for all that it takes over.
//!
//! Of two neighbours one is in the list, and flagged. The list may also have chunks that are in use again, or
//! no longer exist; it is swept when it has doubled. So a merge visits only chunks that can merge.

use super::chunks::{ChunkState, Chunks, Index};
use super::pools::is_small;
use super::{Engine, PoolRequest};
use crate::backing::DeviceBacking;

/// The list is not swept while it is shorter.
const SWEPT_FROM: usize = 64;

/// Free chunks that have, or had, a free neighbour of another stream.
#[derive(Debug, Default)]
pub(crate) struct StreamBorders {
    list: Vec<Index>,
    /// The length of the list after the last sweep.
    swept: usize,
}

impl StreamBorders {
    /// Adds a chunk, unless it is in the list.
    #[cold]
    pub(crate) fn add(&mut self, chunks: &mut Chunks, index: Index) {
        if chunks[index].border {
            return;
        }
        if self.list.len() >= (2 * self.swept).max(SWEPT_FROM) {
            self.sweep(chunks);
        }
        chunks[index].border = true;
        self.list.push(index);
    }

    /// Removes chunks that are no borders any more, and duplicates.
    fn sweep(&mut self, chunks: &mut Chunks) {
        for &index in &self.list {
            chunks[index].border = false;
        }
        self.list.retain(|&index| {
            let keep = !chunks[index].border && is_border(chunks, index);
            chunks[index].border |= keep;
            keep
        });
        self.swept = self.list.len();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.list.capacity() * size_of::<Index>()
    }

    pub(crate) fn list(&self) -> &[Index] {
        &self.list
    }
}

/// Returns `true` if a chunk is free and has a free neighbour of another stream.
pub(crate) fn is_border(chunks: &Chunks, index: Index) -> bool {
    let chunk = &chunks[index];
    let is_other = |neighbour: Index| {
        let other = chunks.get(neighbour);
        other.is_some_and(|other| {
            other.state == ChunkState::Free && other.pool == chunk.pool && other.stream != chunk.stream
        })
    };
    chunk.state == ChunkState::Free && (is_other(chunk.previous) || is_other(chunk.next))
}

impl<B: DeviceBacking> Engine<B> {
    /// Merges free neighbours of different streams for a request, unless there is a capture, in whose streams
    /// no event may be recorded. Returns `true` if there were any.
    pub(crate) fn merge_streams_for(&mut self, request: &PoolRequest) -> bool {
        !self.is_capturing() && self.merge_streams(request.stream)
    }

    /// Gives one stream all free chunks that border on another stream's, so that they merge. Returns `true`
    /// if there were any.
    pub(crate) fn merge_streams(&mut self, stream: u32) -> bool {
        let mut waited = Vec::new();
        let mut merged = false;
        let mut kept = Vec::new();
        self.borders.swept = 0;
        for index in std::mem::take(&mut self.borders.list) {
            self.chunks[index].border = false;
            if !is_border(&self.chunks, index) {
                continue;
            }
            if self.private.has_users(self.pools[self.chunks[index].pool as usize].private) {
                kept.push(index);
                continue;
            }
            if self.merge_for(stream, index, &mut waited) {
                merged = true;
            } else {
                kept.push(index);
            }
        }
        for index in kept {
            self.borders.add(&mut self.chunks, index);
        }
        merged
    }

    /// Merges a free chunk with all free ones around it. The stream that gets it waits for the others, once
    /// for each. If it cannot, nothing changes.
    fn merge_for(&mut self, stream: u32, index: Index, waited: &mut Vec<u32>) -> bool {
        let pool = self.chunks[index].pool;
        let is_free = |chunks: &Chunks, index: Index| {
            chunks.get(index).is_some_and(|chunk| chunk.state == ChunkState::Free && chunk.pool == pool)
        };
        let mut first = index;
        while is_free(&self.chunks, self.chunks[first].previous) {
            first = self.chunks[first].previous;
        }
        let mut next = first;
        while is_free(&self.chunks, next) {
            let part = self.chunks[next];
            if part.stream != stream && !waited.contains(&part.stream) {
                if !self.wait_for(stream, part.stream) {
                    return false;
                }
                waited.push(part.stream);
            }
            next = part.next;
        }
        next = first;
        while is_free(&self.chunks, next) {
            let part = self.chunks[next];
            self.take(next);
            self.uncount_split(next);
            if next != first {
                self.chunks.unlink(next);
                self.chunks.remove(next);
                self.chunks[first].size += part.size;
            }
            next = part.next;
        }
        self.chunks[first].stream = stream;
        self.insert_free(first);
        true
    }

    /// Takes a free chunk out of the counts of splits: it is counted again when it is put back.
    pub(crate) fn uncount_split(&mut self, index: Index) {
        let chunk = self.chunks[index];
        if !chunk.is_whole() && !self.is_paged(&chunk) {
            let small = is_small(chunk.pool);
            self.stats.inactive_split.sub(small, 1);
            self.stats.inactive_split_bytes.sub(small, chunk.size as u64);
        }
    }

    /// Lists a part of a chunk that was cut, if the chunk was listed.
    pub(crate) fn inherit_border(&mut self, whole: Index, part: Index) {
        if self.chunks[whole].border {
            self.borders.add(&mut self.chunks, part);
        }
    }
}
