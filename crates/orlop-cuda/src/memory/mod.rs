//! Sources of memory for engines.
//!
//! | type | memory |
//! |---|---|
//! | [`CudaMemory`] | a device's: regions, or pages that move; managed memory on request |
//! | [`PinnedMemory`] | the host's, locked for copies |

mod pages;
mod pinned;

pub use self::pinned::PinnedMemory;

pub(crate) use self::pages::DevicePages;
#[cfg(target_os = "linux")]
pub(crate) use self::pages::{MappedPages, PageHandle};
pub use self::pages::{PageHandleType, PageOptions};

use crate::device::{self, CudaDevice, DeviceState, StreamTarget, resolve};
use crate::driver::{abi, call};
use crate::error::CudaError;
use orlop_alloc::AllocatorRef;
use orlop_core::{Device, StreamId};
use orlop_device::{BackingError, CaptureCount, DeviceBacking, EventId};
use std::sync::Arc;

/// The memory of a CUDA device, for a [`DeviceAllocator`](orlop_device::DeviceAllocator).
///
/// With pages, memory is mapped into ranges of addresses (`cuMemCreate`, `cuMemMap`): it grows in place, and
/// free pages move to where they are needed. Without, it comes in regions (`cuMemAlloc`).
///
/// A request for the host's stream ([`StreamId::HOST`]) is one for the default stream of the device.
#[derive(Debug)]
pub struct CudaMemory {
    device: CudaDevice,
    source: RegionKind,
    pages: Option<Arc<DevicePages>>,
}

/// The memory that regions are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegionKind {
    Device,
    Managed,
}

impl CudaMemory {
    /// Returns the memory of a device in pages, if the device can map pages, and in regions otherwise.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn new(device: &CudaDevice) -> Result<Self, CudaError> {
        Self::in_pages(device, PageOptions::new())
    }

    /// Returns the memory of a device that network cards and other hardware can access (GPUDirect RDMA), for
    /// buffers that NCCL, UCX or a driver of the card registers: in pages that are flagged so, if the device
    /// can map pages, and otherwise in regions, which always can be registered.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unsupported`] if the pages of the device cannot have the flag:
    /// [`CudaMemory::in_regions`] can be registered there; failures of the driver.
    pub fn for_rdma(device: &CudaDevice) -> Result<Self, CudaError> {
        let options = PageOptions::new().rdma();
        if device.state().attribute(abi::ATTRIBUTE_VIRTUAL_MEMORY)? != 0 {
            options.check(device.state())?;
        }
        Self::in_pages(device, options)
    }

    /// Returns the memory of a device in pages with options: pages that can be exported
    /// (`CudaDevice::export_pages`, on Linux), and that other hardware can access.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unsupported`] if the device cannot map pages, or those of an option; failures of the
    /// driver.
    pub fn with_pages(device: &CudaDevice, options: PageOptions) -> Result<Self, CudaError> {
        options.check(device.state())?;
        let memory = Self::in_pages(device, options)?;
        let unsupported = CudaError::Unsupported { device: device.device(), what: "pages" };
        if memory.pages.is_some() { Ok(memory) } else { Err(unsupported) }
    }

    fn in_pages(device: &CudaDevice, options: PageOptions) -> Result<Self, CudaError> {
        let pages = DevicePages::new(device.state(), options)?.map(Arc::new);
        pages.iter().for_each(|pages| device.state().follow_access(pages));
        Ok(Self { pages, ..Self::in_regions(device) })
    }

    /// Returns the memory of a device in regions, which the driver can export to other processes and
    /// libraries can register.
    #[must_use]
    pub fn in_regions(device: &CudaDevice) -> Self {
        Self { device: device.clone(), source: RegionKind::Device, pages: None }
    }

    /// Returns managed memory, which the driver moves between the device and the host as they access it. It
    /// is in regions. Blocks of it count as the device's: nothing prevents the host and a stream from
    /// accessing them at once, so safe code cannot read them on the host.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unsupported`]; failures of the driver.
    pub fn managed(device: &CudaDevice) -> Result<Self, CudaError> {
        device.state().require(abi::ATTRIBUTE_MANAGED_MEMORY, "managed memory")?;
        Ok(Self { source: RegionKind::Managed, ..Self::in_regions(device) })
    }

    fn state(&self) -> &DeviceState {
        self.device.state()
    }

    /// The host's stream stands for the device's default stream.
    fn stream(&self, stream: StreamId) -> StreamId {
        if stream == StreamId::HOST { self.device.default_stream() } else { stream }
    }

    fn allocate_region(&self, bytes: usize) -> Result<usize, CudaError> {
        let mut address = 0;
        let scope = self.state().enter()?;
        match self.source {
            // SAFETY: it writes one address.
            RegionKind::Device => unsafe { call!(scope.driver(), cuMemAlloc_v2(&raw mut address, bytes)) },
            // SAFETY: it writes one address.
            RegionKind::Managed => unsafe {
                call!(scope.driver(), cuMemAllocManaged(&raw mut address, bytes, abi::ATTACH_GLOBAL))
            },
        }?;
        to_host_size(address)
    }

    fn pages(&self) -> Result<&DevicePages, BackingError> {
        self.pages.as_deref().ok_or(BackingError::Unsupported)
    }
}

