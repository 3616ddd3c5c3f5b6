//! A mock device that checks the engine over it, and random programs for the device engine.
//!
//! | module | what |
//! |---|---|
//! | [`MockDevice`] (`mock`, `failures`) | a backing that checks its calls and fails on request |
//! | `timeline` | streams, the host and events, as vector clocks |
//! | `memory` | regions, ranges and physical pages, with the work that used each byte |
//! | [`DeviceProgram`] (`program`, `check`) | random programs; after each step the statistics are checked |
//! | [`policies`] | random policies; pairs of PyTorch's settings |
//! | [`states`] | segments as in a snapshot, valid and invalid ones |
//! | [`Random`] (`random`) | random numbers by seed |
//!
//! `ORLOP_CONFORMANCE_CASES` sets the number of programs, as for the conformance suite.

mod check;
mod failures;
mod memory;
mod mock;
pub mod policies;
mod program;
mod random;
pub mod states;
mod timeline;

pub use self::check::WatchedDevice;
pub use self::failures::{DeviceCall, INJECTED};
pub use self::mock::MockDevice;
pub use self::program::{DeviceProgram, ProgramEnd};
pub use self::random::Random;

/// A violated rule of [`DeviceBacking`](orlop_device::DeviceBacking) by an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// Released memory or addresses that are not live as one region.
    #[error("{call}: {address:#x} + {bytes} is not live as one region")]
    NotHeld {
        /// The trait function.
        call: &'static str,
        /// The address.
        address: usize,
        /// The number of bytes.
        bytes: usize,
    },
    /// Pages that are not whole, or of another size than their neighbours.
    #[error("{call}: {address:#x} + {bytes} are not whole pages of {page}")]
    NotWholePages {
        /// The trait function.
        call: &'static str,
        /// The address.
        address: usize,
        /// The number of bytes.
        bytes: usize,
        /// The size of a page, in bytes.
        page: usize,
    },
    /// A page where there must be none.
    #[error("{call}: {address:#x} has a page")]
    Mapped {
        /// The trait function.
        call: &'static str,
        /// The address.
        address: usize,
    },
    /// No page where one must be, or one that lost its contents.
    #[error("{call}: {address:#x} has no page")]
    NotMapped {
        /// The trait function.
        call: &'static str,
        /// The address.
        address: usize,
    },
    /// Memory was released while work of a stream on it may still run.
    #[error("{call}: work of stream {stream} at {address:#x} may still run")]
    StillInUse {
        /// The trait function.
        call: &'static str,
        /// The address.
        address: usize,
        /// The stream's id.
        stream: u64,
    },
    /// A stream uses memory without waiting for another stream's work on it.
    #[error("stream {stream} uses {address:#x} and does not wait for stream {other}")]
    Unordered {
        /// The address.
        address: usize,
        /// The id of the stream.
        stream: u64,
        /// The id of the stream that used it before.
        other: u64,
    },
    /// An event that has ended, or was never recorded.
    #[error("{call}: event {event} has ended")]
    EventOver {
        /// The trait function.
        call: &'static str,
        /// The event.
        event: u64,
    },
    /// A query, a wait or a move of pages during a capture.
    #[error("{call} during a capture")]
    InCapture {
        /// The trait function.
        call: &'static str,
    },
    /// A call that names a stream which was destroyed.
    #[error("{call} in stream {stream:#x}, which was destroyed")]
    StreamOver {
        /// The trait function.
        call: &'static str,
        /// The number of the stream.
        stream: u64,
    },
    /// A call of a device that was lost.
    #[error("{call} after the device was lost")]
    Lost {
        /// The trait function.
        call: &'static str,
    },
    /// The engine was dropped and did not release everything.
    #[error("{bytes} bytes, {ranges} reservations and {events} events were never released")]
    Left {
        /// The bytes of memory.
        bytes: u64,
        /// The number of reservations.
        ranges: usize,
        /// The number of events.
        events: usize,
    },
}
