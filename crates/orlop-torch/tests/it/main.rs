//! The functions of the library over the simulated driver.
#![cfg(all(target_os = "linux", not(any(miri, loom))))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod budgets;
mod contexts;
mod forks;
mod machine;
mod pools;
mod programs;
mod requests;
mod segments;
mod streams;
