//! A network of burn whose weights stay in a mapped file, and whose inputs are counted against a budget.
//!
//! ```text
//! cargo run --release -p orlop-burn --example mapped_weights
//! ```

use burn_std::TensorData;
use burn_tensor::Tensor as BurnTensor;
use burn_tensor::activation::relu;
use orlop::memory::Budget;
use orlop::memory::bare::GlobalAllocator;
use orlop::prelude::*;
use orlop::tensor::interchange::safetensors::{Metadata, SafeTensors, to_bytes};
use orlop::types::ByteSize;
use std::error::Error;
use std::path::Path;

const WIDTH: usize = 1024;
const LAYERS: usize = 8;
const ROWS: usize = 64;

#[global_allocator]
static GLOBAL: GlobalAllocator = GlobalAllocator;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("weights.safetensors");
    write_weights(&path)?;

    let context = Context::new();
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(1 << 20))?;
    let (read, expected) = peak_of(|| {
        let file = SafeTensors::read(&path)?;
        // burn's own memory: the elements are copied.
        let copied = |tensor: &Tensor| Ok(TensorData::new(tensor.to_vec::<f32>()?, [WIDTH, WIDTH]));
        let layers = file.iter().map(|(_, tensor)| copied(tensor)).collect::<orlop_burn::Result<_>>()?;
        drop(file);
        run(layers, input(&context)?)
    })?;
    let (mapped, found) = peak_of(|| {
        // SAFETY: nothing else knows of the file.
        let file = unsafe { SafeTensors::map_in(&context, &path) }?;
        let layers =
            file.iter().map(|(_, tensor)| orlop_burn::share(tensor)).collect::<orlop_burn::Result<_>>()?;
        let found = run(layers, input(&context)?)?;
        println!("{}\n", context.memory_map());
        Ok(found)
    })?;
    println!("{LAYERS} layers of {WIDTH} x {WIDTH}; equal results: {}", found == expected);
    println!(
        "peak of what the program allocates: {} with copies, {} mapped",
        ByteSize(read),
        ByteSize(mapped)
    );
    Ok(())
}

/// Returns the peak of live bytes of all allocations during `f`.
fn peak_of<T>(f: impl FnOnce() -> Result<T, Box<dyn Error>>) -> Result<(u64, T), Box<dyn Error>> {
    GlobalAllocator::reset_peaks();
    let value = f()?;
    Ok((GlobalAllocator::stats().totals.all.peak_bytes, value))
}

fn write_weights(path: &Path) -> Result<(), Box<dyn Error>> {
    let layers: Vec<(String, Tensor)> = (0..LAYERS)
        .map(|layer| Ok((format!("layer.{layer}"), weights(layer)?)))
        .collect::<orlop::tensor::Result<_>>()?;
    let named = layers.iter().map(|(name, tensor)| (name, tensor));
    std::fs::write(path, to_bytes(named, &Metadata::new())?)?;
    Ok(())
}

/// Weights that keep the numbers of the network small.
fn weights(layer: usize) -> orlop::tensor::Result<Tensor> {
    let value = |index: usize| ((index * 2_654_435_761 + layer * 97) % 1013) as f32 / 1013.0 - 0.5;
    let values: Vec<f32> = (0..WIDTH * WIDTH).map(|index| value(index) / 16.0).collect();
    Tensor::from_slice(&values)?.view([WIDTH, WIDTH])
}

/// The input, in a block of the context, which burn takes over.
fn input(context: &Context) -> Result<TensorData, Box<dyn Error>> {
    let options = TensorOptions::new().context(context).kind(MemoryKind::Workspace);
    Ok(orlop_burn::into_bytes(Tensor::ones([ROWS, WIDTH], options.dtype(DType::F32))?)?)
}

/// Runs the network, and returns its results.
fn run(layers: Vec<TensorData>, input: TensorData) -> Result<Vec<f32>, Box<dyn Error>> {
    let device = burn_tensor::Device::default();
    let layers: Vec<BurnTensor<2>> =
        layers.into_iter().map(|layer| BurnTensor::from_data(layer, &device)).collect();
    let mut rows = BurnTensor::<2>::from_data(input, &device);
    for layer in &layers {
        rows = relu(rows.matmul(layer.clone()));
    }
    Ok(rows.into_data().try_into_vec()?)
}
