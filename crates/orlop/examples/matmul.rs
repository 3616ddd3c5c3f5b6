//! Matrix products on a CUDA device, in memory of orlop: owned buffers are the operands of cuBLAS, as slices
//! of cudarc are. Both inputs are parts of one shared buffer of weights, and two streams work without a wait
//! of the host.
//!
//! ```text
//! cargo run -p orlop --example matmul --features cuda
//! ```
//!
//! Where there is no CUDA driver it runs on the simulated one, with a kernel in place of cuBLAS, and says so.

use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, sys::cublasOperation_t};
use cudarc::driver::{CudaFunction, DevicePtr, DevicePtrMut, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use orlop::cuda::{CudaDevice, CudaError, DeviceBuffer, DeviceStream, caching_allocator};
use orlop::prelude::*;
use orlop_cudasim_control::{KernelAccess, KernelCall, KernelMemory, SimulatedDriver};
use std::error::Error;

/// The rows and columns of each matrix.
const SIZE: u16 = 64;
const ELEMENTS: usize = SIZE as usize * SIZE as usize;

/// What multiplies on a stream.
enum Product {
    Blas(CudaBlas),
    /// The simulated driver has no cuBLAS.
    Kernel(DeviceStream, CudaFunction),
}

/// The kernel's declaration. What it does in the simulation is `multiply_on_host`.
const PTX: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .entry matmul(.param .u64 a, .param .u64 b, .param .u64 c) { ret; }
";

impl Product {
    fn new(device: &CudaDevice, stream: &DeviceStream, is_simulated: bool) -> Result<Self, Box<dyn Error>> {
        if is_simulated {
            let module = device.context().load_module(Ptx::from_src(PTX))?;
            return Ok(Self::Kernel(stream.clone(), module.load_function("matmul")?));
        }
        // SAFETY: it only looks for the library.
        if !unsafe { cudarc::cublas::sys::is_culib_present() } {
            return Err("there is a CUDA driver, but no cuBLAS".into());
        }
        Ok(Self::Blas(CudaBlas::new(stream.cudarc().clone())?))
    }

    /// Multiplies matrices whose rows are contiguous: `c = a * b`.
    fn multiply(
        &self,
        a: &impl DevicePtr<f32>,
        b: &impl DevicePtr<f32>,
        c: &mut impl DevicePtrMut<f32>,
    ) -> Result<(), Box<dyn Error>> {
        assert!([a.len(), b.len(), c.len()] == [ELEMENTS; 3]);
        match self {
            Self::Blas(blas) => {
                let (size, plain) = (i32::from(SIZE), cublasOperation_t::CUBLAS_OP_N);
                let config = GemmConfig {
                    transa: plain,
                    transb: plain,
                    m: size,
                    n: size,
                    k: size,
                    alpha: 1.0,
                    lda: size,
                    ldb: size,
                    beta: 0.0,
                    ldc: size,
                };
                // Its columns are contiguous, so that it computes the transposed product of b and a.
                // SAFETY: all operands have `ELEMENTS` elements.
                unsafe { blas.gemm(config, b, a, c) }?;
            }
            Self::Kernel(stream, kernel) => {
                let stream = stream.cudarc();
                let ((a, _a), (b, _b)) = (a.device_ptr(stream), b.device_ptr(stream));
                let (c, _c) = c.device_ptr_mut(stream);
                let mut launch = stream.launch_builder(kernel);
                launch.arg(&a).arg(&b).arg(&c);
                // SAFETY: the arguments are those of the kernel, which accesses `ELEMENTS` elements of each.
                unsafe { launch.launch(LaunchConfig::for_num_elems(1)) }?;
            }
        }
        Ok(())
    }
}

fn multiply_on_host(a: &[f32], b: &[f32]) -> Vec<f32> {
    let size = usize::from(SIZE);
    let element = |index: usize| {
        let (row, column) = (index / size, index % size);
        (0..size).map(|k| a[row * size + k] * b[k * size + column]).sum()
    };
    (0..ELEMENTS).map(element).collect()
}

/// Registers the kernel of the simulation.
fn register_kernel(driver: &SimulatedDriver) -> Result<(), Box<dyn Error>> {
    let bytes = 4 * ELEMENTS;
    let accesses = move |call: &KernelCall| {
        let [a, b] = [0, 1].map(|input| KernelAccess::read(call.address(input), bytes));
        vec![a, b, KernelAccess::write(call.address(2), bytes)]
    };
    let run = move |call: &KernelCall, memory: &mut KernelMemory| {
        let [a, b] = [0, 1].map(|input| {
            let bytes = memory.read(call.address(input), bytes);
            bytes.as_chunks().0.iter().map(|&word| f32::from_ne_bytes(word)).collect::<Vec<f32>>()
        });
        let product: Vec<u8> = multiply_on_host(&a, &b).into_iter().flat_map(f32::to_ne_bytes).collect();
        memory.write(call.address(2), &product);
    };
    Ok(driver.register_kernel("matmul", (accesses, run))?)
}

/// Opens the first device, or the simulated one if there is no driver. Returns whether it is simulated.
fn open() -> Result<(CudaDevice, bool), Box<dyn Error>> {
    match CudaDevice::new(0) {
        Err(error @ CudaError::DriverNotFound) => {
            println!("{error}; this runs on the simulated driver");
            register_kernel(&SimulatedDriver::load()?)?;
            Ok((CudaDevice::new(0)?, true))
        }
        device => Ok((device?, false)),
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (device, is_simulated) = open()?;
    let (one, two) = (device.create_stream()?, device.create_stream()?);
    let [on_one, on_two] = [&one, &two].map(|stream| Product::new(&device, stream, is_simulated));
    let (on_one, on_two) = (on_one?, on_two?);
    let allocator = caching_allocator(&device)?.into_ref();

    // Small whole numbers: every order of the sums gives the same result.
    let [left, right] =
        [3, 5].map(|modulus| (0..ELEMENTS).map(|at| (at % modulus) as f32).collect::<Vec<_>>());
    let weights = DeviceBuffer::from_slice(&allocator, &one, &[left.as_slice(), &right].concat())?.share();
    let parts = [0..ELEMENTS, ELEMENTS..2 * ELEMENTS].map(|range| weights.slice(range));
    let [Some(a), Some(b)] = parts else { return Err("the parts are inside".into()) };

    let mut product = DeviceBuffer::<f32>::new(&allocator, &one, ELEMENTS)?;
    on_one.multiply(&a, &b, &mut product)?;
    // The other stream waits for the first one on the device.
    let mut squared = DeviceBuffer::<f32>::new(&allocator, &two, ELEMENTS)?;
    on_two.multiply(&product, &product, &mut squared)?;
    // Reused after the second product, without a wait here.
    drop(product);

    let expected = multiply_on_host(&left, &right);
    let expected = multiply_on_host(&expected, &expected);
    if squared.to_vec()? != expected {
        return Err("the product is wrong".into());
    }
    println!("(a * b) * (a * b), {SIZE} by {SIZE}: its first element is {}", expected[0]);
    let stats = allocator.device_stats();
    println!("{} allocations from {} calls", stats.allocation.all.allocated, stats.num_device_alloc);
    Ok(())
}
