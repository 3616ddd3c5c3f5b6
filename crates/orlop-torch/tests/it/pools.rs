//! Private pools, chosen by a function as PyTorch passes one.

use crate::machine::{Machine, handle, last_error};
use orlop_torch::{
    PoolIdPair, StdFunction, orlop_torch_begin_allocate_to_pool, orlop_torch_end_allocate_to_pool,
    orlop_torch_release_pool, orlop_torch_trim,
};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// A `std::function<bool(cudaStream_t)>` that compares the stream with its first word.
#[repr(C)]
struct ComparesStream {
    functor: [usize; 2],
    manager: extern "C" fn(*mut [usize; 2], *const [usize; 2], c_int) -> bool,
    invoker: extern "C" fn(*const [usize; 2], *const *mut c_void) -> bool,
}

static COPIES: AtomicI64 = AtomicI64::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn manage(to: *mut [usize; 2], from: *const [usize; 2], operation: c_int) -> bool {
    match operation {
        2 => {
            COPIES.fetch_add(1, Ordering::Relaxed);
            // SAFETY: libstdc++'s rule: both are functors.
            unsafe { to.copy_from_nonoverlapping(from, 1) };
        }
        3 => _ = COPIES.fetch_sub(1, Ordering::Relaxed),
        other => panic!("{other}"),
    }
    false
}

extern "C" fn invoke(functor: *const [usize; 2], stream: *const *mut c_void) -> bool {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: libstdc++'s rule: it is called with its functor.
    let functor = unsafe { *functor };
    // SAFETY: libstdc++'s rule: arguments are passed by reference.
    let stream = unsafe { *stream };
    stream.addr() == functor[0]
}

const POOL: PoolIdPair = PoolIdPair { first: 0, second: 7 };

fn begin(device: c_int, stream: *mut c_void) {
    let takes = ComparesStream { functor: [stream.addr(), 0], manager: manage, invoker: invoke };
    // SAFETY: it has the parts of such a function.
    unsafe { orlop_torch_begin_allocate_to_pool(device, POOL, (&raw const takes).cast::<StdFunction>()) };
}

#[test]
fn a_pool_has_the_requests_that_its_function_takes() {
    let machine = Machine::new(9);
    let (own, other) = (machine.device.create_stream().unwrap(), machine.device.create_stream().unwrap());
    begin(machine.number, handle(&own));
    let pooled = machine.malloc(3 << 20, &own);
    let common = machine.malloc(3 << 20, &other);
    assert_eq!((COPIES.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed)), (1, 2));
    machine.free(pooled, &own);
    assert_eq!(machine.malloc(3 << 20, &own), pooled, "the pool's requests reuse its memory");
    orlop_torch_end_allocate_to_pool(machine.number, POOL);
    assert_eq!(COPIES.load(Ordering::Relaxed), 0);
    machine.free(pooled, &own);
    let outside = machine.malloc(3 << 20, &own);
    assert_ne!(outside, pooled, "the pool's memory is its own");

    begin(machine.number, handle(&own));
    assert_eq!(machine.malloc(3 << 20, &own), pooled);
    machine.free(pooled, &own);
    orlop_torch_end_allocate_to_pool(machine.number, POOL);
    for block in [common, outside] {
        machine.free(block, &own);
    }
    orlop_torch_trim(machine.number);
    assert!(machine.stat("reserved_bytes.all.current") > 0, "a pool with users keeps its memory");
    for _ in 0..2 {
        orlop_torch_release_pool(machine.number, POOL);
    }
    orlop_torch_trim(machine.number);
    assert_eq!(machine.stat("reserved_bytes.all.current"), 0);
    orlop_torch_release_pool(machine.number, POOL);
    assert!(last_error().contains("pool"), "{}", last_error());
    assert_eq!(machine.driver.counts().races, 0);
}
