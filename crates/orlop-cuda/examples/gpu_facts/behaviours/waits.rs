//! Calls of the host that wait for the work of a stream which has nothing to do with them.

use super::calls::{Handle, Reservation};
use super::child::{CALL_IN_USE, Process};
use super::pending::Pending;
use super::{Facts, Result, answer, head, raw, row, timed};
use cudarc::driver::sys::CUstream;
use std::any::Any;

const MIB: usize = 1 << 20;
const SMALL: usize = 4 * MIB;
const LARGE: usize = 32 * MIB;
/// The time of the work.
const MS: f64 = 40.0;

/// What a call leaves behind: it is dropped when nothing is measured.
type Left = Box<dyn Any>;
type Call = Box<dyn FnOnce() -> Result<Left>>;
type More = Box<dyn Fn(CUstream) -> Result<()>>;

/// A call, prepared while the stream is idle.
struct Prepared {
    call: Call,
    /// Work of the stream that the call has to do with.
    more: Option<More>,
    takes_stream: bool,
}

fn call<T: 'static>(call: impl FnOnce() -> Result<T> + 'static) -> Prepared {
    let call = Box::new(|| Ok(Box::new(call()?) as Left));
    Prepared { call, more: None, takes_stream: false }
}

/// A thing that the driver is told to take back when it is dropped.
struct Undo<T: Copy>(T, fn(T) -> Result<()>);

impl<T: Copy> Drop for Undo<T> {
    fn drop(&mut self) {
        // What it would fail with, the next call does, too.
        let _ = (self.1)(self.0);
    }
}

/// A mapped page of device memory.
struct Page {
    reservation: Reservation,
    handle: Handle,
}

impl Page {
    fn map() -> Result<Self> {
        let (reservation, handles) = (Reservation::new(LARGE)?, [Handle::create(LARGE)?]);
        reservation.map(&handles, LARGE)?;
        reservation.allow()?;
        let [handle] = handles;
        Ok(Self { reservation, handle })
    }

    /// Unmaps and releases the page, and returns its addresses.
    fn unmap(self) -> Result<Reservation> {
        self.reservation.unmap(LARGE)?;
        drop(self.handle);
        Ok(self.reservation)
    }
}

/// An idle stream beside the busy one.
fn other() -> Result<Undo<CUstream>> {
    Ok(Undo(raw::create_stream(raw::NON_BLOCKING)?, raw::destroy_stream))
}

type Prepare = fn(CUstream) -> Result<Prepared>;

