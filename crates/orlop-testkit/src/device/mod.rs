//! A mock device that checks the engine over it, and random programs for the device engine.
//!
//! | module | what |
//! |---|---|
//! | [`MockDevice`] (`mock`, `failures`) | a backing that checks every precondition of its trait and fails on request |
//! | `timeline` | streams, the host and events, as vector clocks |
//! | `memory` | regions, ranges and physical pages, with the work that used each byte |
//! | [`DeviceProgram`] (`program`, `check`) | random programs; after each step the accounts are checked |
//! | [`policies`] | random policies; pairs of PyTorch's settings |
//! | [`states`] | segments as a snapshot may show them, possible and impossible ones |
//! | [`Random`] (`random`) | numbers by seed |
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
pub use self::failures::DeviceCall;
pub use self::mock::MockDevice;
pub use self::program::{DeviceProgram, ProgramEnd};
pub use self::random::Random;

/// What an engine did to its device against the rules of [`DeviceBacking`](orlop_device::DeviceBacking).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// Memory or addresses were given back that are not held so.
    #[error("{call}: {address:#x} + {bytes} is not held as one piece")]
    NotHeld {
        /// The function of the trait.
        call: &'static str,
        /// The address.
        address: usize,
        /// Its bytes.
        bytes: usize,
    },
    /// Pages are not whole, or of another size than those beside them.
    #[error("{call}: {address:#x} + {bytes} are no whole pages of {page}")]
    NotWholePages {
        /// The function of the trait.
        call: &'static str,
        /// The address.
        address: usize,
        /// Its bytes.
        bytes: usize,
        /// The size of a page, in bytes.
        page: usize,
    },
    /// There are pages where none may be.
    #[error("{call}: {address:#x} has a page")]
    Mapped {
        /// The function of the trait.
        call: &'static str,
        /// The address.
        address: usize,
    },
    /// There is no page where one must be, or its contents are gone.
    #[error("{call}: {address:#x} has no page")]
    NotMapped {
        /// The function of the trait.
        call: &'static str,
        /// The address.
        address: usize,
    },
    /// Memory was taken away while work of a stream on it may still run.
    #[error("{call}: work of stream {stream} at {address:#x} may still run")]
    StillInUse {
        /// The function of the trait.
        call: &'static str,
        /// The address.
        address: usize,
        /// The stream's id.
        stream: u64,
    },
    /// A stream uses memory before work of another stream on it is done.
    #[error("stream {stream} uses {address:#x} and does not wait for stream {other}")]
    Unordered {
        /// The address.
        address: usize,
        /// The stream's id.
        stream: u64,
        /// The id of the stream that used it before.
        other: u64,
    },
    /// An event was used after its end, or never recorded.
    #[error("{call}: event {event} has ended")]
    EventOver {
        /// The function of the trait.
        call: &'static str,
        /// The event.
        event: u64,
    },
    /// The host asked, or a stream waited for another, during a capture, or pages moved.
    #[error("{call} during a capture")]
    InCapture {
        /// The function of the trait.
        call: &'static str,
    },
    /// The engine ended and left something.
    #[error("{bytes} bytes, {ranges} ranges of addresses and {events} events were never given back")]
    Left {
        /// Bytes of memory.
        bytes: u64,
        /// Ranges of addresses.
        ranges: usize,
        /// Events.
        events: usize,
    },
}
