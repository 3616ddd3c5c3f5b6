//! Several threads hand buffers to each other by events.

use crate::support::{OK, allocate, at, start_with};
use cudarc::driver::sys;
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use std::ptr;
use std::sync::Mutex;
use std::time::Duration;

/// A buffer, and the event that its last user recorded.
struct Buffer {
    address: sys::CUdeviceptr,
    event: usize,
}

fn event(buffer: &Buffer) -> sys::CUevent {
    ptr::with_exposed_provenance_mut(buffer.event)
}

/// Returns the number of races of four threads that use, wait for, free and destroy. One in `forgets` uses
/// does not wait for the user before; 0 for none.
fn races(forgets: u32) -> u64 {
    let (driver, context) = start_with(&SimulationConfig::new().waiting_frees(true));
    let buffers: Vec<Buffer> = (0..12)
        .map(|_| {
            let mut event = ptr::null_mut();
            assert_eq!(cu!(cuEventCreate(&raw mut event, 2)), OK);
            Buffer { address: allocate(4096), event: event.expose_provenance() }
        })
        .collect();
    let buffers = Mutex::new(buffers);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (buffers, context, driver) = (&buffers, &context, &*driver);
            scope.spawn(move || {
                context.bind_to_thread().expect("a context");
                let create = || {
                    let mut stream = ptr::null_mut();
                    assert_eq!(cu!(cuStreamCreate(&raw mut stream, 1)), OK);
                    stream
                };
                let mut stream = create();
                for step in 0..500u32 {
                    let mut buffer = {
                        let mut all = buffers.lock().expect("no panic");
                        let place = usize::try_from(step * 7 + thread).expect("small") % all.len();
                        all.swap_remove(place)
                    };
                    if forgets == 0 || step % forgets != 0 {
                        assert_eq!(cu!(cuStreamWaitEvent(stream, event(&buffer), 0)), OK);
                    }
                    let nanoseconds = u64::from(1 + step * 37 % 5000);
                    let run = KernelRun::new("k").writes(at(buffer.address), 4096);
                    let run = run.takes(Duration::from_nanos(nanoseconds));
                    driver.run_kernel(stream.expose_provenance() as u64, run).expect("ok");
                    assert_eq!(cu!(cuEventRecord(event(&buffer), stream)), OK);
                    if step % 11 == 0 {
                        // Freed and allocated again, after a wait for the device.
                        assert_eq!(cu!(cuMemFree_v2(buffer.address)), OK);
                        buffer.address = allocate(4096);
                    }
                    buffers.lock().expect("no panic").push(buffer);
                    if step % 50 == 49 {
                        assert_eq!(cu!(cuStreamDestroy_v2(stream)), OK);
                        stream = create();
                    }
                }
                assert_eq!(cu!(cuStreamDestroy_v2(stream)), OK);
            });
        }
    });
    assert_eq!(cu!(cuCtxSynchronize()), OK);
    assert_eq!(driver.counts().streams, 0);
    driver.counts().races
}

#[test]
fn buffers_that_are_handed_over_do_not_race() {
    assert_eq!(races(0), 0);
}

/// Threads that happen to run one after the other are ordered by what they free.
#[test]
fn a_forgotten_wait_is_found() {
    assert!((0..50).any(|_| races(10) > 0));
}
