//! Engines beside the central one: each a small rule of its own over any backing.

mod direct;

pub use self::direct::Direct;
