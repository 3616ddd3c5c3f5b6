//! Blocks in regions: exported as bytes, and opened by another process.

use super::{ImportedMemory, OpenImport};
use crate::device::{self, CudaDevice, DeviceState};
use crate::driver::abi::{self, DeviceAddress, IpcHandle};
use crate::error::CudaError;
use orlop_alloc::{Block, Deleter, Result};

/// The driver's handle of an allocation, and the place of a block in it: in bytes, 64 and twice eight.
struct ExportedBlock {
    handle: IpcHandle,
    offset: u64,
    bytes: u64,
}

impl ExportedBlock {
    fn to_bytes(&self) -> Vec<u8> {
        [&self.handle.0[..], &self.offset.to_le_bytes(), &self.bytes.to_le_bytes()].concat()
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let (handle, rest) = bytes.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let [offset, bytes] = [offset, bytes].map(|number| u64::from_le_bytes(*number));
        rest.is_empty().then_some(Self { handle: IpcHandle(*handle), offset, bytes })
    }
}

impl CudaDevice {
    /// Exports a block for other processes, which open it with [`CudaDevice::import_memory`]. The driver
    /// exports regions: those of [`CudaMemory::in_regions`](crate::CudaMemory::in_regions), of policies
    /// without pages, and of [`DriverAllocator::direct`](crate::DriverAllocator::direct). The result is 80
    /// bytes, to be sent by any means.
    ///
    /// A process that opens the block can access all of its region: the driver exports no parts.
    ///
    /// # Errors
    ///
    /// [`CudaError::NotOnDevice`]; [`CudaError::Unsupported`] for pages, which
    /// `CudaDevice::export_pages` exports on Linux, managed memory and memory of pools, and for an empty
    /// block; failures of the driver.
    pub fn export_memory(&self, block: &Block) -> std::result::Result<Vec<u8>, CudaError> {
        let address = block.as_ptr().as_ptr().addr();
        if block.device() != self.device() {
            return Err(CudaError::NotOnDevice { device: self.device(), address });
        }
        let unsupported = CudaError::Unsupported {
            device: self.device(),
            what: "exporting memory that is not in regions: see CudaMemory::in_regions and export_pages",
        };
        if block.is_empty() {
            return Err(unsupported);
        }
        let (address, bytes) = (address as DeviceAddress, block.len() as u64);
        let (start, _) = self.state().allocation_of(address)?;
        let get = self.driver().symbols.cuIpcGetMemHandle;
        let get = get.ok_or(CudaError::DriverTooOld { symbol: "cuIpcGetMemHandle" })?;
        let mut handle = IpcHandle([0; 64]);
        let scope = self.state().enter()?;
        // SAFETY: it writes one handle.
        let code = unsafe { get(&raw mut handle, start) };
        match scope.driver().check("cuIpcGetMemHandle", code) {
            Err(failure) if matches!(failure.code, abi::INVALID_VALUE | abi::NOT_SUPPORTED) => {
                Err(unsupported)
            }
            got => {
                got?;
                Ok(ExportedBlock { handle, offset: address - start, bytes }.to_bytes())
            }
        }
    }

    /// Opens a block that another process exported with [`CudaDevice::export_memory`]. It is for the
    /// default stream, and is closed when it is dropped, after the work of that stream: the host waits for
    /// it. A drop while a stream captures that the default stream waits for leaves it open: it is closed
    /// after the capture, when a [`CaptureScope`](crate::CaptureScope) or a stream ends, or by the next call
    /// of this function or of [`CudaDevice::open_imports`].
    ///
    /// # Errors
    ///
    /// [`CudaError::NotExported`] if the bytes are not those of an export; failures of the driver, for
    /// instance for memory of this process itself, of another device, or of a process that is gone.
    ///
    /// # Safety
    ///
    /// 1. The bytes are the result of [`CudaDevice::export_memory`], and the exporting process keeps the
    ///    block until the result is closed: it was dropped, and [`CudaDevice::open_imports`] does not count
    ///    it. If the driver failed to close it, that is when this process has ended.
    /// 2. No two processes access the memory at once if one of them writes: each waits for its own work
    ///    before it tells the other, or records a [`ProcessEvent`](crate::ProcessEvent) that the other's
    ///    stream waits for.
    pub unsafe fn import_memory(&self, exported: &[u8]) -> Result<Block> {
        device::run_deferred_frees();
        let wrong = CudaError::NotExported { device: self.device() };
        let exported = ExportedBlock::of(exported).ok_or(wrong)?;
        let base = self.state().open_exported(exported.handle)?;
        let close = OpenImport::new(self, ImportedMemory::Region(base));
        let (start, bytes) = self.state().allocation_of(base)?;
        let inside = exported.offset.checked_add(exported.bytes).is_some_and(|end| end <= bytes as u64);
        if start != base || !inside {
            return Err(wrong.into());
        }
        let bytes = usize::try_from(exported.bytes).map_err(|_| wrong)?;
        // SAFETY: the driver has mapped it until it is closed, and others are ordered (guaranteed by the
        // caller).
        unsafe { self.foreign_block(base + exported.offset, bytes, Deleter::from_owner(close)) }
    }
}

impl DeviceState {
    /// Returns the start and the bytes of the allocation that an address is in.
    fn allocation_of(
        &self,
        address: DeviceAddress,
    ) -> std::result::Result<(DeviceAddress, usize), CudaError> {
        let range = self.driver.symbols.cuMemGetAddressRange_v2;
        let range = range.ok_or(CudaError::DriverTooOld { symbol: "cuMemGetAddressRange" })?;
        let (mut start, mut bytes) = (0, 0);
        let scope = self.enter()?;
        // SAFETY: it writes two numbers.
        let code = unsafe { range(&raw mut start, &raw mut bytes, address) };
        scope.driver().check("cuMemGetAddressRange", code)?;
        Ok((start, bytes))
    }

    fn open_exported(&self, handle: IpcHandle) -> std::result::Result<DeviceAddress, CudaError> {
        let open = self.driver.symbols.cuIpcOpenMemHandle_v2;
        let open = open.ok_or(CudaError::DriverTooOld { symbol: "cuIpcOpenMemHandle" })?;
        let mut base = 0;
        let scope = self.enter()?;
        // SAFETY: it writes one address.
        let code = unsafe { open(&raw mut base, handle, abi::IPC_LAZY_PEER_ACCESS) };
        scope.driver().check("cuIpcOpenMemHandle", code)?;
        Ok(base)
    }

    /// Closes a region of another process.
    ///
    /// # Safety
    ///
    /// It was opened once for this call, and is not used any more.
    pub(super) unsafe fn close_exported(&self, base: DeviceAddress) -> std::result::Result<(), CudaError> {
        let close = self.driver.symbols.cuIpcCloseMemHandle;
        let close = close.ok_or(CudaError::DriverTooOld { symbol: "cuIpcCloseMemHandle" })?;
        let scope = self.enter()?;
        // SAFETY: guaranteed by the caller.
        let code = unsafe { close(base) };
        Ok(scope.driver().check("cuIpcCloseMemHandle", code)?)
    }
}
