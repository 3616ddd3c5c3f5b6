//! What the driver knows, by concept. These types know nothing of each other beyond what they hold, and
//! nothing of [`Driver`](crate::driver::Driver), which is made of them.
//!
//! | file | holds |
//! |---|---|
//! | `config`, `durations`, `faults` | what tests configure: sizes and times, the seed, failures of calls |
//! | `device` | a device with its primary context |
//! | `host_thread` | a thread of the program: its current context, whether it is in a callback |
//! | `kernel` | a registered kernel, and a launch of any kernel |
//! | `modules` | loaded modules and their functions |
//! | `work` | what an operation does |
//! | `stream`, `event` | queues of operations, and points in them |
//! | `graph`, `capture` | captured operations, and captures in progress |
//! | `pool` | figures of a memory pool |
//! | `virtual_memory` | reservations, physical memory, mappings |
//! | `races` | past accesses, and the races found |

pub(crate) mod capture;
pub(crate) mod config;
pub(crate) mod device;
pub(crate) mod durations;
pub(crate) mod event;
pub(crate) mod faults;
pub(crate) mod graph;
pub(crate) mod host_thread;
pub(crate) mod kernel;
pub(crate) mod modules;
pub(crate) mod pool;
pub(crate) mod races;
pub(crate) mod stream;
pub(crate) mod virtual_memory;
pub(crate) mod work;
