//! The faults of an allocator, and of its use of a backing.

use crate::device::DeviceFault;
use crate::planned::engine::LendRefusal;
use orlop_alloc::Error;
use orlop_device::DeviceError;

/// A violated rule of an allocator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConformanceFault {
    /// Two live blocks share bytes.
    #[error("{start:#x}..{end:#x} overlaps the live block {other_start:#x}..{other_end:#x}")]
    Overlap {
        /// The start of the new block.
        start: usize,
        /// The end of the new block.
        end: usize,
        /// The start of the older block.
        other_start: usize,
        /// The end of the older block.
        other_end: usize,
    },
    /// A misaligned block.
    #[error("{address:#x} is not a multiple of {align}")]
    Misaligned {
        /// The block's address.
        address: usize,
        /// The requested alignment, in bytes.
        align: usize,
    },
    /// A block is smaller than requested.
    #[error("{granted} bytes granted for {requested} requested")]
    Short {
        /// The requested bytes.
        requested: usize,
        /// The granted bytes.
        granted: usize,
    },
    /// A block was requested zeroed and is not zero.
    #[error("byte {offset} of the zeroed block at {address:#x} is {found:#x}")]
    NotZero {
        /// The block's address.
        address: usize,
        /// The offset of the byte.
        offset: usize,
        /// Its value.
        found: u8,
    },
    /// A write by another owner changed a live block.
    #[error("byte {offset} of the live block at {address:#x} is {found:#x}, its owner wrote {expected:#x}")]
    Changed {
        /// The block's address.
        address: usize,
        /// The offset of the byte.
        offset: usize,
        /// The value that the block's owner wrote.
        expected: u8,
        /// Its value.
        found: u8,
    },
    /// A statistic has a wrong value.
    #[error("{what} is {found}, not {expected}")]
    Statistic {
        /// The name of the statistic.
        what: &'static str,
        /// The expected value.
        expected: u64,
        /// The reported value.
        found: u64,
    },
    /// A statistic is less than its lower bound.
    #[error("{what} is {found}, less than {at_least}")]
    Below {
        /// The name of the statistic.
        what: &'static str,
        /// The lower bound.
        at_least: u64,
        /// The reported value.
        found: u64,
    },
    /// An adaptor drops methods of its upstream: their defaults answer instead.
    #[error("the adaptor does not forward {}", methods.join(", "))]
    NotForwarded {
        /// The methods of [`Allocator`](orlop_alloc::Allocator).
        methods: Vec<&'static str>,
    },
    /// A violated rule without figures.
    #[error("violated rule: {0}")]
    Rule(&'static str),
    /// An unexpected error.
    #[error("unexpected error: {0}")]
    Unexpected(#[from] Error),
    /// A fault in the use of the backing.
    #[error("backing: {0}")]
    Backing(#[from] BackingFault),
    /// A fault in the use of the device.
    #[error("device: {0}")]
    Device(#[from] DeviceFault),
    /// An unexpected error of a device engine.
    #[error("unexpected error: {0}")]
    Engine(#[from] DeviceError),
    /// An unexpected refusal of a planned engine.
    #[error("unexpected refusal: {0}")]
    Refused(#[from] LendRefusal),
    /// An unexpected error of a tensor.
    #[error("unexpected error: {0}")]
    Tensor(#[from] orlop_tensor::Error),
    /// A fault in a step of a program.
    #[error("step {step}: {fault}")]
    Step {
        /// The index of the step.
        step: usize,
        /// The fault.
        fault: Box<ConformanceFault>,
    },
}

/// A violated rule between an engine and its backing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackingFault {
    /// A request for zero bytes reached the backing.
    #[error("a request for zero bytes")]
    ZeroBytes,
    /// The backing returned a region that is too small, misaligned, or overlaps another.
    #[error("the region {address:#x} + {bytes} is short, misaligned or overlaps another")]
    BadRegion {
        /// The address of the region.
        address: usize,
        /// The bytes of the region.
        bytes: usize,
    },
    /// A release of a region that is not live.
    #[error("{address:#x} was released but is not live")]
    NotHeld {
        /// The address.
        address: usize,
    },
    /// A region was released with another size or alignment than it was allocated with.
    #[error("{address:#x} was released with {bytes} bytes at {align}, other than it was allocated with")]
    Altered {
        /// The address.
        address: usize,
        /// The bytes at the release.
        bytes: usize,
        /// The alignment at the release, in bytes.
        align: usize,
    },
    /// A request to zero bytes outside every live region.
    #[error("{bytes} bytes at {address:#x} were zeroed outside the live regions")]
    ZeroedOutside {
        /// The address.
        address: usize,
        /// The number of bytes.
        bytes: usize,
    },
    /// Regions that were not released.
    #[error("{regions} regions of {bytes} bytes were not released")]
    Leaked {
        /// The number of regions.
        regions: usize,
        /// Their total bytes.
        bytes: u64,
    },
}

/// Checks that two values are equal.
///
/// # Errors
///
/// [`ConformanceFault::Statistic`] if they differ.
pub fn equal(what: &'static str, expected: u64, found: u64) -> Result<(), ConformanceFault> {
    if expected == found { Ok(()) } else { Err(ConformanceFault::Statistic { what, expected, found }) }
}

/// Checks that a value is not less than a bound.
///
/// # Errors
///
/// [`ConformanceFault::Below`] if it is.
pub fn at_least(what: &'static str, at_least: u64, found: u64) -> Result<(), ConformanceFault> {
    if found >= at_least { Ok(()) } else { Err(ConformanceFault::Below { what, at_least, found }) }
}

/// Checks that a rule holds.
///
/// # Errors
///
/// [`ConformanceFault::Rule`] if it does not.
pub fn rule(rule: &'static str, holds: bool) -> Result<(), ConformanceFault> {
    if holds { Ok(()) } else { Err(ConformanceFault::Rule(rule)) }
}
