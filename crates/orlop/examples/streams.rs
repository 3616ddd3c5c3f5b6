//! Two streams of a CUDA device: one copies inputs, the other works on them, and nothing waits on the host
//! until a result is read. Every tensor is simply dropped; its memory is reused after the streams that used
//! it.
//!
//! ```text
//! cargo run -p orlop --example streams --features cuda
//! ```
//!
//! Where there is no CUDA driver it runs on the simulated one, and says so.

use orlop::cuda::{CudaDevice, CudaError, caching_allocator, install};
use orlop::prelude::*;
use orlop::types::ByteSize;
use orlop_cudasim_control::SimulatedDriver;
use std::error::Error;

const ELEMENTS: usize = 1 << 18;

/// Opens the first device, or the simulated one if there is no driver.
fn open() -> Result<CudaDevice, Box<dyn Error>> {
    match CudaDevice::new(0) {
        Err(error @ CudaError::DriverNotFound) => {
            println!("{error}; this runs on the simulated driver");
            SimulatedDriver::load()?;
            Ok(CudaDevice::new(0)?)
        }
        device => Ok(device?),
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let device = open()?;
    let gpu = device.device();
    println!("{gpu}: {}, CUDA {}", device.memory()?, device.driver().version());

    let context = Context::new();
    install(&context, &device)?;
    // The typed handle gives access to the statistics of the engine.
    let engine = caching_allocator(&device)?.into_ref();
    context.register(gpu, MemoryKind::Default, engine.clone().erase())?;
    let (copies, compute) = (device.create_stream()?, device.create_stream()?);

    let sums = context.scope(|| -> Result<Vec<f32>, Box<dyn Error>> {
        let mut sums = Vec::new();
        for step in 0..8 {
            // Pinned, so that the copy is asynchronous.
            let host = Tensor::full([ELEMENTS], step, TensorOptions::new().kind(MemoryKind::HostPinned))?;
            let input = context.on_stream(gpu, copies.id(), || host.to_device(gpu))?;
            drop(host); // The copy may still read it: the pinned allocator defers its reuse.

            // Another stream reads the input: it waits for the copy on the device, and its use is recorded.
            let result = context.on_stream(gpu, compute.id(), || input.duplicate())?;
            drop(input);
            let read = context.on_stream(gpu, compute.id(), || result.to_device(Device::CPU))?;
            sums.push(read.to_vec::<f32>()?.iter().take(4).sum());
        }
        Ok(sums)
    })?;
    println!("the first four elements of each step, summed: {sums:?}");

    let stats = engine.device_stats();
    println!(
        "{} allocations from {} calls of the driver; peak: {} reserved",
        stats.allocation.all.allocated,
        stats.num_device_alloc,
        ByteSize(stats.reserved_bytes.all.peak),
    );
    Ok(())
}
