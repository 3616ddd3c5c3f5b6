//! Lists the tensors of a weight file without reading them: the file is mapped, and counted like all other
//! memory.
//!
//! ```text
//! cargo run --release -p orlop --example weights -- model.safetensors
//! ```
//!
//! Without a path it writes a small file into a temporary folder, and maps that.

use orlop::memory::Source;
use orlop::prelude::*;
use orlop::tensor::interchange::safetensors::{Metadata, SafeTensors, save};
use orlop::types::ByteSize;
use std::error::Error;
use std::path::{Path, PathBuf};

/// A file of a model with two layers.
fn write(path: &Path) -> orlop::tensor::Result<()> {
    let ramp = Tensor::arange(0.0, 64.0, 1.0, DType::F32)?.view([1, 64])?;
    let mut tensors = vec![("embedding".to_owned(), ramp.expand([512, 64])?)];
    for layer in 0..2 {
        let weight = ramp.expand([256, 64])?.to_dtype(DType::BF16)?;
        tensors.push((format!("layers.{layer}.mlp"), weight));
        tensors.push((format!("layers.{layer}.norm"), Tensor::ones([64], DType::F32)?));
    }
    save(path, tensors, &Metadata::from([("format".to_owned(), "pt".to_owned())]))
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let is_weights = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "safetensors");
    let path = match std::env::args_os().map(PathBuf::from).find(is_weights) {
        Some(path) => path,
        None => {
            let path = folder.path().join("model.safetensors");
            write(&path)?;
            path
        }
    };

    let context = Context::new();
    // SAFETY: the file is neither written nor truncated while its tensors exist. (`SafeTensors::read` has no
    // such obligation.)
    let weights = context.scope(|| unsafe { SafeTensors::map(&path) })?;
    println!("{} tensors:", weights.len());
    for (name, tensor) in weights.iter().take(40) {
        let size = ByteSize(u64::try_from(tensor.nbytes())?);
        println!(
            "  {name:<24} {:<10} {:<12} {size}",
            tensor.dtype().to_string(),
            format!("{:?}", tensor.sizes())
        );
    }
    // Tensors with misaligned elements cannot be used in place: they were copied.
    for copied in weights.copied() {
        println!("  {copied}");
    }

    // A view of a mapped tensor shares the mapping: no byte is copied.
    if let Some((name, matrix)) = weights.iter().find(|(_, tensor)| tensor.ndim() == 2 && !tensor.is_empty())
    {
        let columns = matrix.slice(1, None, None, 2)?;
        let shared = columns.is_alias_of(matrix);
        println!("\nevery other column of {name}: {:?}, in the same memory: {shared}", columns.sizes());
    }

    // The mapping has a row of its own: the process holds this memory, but no allocator handed it out.
    let map = context.memory_map();
    println!("\nmapped: {}\n\n{map}", ByteSize(map.live_from(Source::Mapped)));
    drop(weights);
    println!("\nafter the last tensor: {} mapped", ByteSize(context.memory_map().live_from(Source::Mapped)));
    Ok(())
}
