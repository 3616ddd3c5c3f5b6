//! Kernels, whose PTX the simulated driver executes.
//!
//! | module | what it tests |
//! |---|---|
//! | `casts` | every pair of dtypes, against the CPU |
//! | `copies` | strided copies and fills, against the CPU |
//! | `loading` | when the module is loaded, and what is done without it; captures, streams |
//! | `values` | the interesting values of each dtype |

mod casts;
mod copies;
mod loading;
mod values;

use crate::machine::Machine;
use orlop_alloc::{
    Allocator, AllocatorRef, Block, Error, Request,
    engine_support::{DeviceOps, DevicePtr, StridedLoops},
};
use orlop_core::{DType, Device, Layout, Shape, StreamId, Strides};
use orlop_cuda::{CudaOps, DeviceStream, caching_allocator};
use orlop_cudasim_control::SimulationConfig;
use std::ptr::NonNull;

pub(super) struct KernelBench {
    pub(super) ops: CudaOps,
    pub(super) stream: DeviceStream,
    pub(super) allocator: AllocatorRef,
    /// Last: the next test's turn comes when it is dropped.
    pub(super) machine: Machine,
}

pub(super) fn first(bytes: &mut [u8]) -> NonNull<u8> {
    NonNull::from(bytes).cast()
}

pub(super) fn far(block: &Block, offset: usize) -> DevicePtr {
    assert!(offset <= block.len());
    // SAFETY: inside the block, or at its end.
    DevicePtr::new(unsafe { block.as_ptr().add(offset) }, block.device())
}

pub(super) fn layout(sizes: &[usize], strides: &[usize]) -> Layout {
    Layout::new(Shape::new(sizes).unwrap(), Strides::new(strides).unwrap(), 0).unwrap()
}

pub(super) fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0]).collect()
}

impl KernelBench {
    pub(super) fn new() -> Self {
        Self::with(&SimulationConfig::new())
    }

    pub(super) fn with(config: &SimulationConfig) -> Self {
        let machine = Machine::new(config);
        let (ops, stream) = (CudaOps::new(&machine.device), machine.device.create_stream().unwrap());
        let allocator = caching_allocator(&machine.device).unwrap().into_ref().erase();
        Self { ops, stream, allocator, machine }
    }

    pub(super) fn block(&self, bytes: &[u8]) -> Block {
        let block = self.allocator.allocate(&Request::new(bytes.len()).stream(self.stream.id())).unwrap();
        self.write(&block, bytes);
        block
    }

    pub(super) fn write(&self, block: &Block, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let from = DevicePtr::new(first(&mut bytes), Device::CPU);
        // SAFETY: both have this many bytes; the source has been read when the call returns.
        unsafe { self.ops.copy(far(block, 0), from, bytes.len(), self.stream.id()) }.unwrap();
    }

    pub(super) fn read(&self, block: &Block) -> Vec<u8> {
        let mut bytes = vec![0; block.len()];
        let to = DevicePtr::new(first(&mut bytes), Device::CPU);
        // SAFETY: both have this many bytes, and are kept until the stream was waited for.
        unsafe { self.ops.copy(to, far(block, 0), block.len(), self.stream.id()) }.unwrap();
        self.ops.synchronize(self.stream.id()).unwrap();
        bytes
    }

    /// Copies elements on the device, and returns how often the calls were made.
    pub(super) fn copy(&self, to: &Block, from: &Block, item: usize, sides: (&Layout, &Layout)) -> [u64; 2] {
        drop(self.machine.take_calls());
        StridedLoops::with((sides.0, item), Some((sides.1, item)), |loops| {
            // SAFETY: the layouts are inside the blocks.
            unsafe { self.ops.copy_strided(far(to, 0), far(from, 0), item, loops, self.stream.id()) }
        })
        .unwrap()
        .unwrap();
        let calls = self.machine.take_calls();
        ["cuLaunchKernel", "cuMemcpy3DAsync_v2"].map(|name| calls.get(name).copied().unwrap_or(0))
    }

    /// Casts floats at the start of a block to `f64`.
    pub(super) fn cast(&self, to: &Block, from: &Block, count: usize, stream: StreamId) -> Result<(), Error> {
        let layout = Layout::contiguous(Shape::new(&[count]).unwrap());
        StridedLoops::with((&layout, 8), Some((&layout, 4)), |loops| {
            let (to, from) = ((to.device_ptr(), DType::F64), (from.device_ptr(), DType::F32));
            // SAFETY: the layouts are inside the blocks.
            unsafe { self.ops.cast(to, from, loops, stream) }
        })
        .unwrap()
    }
}

/// Checks the module with NVIDIA's assembler, where there is one: `ORLOP_PTXAS` is its path. It needs no GPU.
#[test]
fn the_assembler_accepts_the_module() {
    let Some(ptxas) = std::env::var_os("ORLOP_PTXAS") else {
        println!("skipped: ORLOP_PTXAS is not set");
        return;
    };
    let path = std::env::temp_dir().join(format!("orlop-kernels-{}.ptx", std::process::id()));
    std::fs::write(&path, CudaOps::kernel_text()).unwrap();
    let mut accepted = 0;
    for target in ["50", "52", "60", "61", "70", "75", "80", "86", "89", "90", "100", "120"] {
        let mut command = std::process::Command::new(&ptxas);
        let output =
            command.arg(format!("-arch=sm_{target}")).arg(&path).args(["-o", "/dev/null"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        if text.contains("'gpu-name'") {
            println!("skipped: this assembler has no sm_{target}");
            continue;
        }
        assert!(output.status.success() && text.is_empty(), "sm_{target}: {text}");
        println!("accepted for sm_{target}");
        accepted += 1;
    }
    assert!(accepted >= 5, "{accepted}");
    std::fs::remove_file(&path).unwrap();
}
