//! Whether handles and addresses are given again.

use super::calls::{Handle, Reservation, check};
use super::child::{CONTEXT_IDS, Process};
use super::{Facts, Result, head, raw, row};
use cudarc::driver::sys;
use orlop_cuda::Driver;
use std::collections::BTreeSet;
use std::ptr;

const COUNT: usize = 100;
const BYTES: usize = 4 << 20;

/// Creates a thing, and returns its handle or address, and what destroys it.
type Create = fn() -> Result<(u64, Destroy)>;
type Destroy = Box<dyn FnOnce() -> Result<()>>;

/// Destroys a thing by dropping it.
fn dropped<T: 'static>(thing: T) -> Destroy {
    Box::new(move || {
        drop(thing);
        Ok(())
    })
}

const KINDS: [(&str, Create); 8] = [
    ("streams", || {
        let stream = raw::create_stream(raw::NON_BLOCKING)?;
        Ok((stream.addr() as u64, Box::new(move || raw::destroy_stream(stream))))
    }),
    ("ids of streams (`cuStreamGetId`)", || {
        let stream = raw::create_stream(raw::NON_BLOCKING)?;
        let mut id = 0;
        // SAFETY: a live stream; it writes one number.
        check(unsafe { sys::cuStreamGetId(stream, &raw mut id) })?;
        Ok((id, Box::new(move || raw::destroy_stream(stream))))
    }),
    ("events", || {
        let event = raw::create_event()?;
        Ok((event.addr() as u64, Box::new(move || raw::destroy_event(event))))
    }),
    ("pools", || {
        let pool = raw::create_pool(0)?;
        Ok((pool.addr() as u64, Box::new(move || raw::destroy_pool(pool))))
    }),
    ("pages (`cuMemCreate`)", || {
        let page = Handle::create(BYTES)?;
        Ok((page.0, dropped(page)))
    }),
    ("reservations of 4 MiB", || {
        let reservation = Reservation::new(BYTES)?;
        Ok((reservation.start, dropped(reservation)))
    }),
    ("regions of 4 MiB", || {
        let address = raw::allocate(BYTES)?;
        Ok((address, Box::new(move || raw::free(address))))
    }),
    ("pinned buffers of 4 MiB", || {
        let address = raw::allocate_host(BYTES)?;
        Ok((address.addr() as u64, Box::new(move || raw::free_host(address))))
    }),
];

/// Creates and destroys things of each kind, one after another, and all before the next ones.
pub(super) fn handles(facts: &Facts) -> Result<()> {
    head(&["what", "different ones of 100, each destroyed before the next", "of 100 destroyed, given again"]);
    for (name, create) in KINDS {
        let mut in_turn = BTreeSet::new();
        for _ in 0..COUNT {
            let (handle, destroy) = create()?;
            in_turn.insert(handle);
            destroy()?;
        }
        let at_once = || -> Result<BTreeSet<u64>> {
            let all = (0..COUNT).map(|_| create()).collect::<Result<Vec<_>>>()?;
            all.into_iter().map(|(handle, destroy)| destroy().map(|()| handle)).collect()
        };
        let (before, after) = (at_once()?, at_once()?);
        row(name, [in_turn.len(), before.intersection(&after).count()]);
    }
    println!("\nThe primary context, retained and released in another process:\n");
    head(&["time", "id", "handle"]);
    print!("{}", Process::start(facts, CONTEXT_IDS, "")?.finish()?);
    Ok(())
}

/// Prints the ids of primary contexts, one after another. No other code has retained it.
pub(in super::super) fn print_context_ids() -> Result<()> {
    Driver::load()?;
    let mut device = 0;
    // SAFETY: it writes one number.
    check(unsafe { sys::cuDeviceGet(&raw mut device, 0) })?;
    let mut first = None;
    for time in 1..=3 {
        let (mut context, mut id) = (ptr::null_mut(), 0);
        // SAFETY: it writes one handle.
        check(unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) })?;
        // SAFETY: the context is live; it writes one number.
        check(unsafe { sys::cuCtxGetId(context, &raw mut id) })?;
        let is_first = *first.get_or_insert(context) == context;
        row(time, [id.to_string(), if is_first { "the first" } else { "another" }.to_owned()]);
        // SAFETY: retained above.
        check(unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) })?;
    }
    Ok(())
}
