//! The bytes of a block in a store: a header with layout, key and checksum, then the content.

use super::BlockKey;
use crate::sip::SipState;

/// The first bytes of a frame; the last of them is the version of the format.
const MAGIC: [u8; 8] = *b"ORLOPKV\x02";

/// Magic, layout, hash, shard, group, index, tokens, content length, checksum.
pub(super) const HEADER: usize = 8 + 16 + 16 + 4 + 4 + 4 + 4 + 8 + 16;

/// Where the checksum begins. It covers the header before it, and the content.
const CHECKSUM: usize = HEADER - 16;

/// Why a block of a tier cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TierFault {
    /// The store does not have it, although it did.
    Missing,
    /// Bytes are missing or wrong: the checksum does not agree.
    Torn,
    /// It is another block, or of another version of the format.
    Stale,
    /// It is of another layout, or no block at all.
    Foreign,
    /// The store or a copy failed.
    Failed,
}

impl TierFault {
    /// All causes.
    pub const ALL: [Self; 5] = [Self::Missing, Self::Torn, Self::Stale, Self::Foreign, Self::Failed];
}

fn checksum(header: &[u8], content: &[u8]) -> u128 {
    let mut sip = SipState::default();
    let (words, rest) = content.as_chunks::<8>();
    let header = sip.bytes(header);
    sip = SipState::new(&header.to_le_bytes());
    words.iter().for_each(|word| sip.word(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    sip.finish(u64::from_le_bytes(last), content.len())
}

fn header(layout: u128, key: BlockKey, bytes: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER + bytes);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&layout.to_le_bytes());
    header.extend_from_slice(&key.hash.to_le_bytes());
    for field in [key.shard, key.group, key.index, key.tokens] {
        header.extend_from_slice(&field.to_le_bytes());
    }
    header.extend_from_slice(&(bytes as u64).to_le_bytes());
    header
}

/// Returns the frame of a block.
pub(super) fn encode(layout: u128, key: BlockKey, content: &[u8]) -> Vec<u8> {
    let mut frame = header(layout, key, content.len());
    let checksum = checksum(&frame, content);
    frame.extend_from_slice(&checksum.to_le_bytes());
    frame.extend_from_slice(content);
    frame
}

/// Returns the content of a frame, which must be that of this key and length.
pub(super) fn decode(layout: u128, key: BlockKey, bytes: usize, frame: &[u8]) -> Result<&[u8], TierFault> {
    let Some((magic, _)) = frame.split_first_chunk::<8>() else { return Err(TierFault::Torn) };
    if magic[..7] != MAGIC[..7] {
        return Err(TierFault::Foreign);
    }
    if magic[7] != MAGIC[7] {
        return Err(TierFault::Stale);
    }
    let Some((found, content)) = frame.split_at_checked(HEADER) else { return Err(TierFault::Torn) };
    let (found, sum) = found.split_at(CHECKSUM);
    if checksum(found, content).to_le_bytes() != sum {
        return Err(TierFault::Torn);
    }
    let expected = header(layout, key, bytes);
    if found[8..24] != expected[8..24] {
        return Err(TierFault::Foreign);
    }
    if found != expected || content.len() != bytes { Err(TierFault::Stale) } else { Ok(content) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: BlockKey = BlockKey { hash: 5, shard: 0, group: 1, index: 2, tokens: 16 };

    #[test]
    fn only_the_frame_that_was_written_is_read() {
        let content: Vec<u8> = (0..100).collect();
        let frame = encode(7, KEY, &content);
        assert_eq!(decode(7, KEY, 100, &frame), Ok(&content[..]));
        for len in 0..frame.len() {
            assert_eq!(decode(7, KEY, 100, &frame[..len]), Err(TierFault::Torn), "{len} bytes");
        }
        for bit in 0..frame.len() * 8 {
            let mut torn = frame.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(7, KEY, 100, &torn).is_err(), "bit {bit}");
        }
        assert_eq!(decode(8, KEY, 100, &frame), Err(TierFault::Foreign));
        assert_eq!(decode(7, BlockKey { index: 3, ..KEY }, 100, &frame), Err(TierFault::Stale));
        assert_eq!(decode(7, BlockKey { shard: 1, ..KEY }, 100, &frame), Err(TierFault::Stale));
        assert_eq!(decode(7, KEY, 99, &frame), Err(TierFault::Stale));
        assert_eq!(decode(7, KEY, 100, b"a file of another program"), Err(TierFault::Foreign));
        let mut older = frame.clone();
        older[7] = 0;
        assert_eq!(decode(7, KEY, 100, &older), Err(TierFault::Stale));
    }
}
