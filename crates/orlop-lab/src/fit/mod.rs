//! What a run of another size needs, from recordings of the same program at two or more sizes.
//!
//! A size is a number that a program's requests depend on: its batch, or the length of its sequences. The
//! recordings must be of the same sequence of allocations and frees (`align`); then each request of one is
//! the same request of the others, and its bytes are a function of the size (`law`). The functions at a
//! third size give the requests of a run that was not made, which is replayed as a recorded one is
//! (`predict`).
//!
//! Source of the idea: a trace of requests determines the peak of a caching allocator (xMem, 2025, estimates
//! it from a run on the CPU); here the requests themselves are extrapolated.

mod align;
mod law;
mod predict;

pub use self::align::SequenceDifference;
pub use self::law::SizeLaw;
pub use self::predict::{Fit, FitEstimate, FitPrediction, LargestSize, SiteFit};
