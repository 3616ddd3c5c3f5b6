//! Pages that can be moved.
//!
//! | module | what it holds |
//! |---|---|
//! | `remap` | growth of the engine by pages: new ones, or free ones that are moved |
//! | `host_pages` | [`HostPages`]: a device whose pages are the host's memory |

mod host_pages;
mod remap;

pub use self::host_pages::HostPages;
pub(crate) use self::remap::PagePurpose;
