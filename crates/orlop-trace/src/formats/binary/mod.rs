//! Our own format: some ten bytes an event, written and read event by event, and of use when it is cut off.
//!
//! A recorder writes for days and must hold no more than a block; a program that is killed leaves a file
//! whose blocks are all good but the last. So the file is a sequence of blocks, each with its length and
//! checksum, and a block is a sequence of records: events, and the texts, frames and call sites that the
//! events after them name.
//!
//! # Format, version 1
//!
//! Fixed-width numbers are little-endian. *varint*: seven bits a byte, the lowest first, the high bit set on
//! all but the last; at most ten bytes. *signed*: the difference of two numbers modulo 2^64 as a signed one
//! `d`, as a varint of `(d << 1) ^ (d >> 63)`.
//!
//! ```text
//! file    = header block* end
//! header  = 8E 4F 52 4C 54 0D 0A 1A   magic
//!           u16 version = 1
//!           u16 flags                 bit 0: events are only nearly in order of time (see EventOrder)
//! block   = u32 length                of the payload, 1 to 2^28
//!           u32 CRC-32 of the payload (that of gzip)
//!           payload = record*         a record never goes on in the next block
//! end     = u32 0
//!           u32 CRC-32 of the next eight bytes
//!           u64 events in the file
//! ```
//!
//! A record begins with a byte. If its low four bits are below 15 they are an event's action, and the high
//! four say what follows:
//!
//! ```text
//! event   = u8 action | flags
//!           signed time                since the event before
//!           [signed address            since the event before       unless 80: both as in the event before
//!            varint bytes]
//!           [varint stream]            if 10, else as in the event before
//!           [varint site, varint text] if 20, else as in the event before
//!           [varint thread, u8 kind]   if 40, else as in the event before
//! action  = 0 allocate, 1 free requested, 2 free completed, 3 use, 4 region gained, 5 region lost, 6 mapped, 7 unmapped,
//!           8 out of memory, 9 snapshot, 10 annotation
//! kind    = 0 default, 1 persistent, 2 workspace, 3 kv cache, 4 pinned, 5 pageable
//! ```
//!
//! "The event before" is within the block; for a block's first event all is 0. The other records:
//!
//! | byte | record | fields |
//! |---|---|---|
//! | `0F` | text | varint length, UTF-8. Texts are numbered from 1 as they come; 0 is the empty one |
//! | `1F` | frame | varint function (a text), varint file (a text), varint line. Numbered from 0 |
//! | `2F` | site | varint count, so many varint frames, innermost first. Numbered from 1; 0 is unknown |
//! | `3F` | device | varint number: what follows is of this device. Once a block, before anything that is of one |
//! | `4F` | settings | varint text |
//! | `5F` | warning | u8 which, three varints (device or 0, event or bytes or 0, address or position or count) |
//! | `6F` | segment | u8 flags (1: at the end rather than the start, 2: small, 4: expandable), varints address, bytes, stream, pool twice, site |
//! | `7F` | block of the last segment | varints address since the segment's, bytes, requested; u8 state (0 live, 1 pending, 2 free); varint site |
//! | `8F` | memory of the device | varint bytes |
//! | `9F` | annotation | varint time, varint device + 1 (0: none), varint text, u8 stage (0 begin, 1 end, 2 moment) |
//! | `AF` | detail of an event of the device | varint place of the event, varint context (a text), varints pool twice |
//! | `BF` | block that was there at the start, in no known segment | varints address, bytes, requested, site |
//! | `CF` | the most bytes held from the device, as counted | varint bytes |
//!
//! A device's segments and blocks are told before its events.
//!
//! # Reading what strangers wrote
//!
//! A block's bytes are read as they come, whatever its length says, and checked before they are used. Events
//! cost some sixty bytes in memory for four in the file at least, [`BinaryReader`] itself only keeps texts
//! and sites. A file that names more than 4096 devices is refused, as in all formats, and none is written.

mod file;
mod payload;
mod reader;
mod record;
mod side_records;
mod start_records;
mod writer;

pub use self::file::{read_binary, write_binary};
pub use self::reader::BinaryReader;
pub use self::record::BinaryRecord;
pub use self::writer::{BinaryWriter, EventOrder};

/// What a file begins with: no text, and damaged by whoever takes it for one.
const MAGIC: [u8; 8] = [0x8e, b'O', b'R', b'L', b'T', 0x0d, 0x0a, 0x1a];

/// What is written, and the latest that is read.
const VERSION: u16 = 1;

/// The flag of [`EventOrder::Nearly`].
const NEARLY: u16 = 1;

/// Magic, version, flags.
const HEADER: usize = 12;

/// A block's length and checksum.
const BLOCK_HEAD: usize = 8;

/// The longest payload that a block may have.
const MAX_BLOCK: usize = 1 << 28;

/// A block is written when its payload is as long as this.
const BLOCK: usize = 64 << 10;

/// The low bits of records that are no events.
const OTHER: u8 = 0x0f;

const TEXT: u8 = 0x0f;
const FRAME: u8 = 0x1f;
const SITE: u8 = 0x2f;
const DEVICE: u8 = 0x3f;
const SETTINGS: u8 = 0x4f;
const WARNING: u8 = 0x5f;
const SEGMENT: u8 = 0x6f;
const PIECE: u8 = 0x7f;
const MEMORY: u8 = 0x8f;
const ANNOTATION: u8 = 0x9f;
const DETAIL: u8 = 0xaf;
const HELD: u8 = 0xbf;
const COUNTED: u8 = 0xcf;

/// What follows an event's first byte.
const WITH_STREAM: u8 = 0x10;
const WITH_SITE: u8 = 0x20;
const WITH_THREAD: u8 = 0x40;
const SAME_PLACE: u8 = 0x80;

/// Flags of a segment.
const AT_END: u8 = 1;
const SMALL: u8 = 2;
const EXPANDABLE: u8 = 4;

/// Whether a file that begins with these bytes is of this format.
#[must_use]
pub fn sniff(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// What an event is written relative to: the one before in its block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Before {
    time: u64,
    address: u64,
    bytes: u64,
    stream: u64,
    site: u32,
    text: u32,
    thread: u32,
    kind: u8,
}
