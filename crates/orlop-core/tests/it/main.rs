//! Compares the crate with PyTorch's recorded results and with definitions.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

mod dtypes;
mod golden;
mod layouts;
mod properties;
mod view_properties;
mod views;
