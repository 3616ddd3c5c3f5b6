//! Analyses, simulations, comparisons, reports and CPU replays, through the public interface.

mod advice;
mod analyses;
#[cfg(unix)] // The browser is driven over inherited descriptors.
mod browser;
mod categories;
mod comparisons;
mod conditions;
mod devices;
mod external;
mod fit;
#[path = "../../../orlop-trace/tests/it/histories.rs"]
#[expect(dead_code, reason = "orlop-trace's own tests use the rest")]
mod histories;
#[path = "../../../orlop-trace/tests/it/mock_allocator.rs"]
mod mock_allocator;
#[cfg(unix)]
mod narrow_page;
#[cfg(unix)]
mod page_verdict;
mod pages;
#[cfg(unix)]
mod plan_page;
mod profiles;
mod recorded;
mod replays;
#[cfg(unix)]
mod report;
mod shipped;
mod snapshots;
mod streams;
mod tightness;
mod torch_runs;
mod what_if;
