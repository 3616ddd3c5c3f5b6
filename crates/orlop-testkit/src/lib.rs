//! What every allocator must pass, and the instruments to find out.
//!
//! | module | what |
//! |---|---|
//! | [`suite`] | [`conformance`] and [`conformance_over`]: one suite for every allocator; [`hostile()`] and [`hostile_over`]: user code that does harm |
//! | [`profile`] | what an allocator promises beyond the trait |
//! | [`model`] | live blocks as they should be, compared with the allocator after each step |
//! | [`program`] | random programs with shrinking |
//! | [`pattern`] | contents by seed |
//! | [`fault`] | what can be wrong with an allocator |
//! | [`backings`] | backings that count, fail on demand, and hand out dirty memory |
//! | [`device`] | a mock device that checks the engine over it; random programs for device engines |
//! | [`spies`] | an adaptor that writes down what it is asked and given back |
//! | [`bfc`] | TensorFlow's BFC in the simplest possible way |
//! | [`views`] | programs of views, with PyTorch's answers |
//! | [`golden`] | readers for the reference data in `testdata/` |
//! | [`torch`] | programs that PyTorch's caching allocator ran, with its answers |
//!
//! An allocator made outside this workspace proves itself in one line:
//!
//! ```
//! use orlop_alloc::backing::System;
//! use orlop_alloc::engine::Direct;
//! use orlop_testkit::{SuiteProfile, conformance};
//!
//! conformance("direct", SuiteProfile::strict(), || Direct::new(System::new()).erase());
//! ```
//!
//! and one that is generic over its backing, which lets the suite count regions and refuse them:
//!
//! ```
//! use orlop_alloc::backing::System;
//! use orlop_alloc::bfc::Bfc;
//! use orlop_testkit::{SuiteProfile, conformance_over};
//! use std::sync::Arc;
//!
//! let make = |backing| Bfc::builder(backing).build().erase();
//! conformance_over("bfc", SuiteProfile::strict(), || Arc::new(System::new()), make);
//! ```

pub mod backings;
pub mod bfc;
pub mod device;
#[cfg(unix)]
pub mod dies;
pub mod far;
pub mod fault;
pub mod golden;
pub mod model;
pub mod pattern;
pub mod profile;
pub mod program;
pub mod spies;
pub mod suite;
pub mod torch;
pub mod views;

pub use self::fault::{BackingFault, ConformanceFault};
pub use self::model::Model;
pub use self::profile::SuiteProfile;
pub use self::program::{ProgramOp, ProgramRequest};
pub use self::suite::hostile::{Mischief, hostile, hostile_over};
pub use self::suite::{conformance, conformance_over};
