//! orlop's device engine as the allocator of PyTorch programs for CUDA: see the README, which follows.
//!
#![doc = include_str!("../README.md")]
//!
//! | module | what it holds |
//! |---|---|
//! | `abi` | the functions that PyTorch and the Python package call |
//! | `heap` | the allocator of a device: blocks by address, streams, private pools |
//! | `segments` | memory that PyTorch's own allocator divides |
//! | `blocks` | live blocks, by their addresses |
//! | `budgets`, `pressure` | limits by scope; what is called before an out-of-memory error |
//! | `stream_ids` | PyTorch's streams and their ids |
//! | `pool_routes` | which requests go to private pools |
//! | `cpp` | the C++ objects that are used: exceptions, `std::function` |
//! | `process` | the allocators of the process; forks |
//! | `settings`, `report`, `error` | policy and limit; statistics as JSON; errors |

#![cfg(unix)]

mod abi;
mod blocks;
mod budgets;
mod cpp;
mod error;
mod heap;
mod pool_routes;
mod pressure;
mod process;
mod report;
mod segments;
mod settings;
mod stream_ids;

pub use self::abi::{
    PoolIdPair, orlop_torch_base_alloc, orlop_torch_begin_allocate_to_pool, orlop_torch_configure,
    orlop_torch_empty_cache, orlop_torch_end_allocate_to_pool, orlop_torch_free, orlop_torch_last_error,
    orlop_torch_malloc, orlop_torch_memory_fraction, orlop_torch_record_stream, orlop_torch_release_pool,
    orlop_torch_report, orlop_torch_reset_peaks, orlop_torch_retire_stream, orlop_torch_segment_free,
    orlop_torch_segment_malloc, orlop_torch_stats, orlop_torch_trim,
};
pub use self::budgets::{orlop_torch_close_budget, orlop_torch_open_budget};
pub use self::cpp::StdFunction;
pub use self::pressure::{TorchPressureCallback, orlop_torch_set_pressure_callback};
