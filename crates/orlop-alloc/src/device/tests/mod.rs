//! Tests of the whole engine.

mod drift;
mod golden;
#[cfg(target_os = "linux")]
mod host_pages;
mod programs;
mod promises;
mod rounds;
#[cfg(target_os = "linux")]
mod streams;
