//! Looks into a weight file without reading it.
//!
//! ```text
//! cargo run --release -p orlop-tensor --features safetensors --example weights -- model.safetensors
//! ```
//!
//! Without a path it makes a small file and looks into that.

use comfy_table::{CellAlignment, Table, presets};
use orlop_alloc::Context;
use orlop_core::{ByteSize, DType, Device, MemoryKind};
use orlop_tensor::interchange::safetensors::{Metadata, SafeTensors, save};
use orlop_tensor::{Tensor, TensorOptions};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tensors that are listed; of the others there is only the number.
const LISTED: usize = 40;

/// Elements of the view that are shown.
const SHOWN: isize = 8;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let made = tempfile::tempdir()?;
    let path = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => make(made.path())?,
    };
    // SAFETY: whoever runs this leaves the file as it is meanwhile.
    let weights = unsafe { SafeTensors::map(&path) }?;
    println!("{}: {} tensors", path.display(), weights.len());
    for (name, text) in weights.metadata() {
        println!("  {name}: {text}");
    }
    println!("{}", tensors(&weights));
    for copied in weights.copied() {
        println!("  {copied}");
    }
    println!("\nmemory by kind, on the CPU:\n{}", memory(&weights)?);
    let is_matrix = |tensor: &Tensor| tensor.ndim() == 2 && tensor.dtype().is_float() && !tensor.is_empty();
    match weights.iter().find(|(_, tensor)| is_matrix(tensor)) {
        Some((name, matrix)) => show(name, matrix)?,
        None => println!("\nno matrix of floats to look at otherwise"),
    }
    Ok(())
}

/// A table without lines whose columns from `right` on hold numbers.
fn table(header: &[&str], right: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(right) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn tensors(weights: &SafeTensors) -> Table {
    let mut table = table(&["name", "dtype", "shape", "bytes"], 3);
    for (name, tensor) in weights.iter().take(LISTED) {
        let (dtype, shape) = (tensor.dtype().to_string(), format!("{:?}", tensor.sizes()));
        table.add_row([name, &dtype, &shape, &tensor.nbytes().to_string()]);
    }
    let more = weights.len().saturating_sub(LISTED);
    if more > 0 {
        table.add_row([format!("… and {more} more")]);
    }
    let all: usize = weights.iter().map(|(_, tensor)| tensor.nbytes()).sum();
    table.add_row(["all", "", "", &all.to_string()]);
    table
}

/// What the allocators handed out, and what no allocator knows: the mapping.
fn memory(weights: &SafeTensors) -> Result<Table, Box<dyn Error>> {
    let stats = Context::with_current(|context| context.stats(Device::CPU));
    let mut table = table(&["kind", "live", "blocks"], 1);
    for kind in MemoryKind::ALL {
        let account = stats.kind(kind);
        if account.allocations > 0 || kind == MemoryKind::Persistent {
            let (live, blocks) = (ByteSize(account.live_bytes), account.live_blocks());
            table.add_row([kind.name(), &live.to_string(), &blocks.to_string()]);
        }
    }
    let mapped = ByteSize(u64::try_from(weights.storage().nbytes())?);
    table.add_row(["persistent (mapped)", &mapped.to_string(), "1"]);
    Ok(table)
}

/// Every other column of a matrix, in place.
fn show(name: &str, matrix: &Tensor) -> Result<(), Box<dyn Error>> {
    let columns = matrix.slice(1, None, None, 2)?;
    println!("\nevery other column of `{name}`:");
    println!("  sizes {:?} -> {:?}", matrix.sizes(), columns.sizes());
    println!("  strides {:?} -> {:?}", matrix.strides(), columns.strides());
    let first = columns.select(0, 0)?.slice(0, None, Some(SHOWN), 1)?;
    println!("  first values {:?}", first.to_dtype(DType::F64)?.to_vec::<f64>()?);
    println!("  the same storage: {}", columns.is_alias_of(matrix));
    println!("  the same first byte: {}", columns.storage()?.as_ptr()? == matrix.storage()?.as_ptr()?);
    Ok(())
}

/// A file of a model with two layers.
fn make(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let path = folder.join("model.safetensors");
    let ramp = |sizes: [usize; 2], dtype: DType| -> orlop_tensor::Result<Tensor> {
        let elements = Tensor::arange(0.0, 64.0, 1.0, DType::F32)?.view([1, 64])?;
        elements.expand([sizes[0], 64])?.reshape(sizes)?.to_dtype(dtype)
    };
    let mut tensors = vec![
        ("embedding.weight".to_owned(), ramp([512, 64], DType::F32)?),
        ("attention.mask".to_owned(), Tensor::ones([64, 64], DType::Bool)?),
        ("step".to_owned(), Tensor::full((), 1000, DType::I64)?),
    ];
    for layer in 0..2 {
        tensors.push((format!("layers.{layer}.mlp.weight"), ramp([256, 64], DType::BF16)?));
        tensors.push((format!("layers.{layer}.norm.weight"), Tensor::ones([64], TensorOptions::new())?));
    }
    save(&path, tensors, &Metadata::from([("format".to_owned(), "pt".to_owned())]))?;
    Ok(path)
}
