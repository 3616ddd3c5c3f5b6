//! [`PageOptions`]: what pages are created for.

use crate::device::DeviceState;
use crate::driver::abi::{self, AllocationProperties};
use crate::error::CudaError;

/// How a page is exported to other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PageHandleType {
    /// A file descriptor, for processes on the same machine.
    FileDescriptor,
    /// 64 bytes, also for processes on other machines of one NVLink fabric. It needs a channel of NVIDIA's
    /// import and export service (IMEX): without it the driver refuses to create pages.
    Fabric,
}

impl PageHandleType {
    /// Returns the driver's number, a bit.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::FileDescriptor => abi::HANDLE_FILE_DESCRIPTOR,
            Self::Fabric => abi::HANDLE_FABRIC,
        }
    }
}

/// What pages are created for, beside work of the device: for
/// [`CudaMemory::with_pages`](crate::CudaMemory::with_pages). The default is nothing else.
///
/// `PageOptions::new().rdma().handles(PageHandleType::FileDescriptor)` has what NCCL's `ncclMemAlloc` asks
/// the driver for, so that `ncclCommRegister` takes the memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageOptions {
    is_rdma: bool,
    handle_types: i32,
}

impl PageOptions {
    /// Creates the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets network cards and other hardware access the pages (GPUDirect RDMA).
    #[must_use]
    pub fn rdma(mut self) -> Self {
        self.is_rdma = true;
        self
    }

    /// Lets the pages be exported by this type of handles, beside others.
    #[must_use]
    pub fn handles(mut self, handles: PageHandleType) -> Self {
        self.handle_types |= handles.code();
        self
    }

    /// Returns the properties of pages of a device.
    pub(super) fn properties(self, device: &DeviceState) -> AllocationProperties {
        AllocationProperties::on_device(device.number(), self.handle_types, self.is_rdma)
    }

    /// Checks that a device has pages with these options.
    pub(crate) fn check(self, device: &DeviceState) -> Result<(), CudaError> {
        let has = |handles: PageHandleType| self.handle_types & handles.code() != 0;
        let needs = [
            (true, abi::ATTRIBUTE_VIRTUAL_MEMORY, "pages"),
            (self.is_rdma, abi::ATTRIBUTE_RDMA_PAGES, "pages for other hardware (GPUDirect RDMA)"),
            (
                has(PageHandleType::FileDescriptor),
                abi::ATTRIBUTE_FILE_DESCRIPTORS,
                "pages that are exported by file descriptors",
            ),
            (has(PageHandleType::Fabric), abi::ATTRIBUTE_FABRIC, "pages that are exported by fabric handles"),
        ];
        let wanted = needs.into_iter().filter(|&(is_wanted, ..)| is_wanted);
        wanted.into_iter().try_for_each(|(_, attribute, what)| match device.require(attribute, what) {
            // A driver from before the attribute.
            Err(CudaError::Failed(failure)) if failure.code == abi::INVALID_VALUE => {
                Err(CudaError::Unsupported { device: device.device(), what })
            }
            required => required,
        })
    }
}
