//! Orlop's own format: about ten bytes for an event, written and read as a stream, and readable when cut off.
//!
//! A recorder may write for days in bounded memory, and a killed program leaves a file whose blocks are all
//! valid except the last. So the file is a sequence of blocks, each with its length and checksum, and a block
//! is a sequence of records: events, and the texts, frames and call sites that later events refer to.
//!
//! # Format, version 1
//!
//! Fixed-width numbers are little-endian. *varint*: seven bits for each byte, the lowest first, the high bit
//! set on all but the last; at most ten bytes. *signed*: the difference of two numbers modulo 2^64 as a
//! signed number `d`, as a varint of `(d << 1) ^ (d >> 63)`.
//!
//! ```text
//! file    = header block* end
//! header  = 8E 4F 52 4C 54 0D 0A 1A   magic
//!           u16 version = 1
//!           u16 flags                 bit 0: events are only nearly in order of time (see EventOrder)
//! block   = u32 length                of the payload, 1 to 2^28
//!           u32 CRC-32 of the payload (that of gzip)
//!           payload = record*         a record never continues in the next block
//! end     = u32 0
//!           u32 CRC-32 of the next eight bytes
//!           u64 events in the file
//! ```
//!
//! A record begins with a byte. If its low four bits are below 15 they are an event's action, and the high
//! four bits are flags:
//!
//! ```text
//! event   = u8 action | flags
//!           signed time                since the previous event
//!           [signed address            since the previous event   unless 80: both as in the previous event
//!            varint bytes]
//!           [varint stream]            if 10, else as in the previous event
//!           [varint site, varint text] if 20, else as in the previous event
//!           [varint thread, u8 kind]   if 40, else as in the previous event
//! action  = 0 allocate, 1 free requested, 2 free completed, 3 use, 4 region reserved, 5 region released,
//!           6 mapped, 7 unmapped, 8 out of memory, 9 snapshot, 10 annotation, 11 refused,
//!           12 external adopted, 13 external freed
//! kind    = 0 default, 1 persistent, 2 workspace, 3 kv cache, 4 pinned, 5 pageable
//! ```
//!
//! The previous event is the one in the same block; for the first event of a block all its fields are 0. The
//! other records:
//!
//! | byte | record | fields |
//! |---|---|---|
//! | `0F` | text | varint length, UTF-8. Numbered from 1; 0 is the empty text |
//! | `1F` | frame | varint function (a text), varint file (a text), varint line. Numbered from 0 |
//! | `2F` | site | varint count, `count` varint frames, innermost first. Numbered from 1; 0 is unknown |
//! | `3F` | device | varint number: the records that follow are of this device. Once in a block |
//! | `4F` | settings | varint text |
//! | `5F` | warning | u8 code, three varints ([`HistoryWarning`](crate::history::HistoryWarning)) |
//! | `6F` | segment | u8 flags (1: at the end, 2: small, 4: expandable), varints |
//! | | | address, bytes, stream, pool (two), site |
//! | `7F` | chunk of the last segment | varints address relative to the segment's, bytes, requested; |
//! | | | u8 state (0 live, 1 pending, 2 free); varint site |
//! | `8F` | memory of the device | varint bytes |
//! | `9F` | annotation | varint time, varint device + 1 (0: none), varint text, |
//! | | | u8 stage (0 begin, 1 end, 2 instant) |
//! | `AF` | detail of an event | varint index of the event, varint context (a text), varints pool (two) |
//! | `BF` | unplaced block of the start | varints address, bytes, requested, site |
//! | `CF` | peak of reserved bytes, as counted | varint bytes |
//! | `EF` | releases of PyTorch | varints major and minor of the first, |
//! | | | and of the first newer one (0, 0: none) |
//!
//! The segments and blocks of a device come before its events.
//!
//! # Untrusted files
//!
//! A block's bytes are read as they arrive, whatever its length field says, and checked before they are used.
//! An event takes about sixty bytes in memory and at least four in the file; [`BinaryReader`] itself keeps
//! only texts and sites. Files with more than 4096 devices are refused, as in all formats, and never written.

mod decode;
mod file;
mod payload;
mod reader;
mod record;
mod side_records;
mod start_records;
mod tables;
mod writer;

pub use self::file::{read_binary, write_binary};
pub use self::reader::BinaryReader;
pub use self::record::BinaryRecord;
pub use self::writer::{BinaryWriter, EventOrder};

/// The first bytes of a file: not valid text, and damaged by programs that convert line ends.
const MAGIC: [u8; 8] = [0x8e, b'O', b'R', b'L', b'T', 0x0d, 0x0a, 0x1a];

/// The version that is written. Files of version 1, which has no refusals, are read too.
const VERSION: u16 = 2;

/// The oldest version that is read.
const OLDEST_VERSION: u16 = 1;

/// The flag of [`EventOrder::Nearly`].
const NEARLY: u16 = 1;

/// The bytes of magic, version and flags.
const HEADER: usize = 12;

/// The bytes of a block's length and checksum.
const BLOCK_HEAD: usize = 8;

/// The maximum length of a block's payload.
const MAX_BLOCK: usize = 1 << 28;

/// A block is written when its payload has this length.
const BLOCK: usize = 64 << 10;

/// The low bits of records other than events.
const OTHER: u8 = 0x0f;

const TEXT: u8 = 0x0f;
const FRAME: u8 = 0x1f;
const SITE: u8 = 0x2f;
const DEVICE: u8 = 0x3f;
const SETTINGS: u8 = 0x4f;
const WARNING: u8 = 0x5f;
const SEGMENT: u8 = 0x6f;
const CHUNK: u8 = 0x7f;
const MEMORY: u8 = 0x8f;
const ANNOTATION: u8 = 0x9f;
const DETAIL: u8 = 0xaf;
const UNPLACED: u8 = 0xbf;
const COUNTED_RESERVED: u8 = 0xcf;
const REFUSAL: u8 = 0xdf;
const RELEASES: u8 = 0xef;

/// Flags of an event.
const WITH_STREAM: u8 = 0x10;
const WITH_SITE: u8 = 0x20;
const WITH_THREAD: u8 = 0x40;
const SAME_BLOCK: u8 = 0x80;

/// Flags of a segment.
const AT_END: u8 = 1;
const SMALL: u8 = 2;
const EXPANDABLE: u8 = 4;

/// Returns `true` if a file that begins with these bytes is of this format.
#[must_use]
pub fn sniff(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// The fields of the previous event in the block, to which an event is written relative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PreviousEvent {
    time: u64,
    address: u64,
    bytes: u64,
    stream: u64,
    site: u32,
    text: u32,
    thread: u32,
    kind: u8,
}
