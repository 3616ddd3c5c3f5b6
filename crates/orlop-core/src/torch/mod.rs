//! PyTorch's CUDA allocator as data: its settings, and how it sizes blocks and segments.
//!
//! This is arithmetic, without an engine. The device engine allocates by it; readers of PyTorch's recordings
//! reconstruct by it what a recording leaves out, and need no engine for that.

mod conf;
mod reserve;
mod sizes;
mod ties;
mod values;
mod version;

pub use self::conf::{ConfError, ROUNDING_INTERVALS, TorchConf};
pub use self::reserve::{AddressReserve, ReserveClasses};
pub use self::sizes::{
    MIN_BLOCK_BYTES, SEGMENT_STEP_BYTES, SMALL_REQUEST_BYTES, SMALL_SEGMENT_BYTES, UNSPLIT_REST_BYTES,
    kept_rest, round_size, segment_size,
};
pub use self::ties::TieRule;
pub use self::version::{TorchReleases, TorchVersion, TorchVersionError};
