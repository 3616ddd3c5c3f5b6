//! Kernels as compilers write them: `testdata/ptx` says how each file was made.

use crate::support::KernelDriver;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DevicePtrMut, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

/// The text of a kernel by both compilers of CUDA C.
macro_rules! compiled {
    ($name:literal) => {
        [
            ("nvrtc", include_str!(concat!("../../../../testdata/ptx/", $name, ".nvrtc.ptx"))),
            ("clang", include_str!(concat!("../../../../testdata/ptx/", $name, ".clang.ptx"))),
        ]
    };
}

pub(crate) use compiled;

const RUST: &str = include_str!("../../../../testdata/ptx/kernels.rustc.ptx");

pub(crate) struct Machine {
    pub(crate) driver: KernelDriver,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) kernel: CudaFunction,
}

pub(crate) fn machine(text: &str, kernel: &str) -> Machine {
    let driver = KernelDriver::start();
    let context = CudaContext::new(0).expect("there is a device");
    let stream = context.new_stream().expect("a stream");
    let module = context.load_module(Ptx::from_src(text)).expect("a module");
    Machine { driver, stream, kernel: module.load_function(kernel).expect("an entry") }
}

pub(crate) fn shape(grid: (u32, u32), block: (u32, u32)) -> LaunchConfig {
    LaunchConfig { grid_dim: (grid.0, grid.1, 1), block_dim: (block.0, block.1, 1), shared_mem_bytes: 0 }
}

#[test]
fn saxpy_is_computed() {
    let sources = compiled!("saxpy").into_iter().chain([("rustc", RUST)]);
    for (compiler, text) in sources {
        let Machine { driver, stream, kernel } = machine(text, "saxpy");
        let x: Vec<f32> = (0..100_u16).map(|number| f32::from(number) * 0.1).collect();
        let y: Vec<f32> = (0..100_u16).map(|number| f32::from(number) - 50.0).collect();
        let (from, mut to) = (stream.clone_htod(&x).expect("a copy"), stream.clone_htod(&y).expect("a copy"));
        let (a, n) = (1.7_f32, 97_i32);
        // SAFETY: the arguments are those of the kernel; both have at least `n` elements.
        let launched = unsafe {
            let mut builder = stream.launch_builder(&kernel);
            builder.arg(&a).arg(&from).arg(&mut to).arg(&n).launch(shape((4, 1), (32, 1)))
        };
        launched.expect("a launch");
        let result = stream.clone_dtoh(&to).expect("a copy");
        let fused = compiler != "rustc";
        let expected = x.iter().zip(&y).enumerate().map(|(index, (&x, &y))| match (index < 97, fused) {
            (false, _) => y,
            (true, true) => x.mul_add(a, y),
            (true, false) => a * x + y,
        });
        assert_eq!(result, expected.collect::<Vec<_>>(), "{compiler}");
        assert_eq!(driver.take_races(), [], "{compiler}");
    }
}

fn sums(text: &str) -> (Vec<f32>, KernelDriver) {
    let Machine { driver, stream, kernel } = machine(text, "block_sums");
    let values: Vec<f32> = (0..700_u16).map(f32::from).collect();
    let from = stream.clone_htod(&values).expect("a copy");
    let mut to = stream.alloc_zeros::<f32>(3).expect("memory");
    // SAFETY: the arguments are those of the kernel; it has a sum for each block.
    let launched = unsafe {
        let mut builder = stream.launch_builder(&kernel);
        builder.arg(&from).arg(&mut to).arg(&700_i32).launch(shape((3, 1), (256, 1)))
    };
    launched.expect("a launch");
    (stream.clone_dtoh(&to).expect("a copy"), driver)
}

/// In shared memory, with barriers in a loop.
#[test]
fn sums_of_blocks_are_computed() {
    for (compiler, text) in compiled!("reduce") {
        let expected = [(0..256), (256..512), (512..700)].map(|block: std::ops::Range<u16>| {
            // All partial sums are whole numbers that a float has.
            block.map(f32::from).sum::<f32>()
        });
        let (found, driver) = sums(text);
        assert_eq!(found, expected, "{compiler}");
        assert_eq!(driver.take_races(), [], "{compiler}");
    }
}

