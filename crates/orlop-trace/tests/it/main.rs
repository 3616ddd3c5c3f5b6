//! The shipped traces, hostile input, replays and reports, through the public interface.

mod advice;
mod any;
#[cfg(unix)] // The browser is driven over inherited descriptors.
mod browser;
mod conditions;
mod formats;
mod histories;
mod hostile;
mod hostile_formats;
mod lab;
#[cfg(unix)]
mod pages;
mod profiles;
mod recorded;
mod recorded_regions;
mod replays;
#[cfg(unix)]
mod report;
mod shipped;
mod snapshot;
mod torch_runs;
mod what_if;
