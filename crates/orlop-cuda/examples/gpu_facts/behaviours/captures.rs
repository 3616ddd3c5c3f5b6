//! What calls answer while a stream captures, and whether the capture goes on.

use super::calls::{Handle, Reservation};
use super::{Facts, Result, answer, head, raw, row};
use cudarc::driver::sys::CUstreamCaptureMode::{
    self, CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
};
use cudarc::driver::sys::{CUevent, CUmodule, CUstream};
use std::ffi::c_void;

const BYTES: usize = 2 << 20;

/// What the calls of a cell are made on. What a call takes away is `None` after it.
struct Setting {
    /// Captures.
    stream: CUstream,
    /// Idle, and does not capture.
    other: CUstream,
    doomed: Option<CUstream>,
    /// Recorded before the capture, and complete.
    before: CUevent,
    /// Recorded in the capture.
    inside: Option<CUevent>,
    fresh: CUevent,
    scratch: u64,
    region: Option<u64>,
    pooled: Option<u64>,
    pinned: Option<*mut c_void>,
    /// Of one page each, which is mapped, or not yet.
    mapped: Reservation,
    unmapped: Reservation,
    /// What a call has created: destroyed after the capture.
    regions: Vec<u64>,
    buffers: Vec<*mut c_void>,
    modules: Vec<CUmodule>,
}

impl Setting {
    fn new() -> Result<Self> {
        let stream = raw::create_stream(raw::NON_BLOCKING)?;
        let other = raw::create_stream(raw::NON_BLOCKING)?;
        let before = raw::create_event()?;
        let pooled = raw::allocate_on(stream, BYTES)?;
        raw::record(before, stream)?;
        raw::synchronize(stream)?;
        let (mapped, unmapped) = (Reservation::new(BYTES)?, Reservation::new(BYTES)?);
        map(&mapped)?;
        Ok(Self {
            stream,
            other,
            doomed: Some(raw::create_stream(raw::NON_BLOCKING)?),
            before,
            inside: Some(raw::create_event()?),
            fresh: raw::create_event()?,
            scratch: raw::allocate(BYTES)?,
            region: Some(raw::allocate(BYTES)?),
            pooled: Some(pooled),
            pinned: Some(raw::allocate_host(BYTES)?),
            mapped,
            unmapped,
            regions: Vec::new(),
            buffers: Vec::new(),
            modules: Vec::new(),
        })
    }

    fn begin(&self, mode: CUstreamCaptureMode) -> Result<()> {
        raw::begin_capture(self.stream, mode)?;
        raw::fill(self.scratch, BYTES, self.stream)?;
        self.inside.map_or(Ok(()), |event| raw::record(event, self.stream))
    }

    /// Takes everything back, after the capture.
    fn clear(self) -> Result<()> {
        raw::synchronize_context()?;
        for reservation in [&self.mapped, &self.unmapped] {
            // It fails where nothing is mapped.
            let _ = reservation.unmap(BYTES);
        }
        self.modules.into_iter().try_for_each(raw::unload_module)?;
        self.regions.into_iter().chain([self.scratch]).chain(self.region).try_for_each(raw::free)?;
        self.pooled.map_or(Ok(()), |address| raw::free_on(self.other, address))?;
        self.buffers.into_iter().chain(self.pinned).try_for_each(raw::free_host)?;
        [Some(self.before), Some(self.fresh), self.inside]
            .into_iter()
            .flatten()
            .try_for_each(raw::destroy_event)?;
        raw::synchronize_context()?;
        [Some(self.stream), Some(self.other), self.doomed]
            .into_iter()
            .flatten()
            .try_for_each(raw::destroy_stream)
    }
}

/// Maps a page, which goes with its mapping.
fn map(reservation: &Reservation) -> Result<()> {
    reservation.map(&[Handle::create(BYTES)?], BYTES)?;
    reservation.allow()
}

/// Makes a call on something, which is gone if the call succeeds.
fn take<T: Copy>(thing: &mut Option<T>, call: impl FnOnce(T) -> Result<()>) -> Result<()> {
    if let Some(handle) = *thing {
        call(handle)?;
        *thing = None;
    }
    Ok(())
}

type Call = fn(&mut Setting) -> Result<()>;

