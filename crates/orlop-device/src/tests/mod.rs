//! Tests of the whole engine.

mod drift;
mod given_back;
mod high_water;
#[cfg(target_os = "linux")]
mod host_pages;
mod programs;
mod promises;
mod restored;
mod rounds;
#[cfg(target_os = "linux")]
mod streams;