/// Converts an address or a size of the driver.
fn to_host_size(value: u64) -> Result<usize, CudaError> {
    usize::try_from(value).map_err(|_| CudaError::OutOfMemory { call: "the address space" })
}

/// Fills memory with zeros, in the order of a stream.
///
/// # Safety
///
/// The bytes are memory of the stream's device, or of the host and pinned, and only that stream uses them.
pub(crate) unsafe fn zero(address: usize, bytes: usize, stream: StreamId) -> Result<(), CudaError> {
    // Bound, so that the stream exists until the call has returned.
    let StreamTarget::Stream { device, handle, _entry } = resolve(stream)? else {
        return Err(CudaError::UnknownStream { stream });
    };
    let scope = device.enter()?;
    scope.refuse_implicit(handle, "cuMemsetD8Async")?;
    // SAFETY: guaranteed by the caller; the target keeps the stream.
    Ok(unsafe { call!(scope.driver(), cuMemsetD8Async(address as u64, 0, bytes, handle)) }?)
}

// SAFETY: 1. regions are the driver's, which do not overlap and begin at multiples of 256 bytes or more; see
// `allocate` for 512. Pages: see `pages`. 2. events are the driver's. 3. calls that fail have no effect; see
// `pages` for those of several steps. 4. the granularity is the driver's minimum, a power of two.
unsafe impl DeviceBacking for CudaMemory {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        let address = self.allocate_region(bytes)?;
        if address.is_multiple_of(REGION_ALIGN) {
            return Ok(address);
        }
        // The driver documents 256 bytes only; drivers give 512 and more.
        // SAFETY: allocated above, and used nowhere.
        unsafe { self.release(address, bytes) }?;
        Err(BackingError::Unsupported)
    }

    unsafe fn release(&self, address: usize, _: usize) -> Result<(), BackingError> {
        let scope = self.state().enter()?;
        // SAFETY: a region from `allocate`, released once (guaranteed by the caller).
        Ok(unsafe { call!(scope.driver(), cuMemFree_v2(address as u64)) }.map_err(CudaError::from)?)
    }

    fn page_granularity(&self) -> Option<usize> {
        self.pages.as_deref().map(DevicePages::granularity)
    }

    fn reserve_addresses(&self, bytes: usize) -> Result<usize, BackingError> {
        Ok(self.pages()?.reserve(self.state(), bytes)?)
    }

    unsafe fn release_addresses(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.pages()?.release(self.state(), address, bytes) }?)
    }

    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.pages()?.map(self.state(), address, bytes, page) }?)
    }

    unsafe fn unmap(&self, address: usize, bytes: usize, _: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.pages()?.unmap(self.state(), address, bytes) }?)
    }

    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.pages()?.remap(self.state(), from, to, bytes, page) }?)
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { zero(address, bytes, self.stream(stream)) }?)
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        Ok(self.state().record_use(self.stream(stream))?)
    }

    fn query(&self, event: EventId) -> Result<bool, BackingError> {
        Ok(self.state().query_use(event)?)
    }

    fn synchronize(&self, event: EventId) -> Result<(), BackingError> {
        Ok(self.state().synchronize_use(event)?)
    }

    fn forget(&self, event: EventId) {
        device::forget(event);
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), BackingError> {
        Ok(self.state().wait_for_use(self.stream(stream), event)?)
    }

    fn has_ended(&self, stream: StreamId) -> bool {
        device::has_ended(stream)
    }

    fn is_capturing(&self, stream: StreamId) -> bool {
        device::is_capturing(self.stream(stream))
    }

    fn knows_stream(&self, stream: StreamId) -> bool {
        let stream = self.stream(stream);
        device::is_known(stream)
            && !matches!(self.state().check_stream(stream), Err(CudaError::OtherDevice { .. }))
    }

    fn capture_count(&self) -> Option<CaptureCount> {
        Some(self.state().captures.clone())
    }

    fn memory(&self) -> u64 {
        self.state().total()
    }

    fn free_memory(&self) -> Option<u64> {
        self.device.memory().ok().map(|memory| memory.free)
    }

    fn on_shared(&self, allocator: &AllocatorRef) {
        self.device.link(allocator);
    }

    fn neighbours(&self) -> Vec<AllocatorRef> {
        self.state().linked_allocators()
    }

    fn device(&self) -> Device {
        self.device.device()
    }

    fn name(&self) -> &str {
        match (self.source, &self.pages) {
            (RegionKind::Managed, _) => "cuda-managed",
            (RegionKind::Device, Some(_)) => "cuda-pages",
            (RegionKind::Device, None) => "cuda",
        }
    }
}

/// Engines rely on regions that begin at multiples of this many bytes.
const REGION_ALIGN: usize = 512;
