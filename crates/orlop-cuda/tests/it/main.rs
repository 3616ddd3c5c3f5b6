//! The CUDA backend over the simulated driver.
#![cfg(all(target_os = "linux", not(any(miri, loom))))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "random numbers, and ratios to print"
)]

mod absent;
mod block_order;
mod buffers;
mod capture_scopes;
mod captures;
mod closed_devices;
mod contexts;
mod default_stream;
mod device_times;
mod devices;
mod drift;
mod failures;
mod golden;
mod in_context;
mod install;
mod interop;
mod interop_order;
mod kernels;
mod large_pages;
mod linked;
mod linked_inside;
mod lost;
mod lost_streams;
mod machine;
mod operations;
mod order;
mod peers;
mod planned;
mod pools;
mod process_events;
mod process_pages;
mod processes;
mod programs;
mod random;
mod steady;
mod strangers;
mod stream_ends;
mod subscriber;
mod two_devices;
