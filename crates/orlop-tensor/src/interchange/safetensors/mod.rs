//! Hugging Face's safetensors files: mapping, reading and writing.
//!
//! | source | result | function |
//! |---|---|---|
//! | a file that does not change | its tensors, mapped without a copy | [`SafeTensors::map`] (unsafe) |
//! | a file | its tensors, in new memory | [`SafeTensors::read`] |
//! | bytes | their tensors | [`SafeTensors::from_bytes`] |
//! | several files, mapped | the tensors of all | [`ShardedSafeTensors::map`] (unsafe) |
//! | several files | the tensors of all, in new memory | [`ShardedSafeTensors::read`] |
//! | tensors | a file, bytes | [`save`], [`to_bytes`] |
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
//! // SAFETY: nothing else uses the file.
//! let file = unsafe { SafeTensors::map(&path) }?;
//! assert_eq!(file.names().collect::<Vec<_>>(), ["transposed", "weights"]);
//! assert_eq!(file.tensor("transposed")?.to_vec::<f32>()?, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
//! assert!(file.copied().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Untrusted files
//!
//! A file is an error, with a [`Flaw`] as the reason, if its tensors do not cover its data without gaps or
//! overlap, if the bytes of a tensor do not match its shape and dtype, or if a name is used twice. Headers
//! and indices of more than 100 MB are errors, as in other readers. The files of an index must be inside its
//! folder. Memory is allocated only for bytes that exist, never for sizes that a header states.

mod dtypes;
mod file;
mod header;
mod index;
mod pairs;
mod plan;
mod sharded;
mod write;

pub use self::file::{Copied, CopyReason, SafeTensors};
pub use self::index::ShardIndex;
pub use self::sharded::ShardedSafeTensors;
pub use self::write::{save, to_bytes};
pub use crate::error::safetensors::{Flaw, SafetensorsError};

/// The metadata of a file: names and strings.
pub type Metadata = std::collections::BTreeMap<String, String>;

const _: () =
    assert!(cfg!(target_endian = "little"), "the format is little-endian, and bytes are not swapped");
