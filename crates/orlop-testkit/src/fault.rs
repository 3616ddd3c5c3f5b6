//! What can be wrong with an allocator, or with what it does to its backing.

use crate::device::DeviceFault;
use orlop_alloc::Error;
use orlop_device::DeviceError;

/// A violated promise of an allocator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConformanceFault {
    /// Two live blocks share bytes.
    #[error("{start:#x}..{end:#x} overlaps the live block {other_start:#x}..{other_end:#x}")]
    Overlap {
        /// Where the new block begins.
        start: usize,
        /// Where it ends.
        end: usize,
        /// Where the older block begins.
        other_start: usize,
        /// Where that ends.
        other_end: usize,
    },
    /// A block is not where its request wanted it.
    #[error("{address:#x} is not a multiple of {align}")]
    Misaligned {
        /// The block's address.
        address: usize,
        /// The alignment asked for, in bytes.
        align: usize,
    },
    /// A block is smaller than asked for.
    #[error("{granted} bytes granted for {requested} requested")]
    Short {
        /// Bytes asked for.
        requested: usize,
        /// Bytes granted.
        granted: usize,
    },
    /// A zeroed block is not zero.
    #[error("byte {offset} of the zeroed block at {address:#x} is {found:#x}")]
    NotZero {
        /// The block's address.
        address: usize,
        /// Which byte.
        offset: usize,
        /// What it is.
        found: u8,
    },
    /// Somebody wrote into a live block.
    #[error("byte {offset} of the live block at {address:#x} is {found:#x}, its owner wrote {expected:#x}")]
    Changed {
        /// The block's address.
        address: usize,
        /// Which byte.
        offset: usize,
        /// What the block's owner wrote.
        expected: u8,
        /// What is there.
        found: u8,
    },
    /// A figure is not what it must be.
    #[error("{what} is {found}, not {expected}")]
    Figure {
        /// Which figure.
        what: &'static str,
        /// What it must be.
        expected: u64,
        /// What the allocator says.
        found: u64,
    },
    /// A figure is below what it must be at least.
    #[error("{what} is {found}, below {at_least}")]
    Below {
        /// Which figure.
        what: &'static str,
        /// What it must be at least.
        at_least: u64,
        /// What the allocator says.
        found: u64,
    },
    /// A rule that needs no figures.
    #[error("broken rule: {0}")]
    Rule(&'static str),
    /// An error where there must be none.
    #[error("unexpected error: {0}")]
    Unexpected(#[from] Error),
    /// The backing was mistreated.
    #[error("backing: {0}")]
    Backing(#[from] BackingFault),
    /// The device was mistreated.
    #[error("device: {0}")]
    Device(#[from] DeviceFault),
    /// A device engine refused what it must accept.
    #[error("unexpected error: {0}")]
    Engine(#[from] DeviceError),
    /// A fault in a step of a program.
    #[error("step {step}: {fault}")]
    Step {
        /// The step, from 0.
        step: usize,
        /// The fault.
        fault: Box<ConformanceFault>,
    },
}

/// What an engine did to its backing, or the backing to it, against the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackingFault {
    /// A request for zero bytes reached the backing.
    #[error("asked for zero bytes")]
    ZeroBytes,
    /// The backing gave less than it was asked for, or not aligned, or what it had given already.
    #[error("the region {address:#x} + {bytes} is short, misaligned or overlaps another")]
    BadRegion {
        /// Where it begins.
        address: usize,
        /// Its bytes.
        bytes: usize,
    },
    /// A region was released that is not held.
    #[error("{address:#x} was released and is not held")]
    NotHeld {
        /// Its address.
        address: usize,
    },
    /// A region was released with another size or alignment than it was gained with.
    #[error("{address:#x} was released with {bytes} bytes at {align}, which is not how it was gained")]
    Altered {
        /// Its address.
        address: usize,
        /// Bytes at release.
        bytes: usize,
        /// Alignment at release, in bytes.
        align: usize,
    },
    /// Bytes outside every held region were to be zeroed.
    #[error("{bytes} bytes at {address:#x} were zeroed outside the held regions")]
    ZeroedOutside {
        /// Where.
        address: usize,
        /// How many bytes.
        bytes: usize,
    },
    /// Regions were not given back.
    #[error("{regions} regions of {bytes} bytes were not given back")]
    Leaked {
        /// How many.
        regions: usize,
        /// Their bytes.
        bytes: u64,
    },
}

/// Equal, or a [`ConformanceFault::Figure`].
///
/// # Errors
///
/// If the two differ.
pub fn equal(what: &'static str, expected: u64, found: u64) -> Result<(), ConformanceFault> {
    if expected == found { Ok(()) } else { Err(ConformanceFault::Figure { what, expected, found }) }
}

/// At least so much, or a [`ConformanceFault::Below`].
///
/// # Errors
///
/// If `found` is less.
pub fn at_least(what: &'static str, at_least: u64, found: u64) -> Result<(), ConformanceFault> {
    if found >= at_least { Ok(()) } else { Err(ConformanceFault::Below { what, at_least, found }) }
}

/// True, or a [`ConformanceFault::Rule`].
///
/// # Errors
///
/// If it does not hold.
pub fn rule(rule: &'static str, holds: bool) -> Result<(), ConformanceFault> {
    if holds { Ok(()) } else { Err(ConformanceFault::Rule(rule)) }
}
