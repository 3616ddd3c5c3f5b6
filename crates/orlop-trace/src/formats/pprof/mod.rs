//! Profiles of pprof: what is live, by call site.
//!
//! `jax.profiler.device_memory_profile()` and Go's and tcmalloc's heap profiles are such files; `pprof`
//! displays them. A profile is one instant: a history that is read from it has blocks, but no events.
//!
//! | read | as |
//! |---|---|
//! | value `space`, else `inuse_space`, else the last one in bytes | the bytes of the sample's blocks |
//! | value `allocations`, else `inuse_objects`, else the last `count` | their number, of equal sizes |
//! | label `device` (`cuda:1`, `TFRT_CPU_0`) | the device; without it, the first of the profile, or 0 |
//! | label `kind` (`executable`) | the call site of a sample without frames |
//!
//! Blocks get consecutive addresses, because profiles have none.
//!
//! Written are six values for each call site, device, kind and tag: `allocations` and `space` at the peak of
//! the device, `end_allocations` and `end_space` at the end, `total_allocations` and `total_space` of all.
//! `pprof -sample_index=end_space FILE` selects one; the default is `space`.
//!
//! The format is [`profile.proto`][proto], gzip or plain.
//!
//! [proto]: https://github.com/google/pprof/blob/main/proto/profile.proto

mod read;
mod wire;
mod write;

pub use self::read::{read_pprof, sniff};
pub use self::write::write_pprof;

/// Why a profile cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PprofFault {
    /// The file ends within a field, or a field is malformed.
    #[error("the file is cut off or malformed")]
    Malformed,
    /// The profile is too long.
    #[error("a profile has at most 2^28 bytes")]
    TooLong,
    /// The profile has too many entries, a sample too many bytes, or the samples too many blocks.
    #[error("a profile has at most {limit} {entries}")]
    TooMany {
        /// What they are.
        entries: &'static str,
        /// The maximum number.
        limit: usize,
    },
    /// None of the values is in bytes.
    #[error("none of its values is in bytes: this is a profile of something else than memory")]
    NoBytes,
    /// A value is negative, as in the difference of two profiles.
    #[error("a value is negative: differences of profiles cannot be read")]
    Negative,
    /// The sum of the bytes exceeds 2^64.
    #[error("its bytes exceed 2^64")]
    Overflow,
}
