//! The pool of exact sizes: growth of its bound, and rounding of requests.

use orlop_alloc::backing::System;
use orlop_alloc::engine::{Pool, PoolBuilder, Rounding};
use orlop_alloc::{Allocator, AllocatorRef, Request};

fn pool() -> PoolBuilder<System> {
    Pool::builder(System::new())
}

/// Allocates and frees one block of each of `sizes` sizes, `rounds` times.
fn cycle(pool: &AllocatorRef<Pool<System>>, sizes: usize, rounds: usize) {
    for _ in 0..rounds {
        let blocks: Vec<_> = (1..=sizes)
            .map(|size| pool.allocate(&Request::new(size * 64)).expect("there is memory"))
            .collect();
        drop(blocks);
    }
}

/// TensorFlow's rule: after every thousand evictions, if more than one put in 500 evicts and more than one
/// request in 500 misses, the bound grows by a tenth, and by at least 100.
#[test]
fn a_bound_that_is_too_small_grows() {
    let growing = pool().bound(8).build().into_ref();
    // 16 sizes for 8 places: each round has 8 evictions and 16 misses.
    cycle(&growing, 16, 124);
    assert_eq!((growing.bound(), growing.evictions()), (8, 124 * 8));
    cycle(&growing, 16, 1);
    assert_eq!(growing.bound(), 100);
    let evictions = growing.evictions();
    cycle(&growing, 16, 500);
    assert_eq!((growing.bound(), growing.evictions()), (100, evictions), "all sizes have a place now");
    assert_eq!(growing.stats().usage.regions, 16);
}

#[test]
fn a_large_bound_grows_by_a_tenth() {
    let growing = pool().bound(1000).build().into_ref();
    cycle(&growing, 1999, 1);
    assert_eq!((growing.bound(), growing.evictions()), (1000, 999));
    drop(growing.allocate(&Request::new(1 << 20)).unwrap());
    assert_eq!((growing.bound(), growing.evictions()), (1100, 1000));
    assert_eq!(growing.stats().usage.regions, 1000, "the block that came last has one of the new places");
}

#[test]
fn a_bound_stays_where_it_is_fixed_or_large_enough() {
    let fixed = pool().bound(8).fixed_bound().build().into_ref();
    cycle(&fixed, 16, 500);
    assert_eq!((fixed.bound(), fixed.evictions()), (8, 4000));
    assert_eq!(fixed.stats().usage.regions, 8);
    // A thousand evictions are few among the many puts whose block is found again.
    let calm = pool().bound(8).build().into_ref();
    for _ in 0..63 {
        for _ in 0..9_000 {
            drop(calm.allocate(&Request::new(64)).unwrap());
        }
        cycle(&calm, 24, 1);
    }
    assert!(calm.evictions() >= 1000, "{}", calm.evictions());
    assert_eq!(calm.bound(), 8);
}

#[test]
fn requests_are_rounded_as_asked() {
    let capacity = |rounding, bytes| {
        let pool = pool().rounding(rounding).build().into_ref();
        let block = pool.allocate(&Request::new(bytes)).unwrap();
        (block.len(), block.capacity())
    };
    assert_eq!(capacity(Rounding::Pow2, 1025), (1025, 2048));
    let thousands = Rounding::Custom(|bytes| bytes.next_multiple_of(1000));
    assert_eq!(capacity(thousands, 1001), (1001, 2000));
    assert_eq!(capacity(thousands, 3000), (3000, 3000));
    // A rounding rule that returns less than the request is corrected.
    assert_eq!(capacity(Rounding::Custom(|_| 10), 777), (777, 777));
    assert_eq!(capacity(Rounding::Custom(|_| 0), 1), (1, 1));
}

#[test]
fn what_rounds_to_one_size_shares_its_blocks() {
    let pool = pool().rounding(Rounding::Custom(|bytes| bytes.next_multiple_of(1000))).build().into_ref();
    let first = pool.allocate(&Request::new(1500)).unwrap();
    let address = first.as_ptr();
    drop(first);
    let again = pool.allocate(&Request::new(1999)).unwrap();
    assert_eq!((again.as_ptr(), again.len(), again.capacity()), (address, 1999, 2000));
    assert_ne!(pool.allocate(&Request::new(2001)).unwrap().as_ptr(), address);
}
