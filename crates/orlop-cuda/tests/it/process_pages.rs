//! Blocks of pages that another process opens, in the order of an event.

#![cfg(target_os = "linux")]

use crate::machine::Machine;
use crate::processes::{exported, fill, in_regions, read, run_with};
use orlop_alloc::engine_support::{DeviceOps, DevicePtr};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_core::Device;
use orlop_cuda::{
    CudaDevice, CudaError, CudaMemory, CudaOps, DeviceStream, ExportedPages, PageHandleType, PageOptions,
};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::{DeviceAllocator, Growth, Policy};
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::thread::JoinHandleExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

const BYTES: usize = 5 << 20;

/// The default machine, whose pages are exported by both types of handles.
fn config() -> SimulationConfig {
    SimulationConfig::new().page_handles(true, true)
}

fn in_pages(device: &CudaDevice, options: PageOptions) -> AllocatorRef {
    let memory = CudaMemory::with_pages(device, options).unwrap();
    DeviceAllocator::new(memory, Policy::orlop()).into_ref().erase()
}

fn for_descriptors() -> PageOptions {
    PageOptions::new().rdma().handles(PageHandleType::FileDescriptor)
}

/// Fills a block on a stream, and does not wait.
fn fill_on(stream: &DeviceStream, device: &CudaDevice, block: &Block, byte: u8) {
    // SAFETY: the block has these bytes.
    unsafe { CudaOps::new(device).fill(block.device_ptr(), &[byte], block.len(), stream.id()) }.unwrap();
}

/// Reads a block on a stream.
fn read_on(stream: &DeviceStream, device: &CudaDevice, block: &Block) -> Vec<u8> {
    let (ops, mut bytes) = (CudaOps::new(device), vec![0_u8; block.len()]);
    let to = DevicePtr::new(NonNull::from(bytes.as_mut_slice()).cast(), Device::CPU);
    // SAFETY: both have these bytes, and are kept until the stream was waited for.
    unsafe { ops.copy(to, block.device_ptr(), block.len(), stream.id()) }.unwrap();
    ops.synchronize(stream.id()).unwrap();
    bytes
}

fn socket_at(name: &[u8]) -> SocketAddr {
    SocketAddr::from_abstract_name(name).unwrap()
}

/// Connects when it is dropped, so that a process whose other one is gone does not wait for it.
struct Wakes<'a>(&'a [u8]);

impl Drop for Wakes<'_> {
    fn drop(&mut self) {
        let _refused = UnixStream::connect_addr(&socket_at(self.0));
    }
}

fn signal(mut socket: &UnixStream) {
    socket.write_all(&[1]).unwrap();
}

fn await_signal(mut socket: &UnixStream) {
    socket.read_exact(&mut [0]).unwrap();
}

/// The first process writes the block on a stream, without waiting, and the second one reads it after the
/// event; then the other way round, with the same event.
#[test]
fn two_processes_share_pages_in_the_order_of_an_event() {
    let machine = Machine::new(&config().bytes_per_microsecond(10));
    let device = &machine.device;
    let allocator = in_pages(device, for_descriptors());
    let [before, shared] = [(); 2].map(|()| allocator.allocate(&Request::new(BYTES)).unwrap());
    fill(device, &before, 1);
    fill(device, &shared, 2);
    assert!(machine.counts().rdma_pages > 0);
    let exported = device.export_pages(&shared, PageHandleType::FileDescriptor).unwrap();
    assert!(exported.to_bytes().is_none(), "descriptors are no bytes");
    let (event, stream) = (device.create_process_event().unwrap(), device.create_stream().unwrap());
    shared.record_stream(stream.id()).unwrap();
    fill_on(&stream, device, &shared, 7);
    event.record(&stream).unwrap();

    let name = format!("orlop-test-{}", std::process::id());
    let listener = UnixListener::bind_addr(&socket_at(name.as_bytes())).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _wakes = Wakes(name.as_bytes());
            run_with("process_pages::the_other_process", name.as_bytes());
        });
        let (socket, _) = listener.accept().unwrap();
        (&socket).write_all(&event.export().unwrap()).unwrap();
        exported.send(&socket).unwrap();
        // It has read 7, and writes 8 without waiting.
        await_signal(&socket);
        event.wait(&stream).unwrap();
        assert!(read_on(&stream, device, &shared) == vec![8; BYTES]);
        assert!(event.is_complete().unwrap());
        signal(&socket);
        await_signal(&socket);
    });
    assert!(read(device, &before) == vec![1; BYTES]);
    assert_eq!(machine.races().len(), 0);
}