const CALLS: [(&str, Prepare); 27] = [
    ("`cuMemAlloc`", |_| Ok(call(|| Ok(Undo(raw::allocate(LARGE)?, raw::free))))),
    ("`cuMemFree`", |_| {
        let address = raw::allocate(LARGE)?;
        Ok(call(move || raw::free(address)))
    }),
    ("`cuMemAllocManaged`", |_| Ok(call(|| Ok(Undo(raw::allocate_managed(LARGE)?, raw::free))))),
    ("`cuMemFree` of managed memory", |_| {
        let address = raw::allocate_managed(LARGE)?;
        Ok(call(move || raw::free(address)))
    }),
    ("`cuMemHostAlloc`", |_| Ok(call(|| Ok(Undo(raw::allocate_host(SMALL)?, raw::free_host))))),
    ("`cuMemFreeHost`", |_| {
        let address = raw::allocate_host(SMALL)?;
        Ok(call(move || raw::free_host(address)))
    }),
    ("`cuMemHostRegister`", |_| {
        let mut memory = vec![0_u8; SMALL];
        let address = memory.as_mut_ptr().cast();
        Ok(call(move || {
            raw::register_host(address, SMALL)?;
            // Unregistered before the memory is freed.
            Ok((Undo(address, raw::unregister_host), memory))
        }))
    }),
    ("`cuMemHostUnregister`", |_| {
        let mut memory = vec![0_u8; SMALL];
        let address = memory.as_mut_ptr().cast();
        raw::register_host(address, SMALL)?;
        Ok(call(move || raw::unregister_host(address).map(|()| memory)))
    }),
    ("`cuMemCreate`, `cuMemMap`, `cuMemSetAccess`", |_| {
        Ok(call(|| {
            let page = Page::map()?;
            Ok(UnmapsLater(Some(page)))
        }))
    }),
    ("`cuMemUnmap`, `cuMemRelease`", |_| {
        let page = Page::map()?;
        Ok(call(|| page.unmap()))
    }),
    ("`cuMemAllocAsync` on another stream", |_| {
        let stream = other()?;
        Ok(call(move || {
            let address = raw::allocate_on(stream.0, LARGE)?;
            Ok((Undo(address, raw::free), stream))
        }))
    }),
    ("`cuMemFreeAsync` on another stream", |_| {
        let stream = other()?;
        let address = raw::allocate_on(stream.0, LARGE)?;
        raw::synchronize(stream.0)?;
        Ok(call(move || raw::free_on(stream.0, address).map(|()| stream)))
    }),
    ("`cuMemPoolCreate`", |_| Ok(call(|| Ok(Undo(raw::create_pool(0)?, raw::destroy_pool))))),
    ("`cuMemPoolTrimTo`, of a pool with cached memory", |_| {
        let pool = cached_pool()?;
        Ok(call(move || raw::trim_pool(pool.0).map(|()| pool)))
    }),
    ("`cuMemPoolDestroy`, of a pool with cached memory", |_| {
        let pool = std::mem::ManuallyDrop::new(cached_pool()?);
        Ok(call(move || raw::destroy_pool(pool.0)))
    }),
    ("`cuStreamCreate`", |_| Ok(call(other))),
    ("`cuStreamDestroy` of another, idle stream", |_| {
        let stream = raw::create_stream(raw::NON_BLOCKING)?;
        Ok(call(move || raw::destroy_stream(stream)))
    }),
    ("`cuStreamDestroy` of the busy stream", |stream| {
        Ok(Prepared { takes_stream: true, ..call(move || raw::destroy_stream(stream)) })
    }),
    ("`cuStreamSynchronize` of another, idle stream", |_| {
        let stream = other()?;
        Ok(call(move || raw::synchronize(stream.0).map(|()| stream)))
    }),
    ("`cuEventCreate`", |_| Ok(call(|| Ok(Undo(raw::create_event()?, raw::destroy_event))))),
    ("`cuEventDestroy` of a pending event", |_| {
        let event = raw::create_event()?;
        let more: Option<More> = Some(Box::new(move |stream| raw::record(event, stream)));
        Ok(Prepared { more, ..call(move || raw::destroy_event(event)) })
    }),
    ("`cuModuleLoadData`", |_| Ok(call(|| Ok(Undo(raw::load_module()?, raw::unload_module))))),
    ("first launch of a kernel, on another stream", |_| {
        let (stream, module) = (other()?, Undo(raw::load_module()?, raw::unload_module));
        Ok(call(move || raw::launch(module.0, stream.0).map(|()| (stream, module))))
    }),
    ("`cuModuleUnload` of an idle module", |_| {
        let (stream, module) = (other()?, raw::load_module()?);
        raw::launch(module, stream.0)?;
        raw::synchronize(stream.0)?;
        Ok(call(move || raw::unload_module(module)))
    }),
    ("`cuMemsetD8` of other memory", |_| {
        let region = Undo(raw::allocate(SMALL)?, raw::free);
        Ok(call(move || raw::fill_now(region.0, SMALL).map(|()| region)))
    }),
    ("`cuMemcpyDtoH` of other memory", |_| {
        let region = Undo(raw::allocate(SMALL)?, raw::free);
        let mut bytes = vec![0; SMALL];
        Ok(call(move || raw::read_now(&mut bytes, region.0).map(|()| region)))
    }),
    ("`cuMemGetInfo`", |_| Ok(call(raw::free_memory))),
];

fn written(address: u64, bytes: usize) -> Option<More> {
    Some(Box::new(move |stream| raw::fill(address, bytes, stream)))
}

/// Calls that take away what the work writes: a driver that does not wait loses the device.
const CALLS_IN_USE: [(&str, Prepare); 4] = [
    ("`cuMemFree` of a region in use", |_| {
        let address = raw::allocate(LARGE)?;
        Ok(Prepared { more: written(address, LARGE), ..call(move || raw::free(address)) })
    }),
    ("`cuMemFreeHost` of a buffer in use", |_| {
        let address = raw::allocate_host(SMALL)?;
        Ok(Prepared { more: written(address.addr() as u64, SMALL), ..call(move || raw::free_host(address)) })
    }),
    ("`cuMemHostUnregister` of memory in use", |_| {
        let mut memory = vec![0_u8; SMALL];
        let address: *mut std::ffi::c_void = memory.as_mut_ptr().cast();
        raw::register_host(address, SMALL)?;
        Ok(Prepared {
            more: written(address.addr() as u64, SMALL),
            ..call(move || raw::unregister_host(address).map(|()| memory))
        })
    }),
    ("`cuMemUnmap`, `cuMemRelease` of pages in use", |_| {
        let page = Page::map()?;
        Ok(Prepared { more: written(page.reservation.start, LARGE), ..call(|| page.unmap()) })
    }),
];

