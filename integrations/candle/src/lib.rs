//! A program of candle whose memory is accounted: a decoder with random weights, on the CPU.
//!
//! The program knows orlop by one function: [`GlobalAllocator::scope`], around the parts that it wants to
//! tell apart. That is a thread's variable, and costs nothing if another allocator is the global one. The
//! examples run it with orlop's allocator and a recording, and with three other allocators beside.

mod decoder;
mod measure;

pub use self::decoder::{Decoder, WIDTH};
pub use self::measure::measure;
pub use orlop::memory::bare::GlobalAllocator;
