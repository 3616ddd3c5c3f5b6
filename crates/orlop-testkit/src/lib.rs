//! The conformance suite for allocators, and mocks, reference implementations and readers for tests.
//!
//! | module | what |
//! |---|---|
//! | [`suite`] | [`conformance`] and [`conformance_over`]: one suite for all allocators |
//! | [`suite::hostile`] | [`hostile()`] and [`hostile_over`]: hostile user code in callbacks |
//! | [`planned`] | [`planned_conformance`]: one suite for engines that lend tensors at planned places |
//! | [`kv`] | [`kv_conformance`](kv::kv_conformance): one suite for managers of paged KV memory |
//! | [`profile`] | guarantees of an allocator beyond the trait |
//! | [`model`] | the expected live blocks, compared with the allocator after each step |
//! | [`program`] | random programs that shrink |
//! | [`pattern`] | block contents by seed |
//! | [`fault`] | faults of an allocator |
//! | [`backings`] | backings that count, fail on request, and return dirty memory |
//! | [`device`] | a mock device that checks its engine; random programs for device engines |
//! | [`forwarding`] | a check that an adaptor forwards what it does not implement |
//! | [`fake_device`] | host memory that is declared as device memory |
//! | [`queued_device`] | a device whose streams run only when a test advances them |
//! | `child`, `aborts` | tests that change or abort the whole process, in a child |
//! | `stepping` | counts the locked instructions of a path, by single steps |
//! | [`recording_mock`] | an adaptor that records its calls |
//! | [`bfc`] | a reference implementation of TensorFlow's BFC |
//! | [`subscriber`] | a subscriber of traces that is a closure |
//! | [`views`] | programs of views, with PyTorch's results |
//! | [`golden`] | readers for the reference data in `testdata/` |
//! | [`torch`] | programs of PyTorch's caching allocator, with its results |
//!
//! An allocator outside this workspace is tested in one line:
//!
//! ```
//! use orlop_alloc::backing::System;
//! use orlop_alloc::engine::Direct;
//! use orlop_alloc::Allocator;
//! use orlop_testkit::{SuiteProfile, conformance};
//!
//! conformance("direct", SuiteProfile::strict(), || Direct::new(System::new()).into_ref().erase());
//! ```
//!
//! An allocator that is generic over its backing lets the suite count regions and fail requests for them:
//!
//! ```
//! use orlop_alloc::backing::System;
//! use orlop_alloc::bfc::Bfc;
//! use orlop_alloc::Allocator;
//! use orlop_testkit::{SuiteProfile, conformance_over};
//! use std::sync::Arc;
//!
//! let make = |backing| Bfc::new(backing).into_ref().erase();
//! conformance_over("bfc", SuiteProfile::strict(), || Arc::new(System::new()), make);
//! ```
#![allow(clippy::expect_used, reason = "a test that cannot start its child process fails by a panic")]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(unix)]
pub mod aborts;
pub mod backings;
pub mod bfc;
pub mod child;
pub mod device;
pub mod fake_device;
pub mod fault;
pub mod forwarding;
pub mod golden;
pub mod kv;
pub mod model;
pub mod pattern;
pub mod planned;
pub mod profile;
pub mod program;
pub mod queued_device;
pub mod recording_mock;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod stepping;
pub mod subscriber;
pub mod suite;
pub mod torch;
pub mod views;

pub use self::fault::{BackingFault, ConformanceFault};
pub use self::forwarding::check_forwarding;
pub use self::model::AllocatorModel;
pub use self::planned::planned_conformance;
pub use self::profile::SuiteProfile;
pub use self::program::{ProgramOp, ProgramRequest};
pub use self::queued_device::{DeviceCalls, QueuedDevice};
pub use self::suite::hostile::{HostileAction, hostile, hostile_over};
pub use self::suite::{conformance, conformance_over};
