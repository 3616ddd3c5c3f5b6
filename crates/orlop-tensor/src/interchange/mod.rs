//! Conversion of tensors to and from files, other frameworks and other crates. Each format has a feature.

#[cfg(feature = "archive")]
pub mod archive;
#[cfg(feature = "dlpack")]
pub mod dlpack;
#[cfg(any(feature = "archive", feature = "npy", feature = "safetensors"))]
mod named;
#[cfg(feature = "ndarray")]
pub mod ndarray;
#[cfg(feature = "npy")]
pub mod npy;
#[cfg(feature = "safetensors")]
pub mod safetensors;

#[cfg(any(feature = "archive", feature = "npy", feature = "safetensors"))]
pub use self::named::NamedTensors;
