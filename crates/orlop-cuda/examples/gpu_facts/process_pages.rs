//! Blocks of pages that another process opens, in the order of an event.

use super::child::{OPENS_PAGES, Process, TIMEOUT};
use super::{Facts, Result, head, row};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_cuda::{CudaMemory, DeviceStream, DriverAllocator, ExportedPages, PageHandleType, PageOptions};
use orlop_device::{DeviceAllocator, Policy};
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

const BYTES: usize = 5 << 20;

/// The first process writes the block behind long work on a stream, without waiting, and the second one reads
/// it after the event; then the other way round, with the same event.
pub(super) fn process_pages(facts: &Facts) -> Result<()> {
    let options = PageOptions::new().handles(PageHandleType::FileDescriptor);
    head(&[
        "pages",
        "number",
        "pending there",
        "wrong bytes there",
        "pending here",
        "wrong bytes here",
        "wrong bytes of the neighbour",
    ]);
    let mut failed = Vec::new();
    for (name, options) in [("file descriptors", options), ("the same, `rdma`", options.rdma())] {
        match share(facts, options) {
            Ok((cells, 0)) => row(name, cells),
            Ok((cells, _)) => {
                row(name, cells);
                failed.push(format!("{name}: wrong bytes"));
            }
            Err(error) => {
                row(name, [error.to_string()]);
                failed.push(format!("{name}: {error}"));
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}

/// Returns the cells of a row, and the number of wrong bytes.
fn share(facts: &Facts, options: PageOptions) -> Result<(Vec<String>, usize)> {
    let device = &facts.device;
    let memory = CudaMemory::with_pages(device, options)?;
    let allocator: AllocatorRef = DeviceAllocator::new(memory, Policy::orlop()).into_ref().erase();
    let [before, shared] =
        [allocator.allocate(&Request::new(BYTES))?, allocator.allocate(&Request::new(BYTES))?];
    for (block, byte) in [(&before, 1), (&shared, 2)] {
        facts.fill_on(block.stream(), block, byte)?;
    }
    device.synchronize()?;
    let exported = device.export_pages(&shared, PageHandleType::FileDescriptor)?;
    let (event, stream) = (device.create_process_event()?, device.create_stream()?);
    let work = LongWork::new(facts)?;
    shared.record_stream(stream.id())?;

    let name = format!("orlop-facts-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let mut process = Process::start(facts, OPENS_PAGES, &name)?;
    let socket = accept(&listener, &mut process)?;
    (&socket).write_all(&event.export()?)?;
    exported.send(&socket)?;
    // It has opened both.
    let _ready = receive(&socket)?;
    work.submit(facts, &stream)?;
    facts.fill_on(stream.id(), &shared, 7)?;
    event.record(&stream)?;
    send(&socket, 1)?;
    // It has read 7, and writes 8 without waiting.
    let [was_pending, was_right] = [receive(&socket)?, receive(&socket)?];
    let is_pending = !event.is_complete()?;
    event.wait(&stream)?;
    let wrong = facts.wrong_bytes_on(stream.id(), &shared, 8)?;
    send(&socket, 1)?;
    process.finish()?;
    let neighbour = facts.wrong_bytes_on(before.stream(), &before, 1)?;
    let yes_or_no = |is_true: bool| if is_true { "yes" } else { "no" }.to_owned();
    let there = if was_right == 1 { "0" } else { "some" };
    let cells = vec![
        exported.page_count().to_string(),
        yes_or_no(was_pending == 1),
        there.to_owned(),
        yes_or_no(is_pending),
        wrong.to_string(),
        neighbour.to_string(),
    ];
    Ok((cells, wrong + neighbour + usize::from(was_right != 1)))
}

/// Opens the block and the event, reads after the event of the other process, and writes before its own.
pub(super) fn open_pages(facts: &Facts, name: &str) -> Result<()> {
    let device = &facts.device;
    let socket = limited(UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?)?;
    let mut event = [0; 64];
    (&socket).read_exact(&mut event)?;
    let pages = ExportedPages::receive(&socket)?;
    // SAFETY: the other process waits for this one, and keeps the event and the block.
    let event = unsafe { device.import_event(&event) }?;
    // SAFETY: as above.
    let block = unsafe { device.import_pages(&pages) }?;
    drop(pages);
    if block.len() != BYTES {
        return Err(format!("{} bytes were opened", block.len()).into());
    }
    // The block is for the default stream.
    let stream = device.adopt_stream(device.context().default_stream())?;
    let work = LongWork::new(facts)?;
    send(&socket, 1)?;
    let _recorded = receive(&socket)?;
    let is_pending = !event.is_complete()?;
    event.wait(&stream)?;
    let wrong = facts.wrong_bytes_on(stream.id(), &block, 7)?;
    work.submit(facts, &stream)?;
    facts.fill_on(stream.id(), &block, 8)?;
    event.record(&stream)?;
    send(&socket, u8::from(is_pending))?;
    send(&socket, u8::from(wrong == 0))?;
    let _has_read = receive(&socket)?;
    device.synchronize()?;
    Ok(())
}

/// Fills of a large block, which take about 50 ms on an H100.
struct LongWork {
    scratch: Block,
    fills: usize,
}

impl LongWork {
    fn new(facts: &Facts) -> Result<Self> {
        let allocator = DriverAllocator::direct(&facts.device).into_ref();
        let request = Request::new(facts.or_simulated(1 << 30, 4 << 20));
        Ok(Self { scratch: allocator.allocate(&request)?, fills: facts.or_simulated(100, 10) })
    }

    fn submit(&self, facts: &Facts, stream: &DeviceStream) -> Result<()> {
        self.scratch.record_stream(stream.id())?;
        (0..self.fills).try_for_each(|_| facts.fill_on(stream.id(), &self.scratch, 3))
    }
}

/// Waits for a connection as long as the other process runs.
fn accept(listener: &UnixListener, process: &mut Process) -> Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false)?;
                return limited(socket);
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if !process.is_running()? => return Err("the other process has ended".into()),
            Err(_) if start.elapsed() > TIMEOUT => return Err("the other process does not connect".into()),
            Err(_) => sleep(Duration::from_millis(2)),
        }
    }
}

/// Limits the time of all waits for a socket.
fn limited(socket: UnixStream) -> Result<UnixStream> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

fn send(mut socket: &UnixStream, byte: u8) -> Result<()> {
    Ok(socket.write_all(&[byte])?)
}

fn receive(mut socket: &UnixStream) -> Result<u8> {
    let mut byte = [0];
    socket.read_exact(&mut byte)?;
    Ok(byte[0])
}