/// The same without the barriers.
#[test]
fn a_race_between_threads_of_a_block_is_found() {
    for (compiler, text) in compiled!("reduce_race") {
        let (_, driver) = sums(text);
        if let Some(driver) = driver.simulated() {
            assert_eq!(driver.races().len(), 1, "{compiler}");
        }
    }
}

#[test]
fn a_transposition_by_tiles_is_computed() {
    for (compiler, text) in compiled!("transpose") {
        let Machine { driver, stream, kernel } = machine(text, "transpose");
        let (rows, columns) = (37_u16, 21_u16);
        let sizes = [rows, columns].map(u32::from);
        let value = |row: u16, column: u16| f32::from(row * 100 + column);
        let all = (0..rows).flat_map(|row| (0..columns).map(move |column| value(row, column)));
        let from = stream.clone_htod(&all.collect::<Vec<_>>()).expect("a copy");
        let mut to = stream.alloc_zeros::<f32>(37 * 21).expect("memory");
        // SAFETY: the arguments are those of the kernel.
        let launched = unsafe {
            let mut builder = stream.launch_builder(&kernel);
            builder.arg(&from).arg(&mut to).arg(&sizes[0]).arg(&sizes[1]);
            builder.launch(shape((2, 3), (16, 16)))
        };
        launched.expect("a launch");
        let expected = (0..columns).flat_map(|column| (0..rows).map(move |row| value(row, column)));
        assert_eq!(stream.clone_dtoh(&to).expect("a copy"), expected.collect::<Vec<_>>(), "{compiler}");
        assert_eq!(driver.take_races(), [], "{compiler}");
    }
}

#[test]
fn a_product_of_matrices_is_computed() {
    for (compiler, text) in compiled!("matmul") {
        const N: usize = 13;
        let Machine { driver, stream, kernel } = machine(text, "matmul");
        let matrix = |start: f64| (0..N * N).map(|index| start + index as f64 / 8.0).collect::<Vec<f64>>();
        let (a, b) = (matrix(-3.0), matrix(0.5));
        let inputs = [&a, &b].map(|values| stream.clone_htod(values).expect("a copy"));
        let mut to = stream.alloc_zeros::<f64>(N * N).expect("memory");
        // SAFETY: the arguments are those of the kernel.
        let launched = unsafe {
            let mut builder = stream.launch_builder(&kernel);
            builder.arg(&inputs[0]).arg(&inputs[1]).arg(&mut to).arg(&13_i32);
            builder.launch(shape((2, 2), (8, 8)))
        };
        launched.expect("a launch");
        // All of these products and sums are exact.
        let element =
            |row: usize, column: usize| (0..N).map(|k| a[row * N + k] * b[k * N + column]).sum::<f64>();
        let expected: Vec<f64> = (0..N * N).map(|index| -element(index / N, index % N)).collect();
        assert_eq!(stream.clone_dtoh(&to).expect("a copy"), expected, "{compiler}");
        assert_eq!(driver.take_races(), [], "{compiler}");
    }
}

#[test]
fn elements_are_reversed() {
    let Machine { driver, stream, kernel } = machine(RUST, "reverse");
    let values: Vec<u32> = (0..1000).collect();
    let mut values = stream.clone_htod(&values).expect("a copy");
    let mut to = stream.alloc_zeros::<u32>(1000).expect("memory");
    let count = 1000_u32;
    // SAFETY: the arguments are those of the kernel.
    let launched = unsafe {
        let mut builder = stream.launch_builder(&kernel);
        builder.arg(&values).arg(&mut to).arg(&count).launch(LaunchConfig::for_num_elems(count))
    };
    launched.expect("a launch");
    assert_eq!(stream.clone_dtoh(&to).expect("a copy"), (0..count).rev().collect::<Vec<_>>());
    let Some(driver) = driver.simulated() else { return };
    assert_eq!(driver.races(), []);
    // In place each thread writes what another one reads.
    let (address, _used) = values.device_ptr_mut(&stream);
    // SAFETY: as above.
    let launched = unsafe {
        let mut builder = stream.launch_builder(&kernel);
        builder.arg(&address).arg(&address).arg(&count).launch(LaunchConfig::for_num_elems(count))
    };
    launched.expect("a launch");
    assert_eq!(driver.races().len(), 1);
}