#[test]
#[ignore = "run by `two_processes_share_pages_in_the_order_of_an_event`, in another process"]
fn the_other_process() {
    let machine = Machine::new(&config().bytes_per_microsecond(10));
    let device = &machine.device;
    let socket = UnixStream::connect_addr(&socket_at(&exported())).unwrap();
    let mut event = [0; 64];
    (&socket).read_exact(&mut event).unwrap();
    let pages = ExportedPages::receive(&socket).unwrap();
    // SAFETY: the other process waits for this one, and keeps the event and the block.
    let event = unsafe { device.import_event(&event) }.unwrap();
    // SAFETY: as above.
    let block = unsafe { device.import_pages(&pages) }.unwrap();
    drop(pages);
    assert_eq!((block.len(), device.open_imports(), machine.used_memory(0)), (BYTES, 1, 0));
    // The block is for the default stream.
    let stream = device.adopt_stream(device.context().default_stream()).unwrap();
    // The simulated device of the other process has not begun to write: it goes on when it is waited for.
    assert!(read_on(&stream, device, &block) == vec![2; BYTES], "the write is pending");
    event.wait(&stream).unwrap();
    assert!(read_on(&stream, device, &block) == vec![7; BYTES]);
    fill_on(&stream, device, &block, 8);
    event.record(&stream).unwrap();
    signal(&socket);
    await_signal(&socket);
    event.synchronize().unwrap();
    drop(block);
    assert_eq!(device.open_imports(), 0);
    assert_eq!(machine.calls("cuMemImportFromShareableHandle"), machine.calls("cuMemRelease"));
    assert_eq!(machine.races().len(), 0);
    signal(&socket);
}

/// What a process imports from itself is the same memory at other addresses.
#[test]
fn pages_are_exported_by_both_types_of_handles() {
    let machine = Machine::new(&config());
    let device = &machine.device;
    let allocator = in_pages(device, for_descriptors().handles(PageHandleType::Fabric));
    let block = allocator.allocate(&Request::new(BYTES)).unwrap();
    fill(device, &block, 3);
    let by_fabric = device.export_pages(&block, PageHandleType::Fabric).unwrap();
    let bytes = by_fabric.to_bytes().unwrap();
    assert_eq!(bytes.len(), 16 + 72 * by_fabric.page_count());
    let [here, there] = UnixStream::pair().map(<[_; 2]>::from).unwrap();
    device.export_pages(&block, PageHandleType::FileDescriptor).unwrap().send(&here).unwrap();
    assert_eq!(by_fabric.send(&here).unwrap_err().kind(), ErrorKind::InvalidInput);
    let imports = [ExportedPages::from_bytes(&bytes).unwrap(), ExportedPages::receive(&there).unwrap()];
    for exported in &imports {
        // SAFETY: the block is kept, and each access is waited for.
        let import = unsafe { device.import_pages(exported) }.unwrap();
        assert_ne!(import.as_ptr(), block.as_ptr());
        assert!(read(device, &import) == vec![3; BYTES]);
    }
    assert_eq!(device.open_imports(), 0);

    // Blocks that the pages do not hold, and bytes that are no export.
    for (change, to) in [(3, 0xff), (12, 1), (18, 0x77)] {
        let mut wrong = bytes.clone();
        wrong[change] = to;
        let wrong = ExportedPages::from_bytes(&wrong).unwrap();
        // SAFETY: refused.
        let refused = unsafe { device.import_pages(&wrong) };
        let refused = refused.err().unwrap_or_else(|| panic!("{change}"));
        assert!(matches!(refused.backend_error(), Some(CudaError::NotExported { .. })), "{refused}");
    }
    for wrong in [&bytes[..16], &bytes[..bytes.len() - 1], &bytes[..7]] {
        assert!(ExportedPages::from_bytes(wrong).is_none());
    }
}

#[test]
fn more_descriptors_than_a_message_has_are_passed() {
    let machine = Machine::new(&config().granularity(1 << 16).poison(false));
    let device = &machine.device;
    let mut policy = Policy::orlop();
    policy.growth = Growth::Pages { small: 1 << 16, large: 1 << 16 };
    policy.extensions.large_pages = false;
    let memory = CudaMemory::with_pages(device, for_descriptors()).unwrap();
    let allocator = DeviceAllocator::new(memory, policy).into_ref();
    let block = allocator.allocate(&Request::new(300 << 16)).unwrap();
    fill(device, &block, 5);
    let exported = device.export_pages(&block, PageHandleType::FileDescriptor).unwrap();
    assert!(exported.page_count() >= 300, "{}", exported.page_count());
    let [here, there] = UnixStream::pair().map(<[_; 2]>::from).unwrap();
    exported.send(&here).unwrap();
    let received = ExportedPages::receive(&there).unwrap();
    assert_eq!(received.page_count(), exported.page_count());
    // SAFETY: the block is kept, and each access is waited for.
    let import = unsafe { device.import_pages(&received) }.unwrap();
    assert!(read(device, &import) == vec![5; 300 << 16]);
}

