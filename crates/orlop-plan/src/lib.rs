//! Static memory plans: lifetimes in, offsets out.

#![forbid(unsafe_code)]
