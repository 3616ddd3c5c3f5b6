//! The shipped traces, hostile input, replays and reports, through the public interface.

#[cfg(unix)] // The browser is driven over inherited descriptors.
mod browser;
mod hostile;
mod lab;
#[cfg(unix)]
mod pages;
mod replays;
#[cfg(unix)]
mod report;
mod shipped;
mod snapshot;
mod what_if;
