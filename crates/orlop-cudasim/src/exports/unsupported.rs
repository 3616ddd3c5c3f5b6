//! Functions that are exported so that a program finds them, and return `CUDA_ERROR_NOT_SUPPORTED`.

use crate::call::calls;
use crate::codes::Failure;

calls! {
    fn cuCtxCreate_v4(_context: usize, _parameters: usize, _flags: u32, _device: i32) Init |_driver| {
        Err(Failure::NOT_SUPPORTED)
    }

    fn cuCtxCreate_v3(
        _context: usize,
        _parameters: usize,
        _count: i32,
        _flags: u32,
        _device: i32,
    ) Init |_driver| { Err(Failure::NOT_SUPPORTED) }

    fn cuCtxDestroy_v2(_context: u64) Init |_driver| { Err(Failure::NOT_SUPPORTED) }

    fn cuImportExternalMemory(_memory: usize, _description: usize) Context |_driver| {
        Err(Failure::NOT_SUPPORTED)
    }

    fn cuExternalMemoryGetMappedBuffer(
        _address: usize,
        _memory: usize,
        _description: usize,
    ) Context |_driver| { Err(Failure::NOT_SUPPORTED) }

    fn cuDestroyExternalMemory(_memory: usize) Context |_driver| { Err(Failure::NOT_SUPPORTED) }

    fn cuOccupancyMaxActiveClusters(_count: usize, _function: u64, _config: usize) Context |_driver| {
        Err(Failure::NOT_SUPPORTED)
    }

    fn cuOccupancyMaxPotentialClusterSize(
        _size: usize,
        _function: u64,
        _config: usize,
    ) Context |_driver| { Err(Failure::NOT_SUPPORTED) }
}
