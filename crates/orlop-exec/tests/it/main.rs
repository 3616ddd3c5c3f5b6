//! Plans and executions.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod attacks;
mod binding;
mod failures;
mod plans;