/// A thread that waits for descriptors goes on to wait after the handler of a signal has run.
#[test]
fn a_signal_does_not_break_an_exchange() {
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handle(_: libc::c_int) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: numbers and no handlers, of which zeros are valid ones.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler only adds to an atomic number; calls that it interrupts are not restarted, and no
    // other test sends this signal.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()) }, 0);
    let [here, there] = UnixStream::pair().map(<[_; 2]>::from).unwrap();
    // An export of one page, whose descriptor is waited for.
    let head = [u64::from_le_bytes(*b"orlop/pg"), 0, 1, 1, 1 << 21];
    (&here).write_all(&head.map(u64::to_le_bytes).concat()).unwrap();
    let receiver = std::thread::spawn(move || ExportedPages::receive(&there));
    while HANDLED.load(Ordering::Relaxed) < 100 && !receiver.is_finished() {
        // SAFETY: a thread that was not joined.
        unsafe { libc::pthread_kill(receiver.as_pthread_t(), libc::SIGUSR1) };
        std::thread::yield_now();
    }
    drop(here);
    assert_eq!(receiver.join().unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_socket_with_something_else_is_an_error() {
    let [here, there] = UnixStream::pair().map(<[_; 2]>::from).unwrap();
    (&here).write_all(&[7; 32]).unwrap();
    assert_eq!(ExportedPages::receive(&there).unwrap_err().kind(), ErrorKind::InvalidData);
    // An export whose descriptors are missing, of a number of pages that cannot be.
    let head = [u64::from_le_bytes(*b"orlop/pg"), 0, 1, u64::MAX, 1 << 21];
    (&here).write_all(&head.map(u64::to_le_bytes).concat()).unwrap();
    drop(here);
    assert_eq!(ExportedPages::receive(&there).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let [here, there] = UnixStream::pair().map(<[_; 2]>::from).unwrap();
    let head = [u64::from_le_bytes(*b"orlop/pg"), 0, 1, 1, 1 << 21];
    (&here).write_all(&head.map(u64::to_le_bytes).concat()).unwrap();
    signal(&here);
    assert_eq!(ExportedPages::receive(&there).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn pages_that_cannot_be_shared_are_a_typed_error() {
    use PageHandleType::{Fabric, FileDescriptor};
    for (config, options) in [
        (config().page_handles(false, true), for_descriptors()),
        (config().page_handles(true, false), PageOptions::new().handles(Fabric)),
        (config().rdma(false), for_descriptors()),
        (config().virtual_memory(false), for_descriptors()),
    ] {
        let machine = Machine::new(&config);
        let refused = CudaMemory::with_pages(&machine.device, options).unwrap_err();
        assert!(matches!(refused, CudaError::Unsupported { .. }), "{refused}");
    }
    let machine = Machine::new(&config().devices([1 << 28, 1 << 28]));
    let device = &machine.device;
    let refused = |block: &Block, handles| device.export_pages(block, handles).unwrap_err();
    let allocator = in_pages(device, for_descriptors());
    let allocate = |allocator: &AllocatorRef, bytes| allocator.allocate(&Request::new(bytes)).unwrap();
    let block = allocate(&allocator, BYTES);
    let plain = allocate(&in_pages(device, PageOptions::new()), BYTES);
    let (region, empty) = (allocate(&in_regions(device), BYTES), allocate(&allocator, 0));
    for (block, handles) in
        [(&block, Fabric), (&plain, FileDescriptor), (&region, FileDescriptor), (&empty, FileDescriptor)]
    {
        assert!(matches!(refused(block, handles), CudaError::Unsupported { .. }));
    }
    let far = allocate(&in_pages(&CudaDevice::new(1).unwrap(), for_descriptors()), BYTES);
    assert!(matches!(refused(&far, FileDescriptor), CudaError::NotOnDevice { .. }));

    machine.fail("cuMemExportToShareableHandle", 2, 999).unwrap();
    assert!(matches!(refused(&block, FileDescriptor), CudaError::Failed(_)));
    // What fails on the way leaves nothing open.
    let exported = device.export_pages(&block, FileDescriptor).unwrap();
    let used = machine.used_memory(0);
    let steps = [
        "cuMemAddressReserve",
        "cuMemImportFromShareableHandle",
        "cuMemMap",
        "cuMemSetAccess",
        "cuPointerGetAttribute",
    ];
    for step in steps {
        machine.fail(step, 1, 999).unwrap();
        // SAFETY: refused.
        assert!(unsafe { device.import_pages(&exported) }.is_err(), "{step}");
        assert_eq!((device.open_imports(), machine.used_memory(0)), (0, used), "{step}");
    }
    assert_eq!(
        machine.calls("cuMemAddressReserve") - machine.calls("cuMemAddressFree"),
        4,
        "the three allocators', and the one that failed"
    );
}
