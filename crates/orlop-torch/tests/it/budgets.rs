//! Budgets by scope, and the callback before an out-of-memory error.

use crate::machine::{MEMORY, Machine, last_error, pointer};
use orlop_torch::{
    orlop_torch_close_budget, orlop_torch_free, orlop_torch_malloc, orlop_torch_open_budget,
    orlop_torch_set_pressure_callback,
};
use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;
use std::thread;

#[test]
fn a_budget_limits_what_a_scope_adds() {
    let machine = Machine::new(16);
    let stream = machine.device.create_stream().unwrap();
    let before = machine.malloc(64 << 20, &stream);
    let outer = orlop_torch_open_budget(machine.number, 32 << 20);
    let inner = orlop_torch_open_budget(machine.number, 16 << 20);
    assert!(outer != 0 && inner != 0 && outer != inner);
    let first = machine.malloc(12 << 20, &stream);
    assert_eq!(machine.malloc(8 << 20, &stream), 0);
    let error = last_error();
    assert!(error.starts_with("CUDA out of memory. Tried to allocate 8.00 MiB"), "{error}");
    assert!(error.contains("12.0 MiB of a budget of 16.0 MiB are in live blocks"), "{error}");
    // The outer budget counts what the inner one counted.
    orlop_torch_close_budget(machine.number, inner);
    let second = machine.malloc(20 << 20, &stream);
    assert_ne!(second, 0);
    assert_eq!(machine.malloc(1 << 20, &stream), 0);
    machine.free(first, &stream);
    let third = machine.malloc(12 << 20, &stream);
    assert_ne!(third, 0);
    // What was there before, and is freed, is room for the scope.
    machine.free(before, &stream);
    orlop_torch_close_budget(machine.number, outer);
    orlop_torch_close_budget(machine.number, outer);
    let last = machine.malloc(64 << 20, &stream);
    for block in [second, third, last] {
        assert_ne!(block, 0);
        machine.free(block, &stream);
    }
    assert_eq!(orlop_torch_open_budget(99, 1), 0);
    assert_eq!(machine.driver.counts().races, 0);
}

#[test]
fn threads_cannot_share_the_rest_of_a_budget() {
    let machine = Machine::new(17);
    let number = machine.number;
    let budget = orlop_torch_open_budget(number, 10 << 20);
    let served: usize = thread::scope(|scope| {
        let request = || {
            // SAFETY: the default stream always exists. The blocks are freed below.
            (0..100)
                .filter(|_| !unsafe { orlop_torch_malloc(1 << 20, number, ptr::null_mut()) }.is_null())
                .count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(request)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(served, 10);
    assert_eq!(machine.stat("allocation.all.current"), 10);
    orlop_torch_close_budget(number, budget);
}

/// Blocks that the callback frees, and how often it was called.
static CACHE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

extern "C" fn drop_the_cache(device: c_int, bytes: u64) -> c_int {
    let mut cache = CACHE.lock().unwrap();
    cache.1 += 1;
    // A request of the callback that fails does not call it again.
    let bytes = isize::try_from(bytes).unwrap();
    // SAFETY: the default stream always exists.
    assert!(unsafe { orlop_torch_malloc(bytes, device, ptr::null_mut()) }.is_null());
    let freed = cache.0.len();
    for block in cache.0.drain(..) {
        // SAFETY: a block of the test, which no work uses.
        unsafe { orlop_torch_free(pointer(block), 0, device, ptr::null_mut()) };
    }
    c_int::from(freed > 0)
}

#[test]
fn the_program_may_free_memory_before_a_request_fails() {
    let machine = Machine::new(6);
    let stream = machine.device.create_stream().unwrap();
    let large = MEMORY / 3 * 2;
    CACHE.lock().unwrap().0.push(machine.malloc(large, &stream));
    assert_eq!(machine.malloc(large, &stream), 0, "there is no callback");
    orlop_torch_set_pressure_callback(Some(drop_the_cache));
    let block = machine.malloc(large, &stream);
    assert_ne!(block, 0, "{}", last_error());
    // A budget is a reason to call it, too; now it frees nothing.
    let budget = orlop_torch_open_budget(machine.number, 1 << 20);
    assert_eq!(machine.malloc(2 << 20, &stream), 0);
    assert_eq!(CACHE.lock().unwrap().1, 2);
    orlop_torch_set_pressure_callback(None);
    assert_eq!(machine.malloc(2 << 20, &stream), 0);
    assert_eq!(CACHE.lock().unwrap().1, 2);
    orlop_torch_close_budget(machine.number, budget);
    machine.free(block, &stream);
}