/// A page that is unmapped when it is dropped.
struct UnmapsLater(Option<Page>);

impl Drop for UnmapsLater {
    fn drop(&mut self) {
        let _ = self.0.take().map(Page::unmap);
    }
}

/// A pool that keeps memory which is free.
fn cached_pool() -> Result<Undo<cudarc::driver::sys::CUmemoryPool>> {
    let (pool, stream) = (Undo(raw::create_pool(u64::MAX)?, raw::destroy_pool), other()?);
    let address = raw::allocate_from(pool.0, stream.0, LARGE)?;
    raw::free_on(stream.0, address)?;
    raw::synchronize(stream.0)?;
    Ok(pool)
}

/// For each call whether the stream was still busy after it, and the milliseconds of the call.
pub(super) fn waits(facts: &Facts) -> Result<()> {
    let pending = Pending::new(facts, MS)?;
    head(&["call", "non-blocking stream", "ms", "blocking stream", "ms"]);
    for (name, prepare) in CALLS {
        let mut cells = Vec::new();
        for flags in [raw::NON_BLOCKING, 0] {
            match measure(&pending, flags, prepare) {
                Ok((answer, ms)) => cells.extend([answer, format!("{ms:.2}")]),
                Err(error) => cells.extend([answer::<()>(&Err(error)), "-".to_owned()]),
            }
        }
        row(name, cells);
    }
    println!("\nOf what the work itself writes, each in a process of its own:\n");
    head(&["call", "non-blocking stream", "ms", "the work"]);
    for (index, (name, _)) in CALLS_IN_USE.iter().enumerate() {
        match Process::start(facts, CALL_IN_USE, &index.to_string()).and_then(Process::finish) {
            Ok(printed) => print!("{printed}"),
            Err(error) => row(name, [error.to_string(), "-".to_owned(), "-".to_owned()]),
        }
    }
    Ok(())
}

/// Makes one of the calls that take away what is in use, and prints its row.
pub(in super::super) fn call_in_use(facts: &Facts, index: &str) -> Result<()> {
    let (name, prepare) = CALLS_IN_USE.get(index.parse::<usize>()?).ok_or("no such call")?;
    facts.device.context().bind_to_thread()?;
    let pending = Pending::new(facts, MS)?;
    let stream = raw::create_stream(raw::NON_BLOCKING)?;
    let prepared = prepare(stream)?;
    if let Some(more) = &prepared.more {
        pending.start_with(stream, more)?;
    }
    let (ms, outcome) = timed(prepared.call);
    let (is_busy, finished) = (pending.is_busy(), pending.finish());
    let state = match is_busy {
        Ok(true) => "busy".to_owned(),
        Ok(false) => "waited".to_owned(),
        Err(_) => answer(&is_busy),
    };
    let state = if outcome.is_ok() { state } else { format!("{state}, {}", answer(&outcome)) };
    row(name, [state, format!("{ms:.2}"), answer(&finished)]);
    Ok(())
}

fn measure(pending: &Pending, flags: u32, prepare: Prepare) -> Result<(String, f64)> {
    let stream = raw::create_stream(flags)?;
    let prepared = prepare(stream)?;
    match &prepared.more {
        Some(more) => pending.start_with(stream, more)?,
        None => pending.start(stream)?,
    }
    let (ms, outcome) = timed(prepared.call);
    let is_busy = pending.is_busy()?;
    // For what the call has submitted, too.
    raw::synchronize_context()?;
    if !prepared.takes_stream {
        raw::destroy_stream(stream)?;
    }
    let mut text = if is_busy { "busy" } else { "waited" }.to_owned();
    if outcome.is_err() {
        text = format!("{text}, {}", answer(&outcome));
    }
    Ok((text, ms))
}