const CALLS: [(&str, Call); 33] = [
    ("`cuMemAlloc`", |setting| {
        setting.regions.push(raw::allocate(BYTES)?);
        Ok(())
    }),
    ("`cuMemFree`", |setting| take(&mut setting.region, raw::free)),
    ("`cuMemHostAlloc`", |setting| {
        setting.buffers.push(raw::allocate_host(BYTES)?);
        Ok(())
    }),
    ("`cuMemFreeHost`", |setting| take(&mut setting.pinned, raw::free_host)),
    ("`cuMemCreate`, `cuMemMap`, `cuMemSetAccess`", |setting| map(&setting.unmapped)),
    ("`cuMemUnmap`", |setting| setting.mapped.unmap(BYTES)),
    ("`cuMemAddressReserve`, `cuMemAddressFree`", |_| Reservation::new(BYTES).map(drop)),
    ("`cuEventQuery`, recorded before the capture", |setting| raw::query_event(setting.before)),
    ("`cuEventSynchronize`, recorded before it", |setting| raw::synchronize_event(setting.before)),
    ("`cuEventQuery`, recorded in it", |setting| setting.inside.map_or(Ok(()), raw::query_event)),
    ("`cuEventSynchronize`, recorded in it", |setting| setting.inside.map_or(Ok(()), raw::synchronize_event)),
    ("`cuEventDestroy`, recorded in it", |setting| take(&mut setting.inside, raw::destroy_event)),
    ("`cuEventCreate`, `cuEventDestroy`", |_| raw::create_event().and_then(raw::destroy_event)),
    ("`cuEventRecord` in another stream", |setting| raw::record(setting.fresh, setting.other)),
    ("`cuStreamWaitEvent` of the stream, for an event of before", |setting| {
        raw::wait_event(setting.stream, setting.before)
    }),
    ("`cuStreamWaitEvent` of another, for an event of before", |setting| {
        raw::wait_event(setting.other, setting.before)
    }),
    ("`cuStreamQuery` of the stream", |setting| raw::query(setting.stream)),
    ("`cuStreamQuery` of another", |setting| raw::query(setting.other)),
    ("`cuStreamSynchronize` of the stream", |setting| raw::synchronize(setting.stream)),
    ("`cuStreamSynchronize` of another", |setting| raw::synchronize(setting.other)),
    ("`cuCtxSynchronize`", |_| raw::synchronize_context()),
    ("`cuStreamCreate`, `cuStreamDestroy`", |_| {
        raw::create_stream(raw::NON_BLOCKING).and_then(raw::destroy_stream)
    }),
    ("`cuStreamDestroy` of another, idle", |setting| take(&mut setting.doomed, raw::destroy_stream)),
    ("`cuMemAllocAsync` on the stream", |setting| raw::allocate_on(setting.stream, BYTES).map(drop)),
    ("`cuMemFreeAsync` on it, of `cuMemAllocAsync` before", |setting| {
        setting.pooled.map_or(Ok(()), |address| raw::free_on(setting.stream, address))
    }),
    ("`cuMemFreeAsync` on it, of `cuMemAlloc`", |setting| {
        setting.region.map_or(Ok(()), |address| raw::free_on(setting.stream, address))
    }),
    ("`cuMemFree`, of `cuMemAllocAsync` before", |setting| take(&mut setting.pooled, raw::free)),
    ("`cuMemAllocAsync` on another", |setting| {
        let address = raw::allocate_on(setting.other, BYTES)?;
        setting.regions.push(address);
        Ok(())
    }),
    ("`cuMemFreeAsync` on another", |setting| {
        let other = setting.other;
        take(&mut setting.pooled, |address| raw::free_on(other, address))
    }),
    ("`cuMemsetD8Async` on another", |setting| raw::fill(setting.scratch, BYTES, setting.other)),
    ("`cuMemsetD8`", |setting| raw::fill_now(setting.scratch, BYTES)),
    ("`cuModuleLoadData`", |setting| {
        setting.modules.push(raw::load_module()?);
        Ok(())
    }),
    ("`cuMemGetInfo`", |_| raw::free_memory().map(drop)),
];

/// A way to call in a capture: a mode, and whether another thread than the capturing one calls.
const COLUMNS: [(&str, CUstreamCaptureMode, bool); 5] = [
    ("thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false),
    ("global", CU_STREAM_CAPTURE_MODE_GLOBAL, false),
    ("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, false),
    ("thread-local, another thread", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true),
    ("global, another thread", CU_STREAM_CAPTURE_MODE_GLOBAL, true),
];

/// The answer to each call in each mode, and whether it ended the capture.
pub(super) fn captures(facts: &Facts) -> Result<()> {
    let names = COLUMNS.map(|(name, ..)| name);
    head(&[&["call"], names.as_slice()].concat());
    for (name, call) in CALLS {
        let cells = COLUMNS.map(|(_, mode, by_another)| {
            cell(facts, mode, by_another, call)
                .unwrap_or_else(|error| format!("FAILED: {}", answer::<()>(&Err(error))))
        });
        row(name, cells);
    }
    Ok(())
}

fn cell(facts: &Facts, mode: CUstreamCaptureMode, by_another: bool, call: Call) -> Result<String> {
    let mut setting = Setting::new()?;
    setting.begin(mode)?;
    let outcome = if by_another { in_another_thread(facts, &mut setting, call) } else { call(&mut setting) };
    let status = raw::is_capturing(setting.stream);
    let ended = raw::end_capture(setting.stream);
    setting.clear()?;
    let mut text = answer(&outcome);
    match status {
        Ok(true) if ended.is_ok() => {}
        Ok(true) => text = format!("{text}, ended by {}", answer(&ended)),
        Ok(false) => text.push_str(", ENDED"),
        Err(_) => text = format!("{text}, status {}", answer(&status)),
    }
    Ok(text)
}

/// Handles of the driver, for another thread.
struct Sent<'a>(&'a mut Setting);

// SAFETY: any thread may use handles of the driver, and this one waits for the other.
unsafe impl Send for Sent<'_> {}

impl Sent<'_> {
    fn call(self, call: Call) -> Result<()> {
        call(self.0)
    }
}

fn in_another_thread(facts: &Facts, setting: &mut Setting, call: Call) -> Result<()> {
    let sent = Sent(setting);
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            facts.device.context().bind_to_thread()?;
            sent.call(call)
        });
        thread.join().unwrap_or_else(|_| Err("it panicked".into()))
    })
}
