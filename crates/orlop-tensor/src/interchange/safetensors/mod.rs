//! Hugging Face's weight files, mapped or read, and written.
//!
//! | you have | you want | |
//! |---|---|---|
//! | a file that nobody changes | its tensors, without reading or copying it | [`SafeTensors::map`] (unsafe) |
//! | a file | its tensors, in memory of their own | [`SafeTensors::read`] |
//! | bytes | their tensors | [`SafeTensors::from_bytes`] |
//! | several files and an index | the tensors of all | [`ShardedSafeTensors::map`], [`ShardedSafeTensors::read`] |
//! | tensors | a file, bytes, several files | [`save`], [`to_bytes`], [`save_sharded`] |
//!
//! Tensors from files are of kind [`Persistent`](orlop_core::MemoryKind::Persistent).
//!
//! ```
//! use orlop_core::DType;
//! use orlop_tensor::Tensor;
//! use orlop_tensor::interchange::safetensors::{Metadata, SafeTensors, save};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("model.safetensors");
//! let weights = Tensor::arange(0.0, 6.0, 1.0, DType::F32)?.view([2, 3])?;
//! save(&path, [("weights", &weights), ("transposed", &weights.t()?)], &Metadata::new())?;
//!
//! // SAFETY: nobody else knows the file, which stays as it is.
//! let file = unsafe { SafeTensors::map(&path) }?;
//! assert_eq!(file.names().collect::<Vec<_>>(), ["transposed", "weights"]);
//! assert_eq!(file.tensor("transposed")?.to_vec::<f32>()?, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
//! assert!(file.copied().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Files from strangers
//!
//! A file is refused, with a [`Flaw`] that says what is wrong, if its tensors do not cover its data from the first byte to
//! the last, each byte once; if a tensor has not as many bytes as its shape and dtype need; or if a name is there twice.
//! Headers and indices of more than 100 MB are refused, as other readers do. An index cannot lead out of its folder.
//! Nothing is allocated on the word of a header: only for bytes that are there.

mod dtypes;
mod error;
mod file;
mod header;
mod index;
mod pairs;
mod plan;
mod sharded;
mod write;

pub use self::error::{Flaw, SafetensorsError};
pub use self::file::{Copied, CopyReason, SafeTensors};
pub use self::index::ShardIndex;
pub use self::sharded::ShardedSafeTensors;
pub use self::write::{save, save_sharded, to_bytes};

/// What a file says beside its tensors: names and texts.
pub type Metadata = std::collections::BTreeMap<String, String>;

const _: () =
    assert!(cfg!(target_endian = "little"), "the format's numbers are little-endian, and are not swapped");
