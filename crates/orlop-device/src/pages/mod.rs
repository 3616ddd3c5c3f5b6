//! Pages that can be moved.
//!
//! | module | what it holds |
//! |---|---|
//! | `large` | pages that are larger than those of their range |
//! | `remap` | growth of the engine by pages: new ones, or free ones that are moved |
//! | `moves` | free pages on their way into the holes of a claim |
//! | `host_pages` | [`HostPages`]: a device whose pages are the host's memory |

mod host_pages;
mod large;
mod moves;
mod remap;

pub use self::host_pages::HostPages;
pub(crate) use self::large::LargePages;
pub(crate) use self::remap::PagePurpose;
