//! What is charged to a budget, when an allocator is passed with a request.

use super::{KIND, arena, budgeted, context, limited, live, request, silent};
use orlop_alloc::engine::UpstreamArena;
use orlop_alloc::{Allocator as _, Error, Refusal};
use orlop_context::Budget;
use orlop_core::{Device, MemoryKind};

#[test]
fn a_budget_bounds_explicit_allocators() {
    let context = budgeted(10_000);
    let arena = arena();
    let held = context.allocate_from(&arena, &request(6000)).unwrap();
    assert_eq!(live(&context), 6000);
    for refused in [
        context.allocate_from(&arena, &request(6000)),
        // The same budget bounds the kind's own allocator.
        context.allocate(Device::CPU, &request(6000)),
    ] {
        let Err(Error::OutOfMemory(report)) = refused else { panic!("over budget") };
        assert_eq!((report.refusal, report.live, report.limit), (Refusal::Budget, 6000, Some(10_000)));
    }
    let other = context.allocate(Device::CPU, &request(1000)).unwrap();
    assert!(context.allocate_from(&arena, &request(4000)).is_err());
    drop(other);
    drop(held);
    drop(context.allocate_from(&arena, &request(9000)).unwrap());
    // A registered or serving allocator is charged once, by its gate.
    let serving = context.allocator(Device::CPU, KIND).unwrap();
    let block = context.allocate_from(&serving, &request(6000)).unwrap();
    assert_eq!(live(&context), block.capacity() as u64);
    let over = limited(&serving);
    let more = context.allocate_from(&over, &request(100)).unwrap();
    assert_eq!(live(&context), (block.capacity() + more.capacity()) as u64);
}

#[test]
fn an_explicit_allocator_borrows_and_repays() {
    let context = budgeted(1000);
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(4000)).unwrap();
    let arena = arena();
    let block = context.allocate_from(&arena, &request(3000)).unwrap();
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::KvCache).lent, 2000);
    drop(block);
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::KvCache).lent, 0);
}

/// An allocator that serves one kind may be registered for another, by the handle that the context returns.
#[test]
fn an_allocator_behind_a_gate_is_charged_once() {
    let context = budgeted(1 << 20);
    let serving = context.allocator(Device::CPU, MemoryKind::Default).unwrap();
    context.register(Device::CPU, KIND, serving).unwrap();
    let block = context.allocate(Device::CPU, &request(1 << 16)).unwrap();
    assert_eq!(live(&context), block.capacity() as u64);
    drop(block);
    assert_eq!(live(&context), 0);
}

#[test]
fn an_explicit_arena_that_is_registered_later_is_charged_once() {
    let context = budgeted(1 << 20);
    let arena = arena();
    drop(context.allocate_from(&arena, &request(1000)).unwrap());
    context.register(Device::CPU, KIND, arena.clone()).unwrap();
    let block = context.allocate(Device::CPU, &request(1 << 16)).unwrap();
    assert_eq!(live(&context), block.capacity() as u64);
    let other = context.allocate_from(&arena, &request(1 << 16)).unwrap();
    assert_eq!(live(&context), 2 << 16);
    drop((block, other));
    assert_eq!(live(&context), 0);
}

/// As for statistics, so for budgets: an adaptor over an explicit allocator hands out that one's blocks.
#[test]
fn an_adaptor_over_an_explicit_allocator_is_charged_once() {
    let context = budgeted(1 << 20);
    let arena = arena();
    let over = limited(&arena);
    for order in [[&arena, &over], [&over, &arena]] {
        let blocks = order.map(|allocator| context.allocate_from(allocator, &request(1000)).unwrap());
        let map = context.memory_map();
        assert_eq!((live(&context), map.live(KIND)), (2000, 2000));
        drop(blocks);
    }
}

/// Its gate charges it, as it does for earlier live blocks.
#[test]
fn a_former_allocator_stays_in_the_budget() {
    let context = budgeted(10_000);
    let [former, current] = [arena(), arena()];
    context.register(Device::CPU, KIND, former.clone()).unwrap();
    // It is recorded as a registered allocator.
    let early = context.allocate_from(&former, &request(1000)).unwrap();
    context.register(Device::CPU, KIND, current).unwrap();
    let mut late = context.allocate_from(&former, &request(6000)).unwrap().share();
    let live = || live(&context);
    assert_eq!((live(), context.memory_map().live(KIND)), (7000, 7000));
    for refused in
        [context.allocate_from(&former, &request(4000)), context.allocate(Device::CPU, &request(4000))]
    {
        assert!(matches!(refused, Err(Error::OutOfMemory(report)) if report.refusal == Refusal::Budget));
    }
    // The difference fits once.
    assert!(context.grow_in_place(&mut late, 8000) && !context.grow_in_place(&mut late, 9500));
    assert_eq!(live(), 9000);
    drop((early, late));
    assert_eq!((live(), context.memory_map().live(KIND)), (0, 0));
}

/// It never had a gate, so its own statistics count.
#[test]
fn a_former_allocator_from_before_the_budget_is_counted() {
    let context = context();
    let [former, current] = [arena(), arena()];
    context.register(Device::CPU, KIND, former.clone()).unwrap();
    drop(context.allocate_from(&former, &request(1000)).unwrap());
    context.register(Device::CPU, KIND, current).unwrap();
    context.set_budget(Device::CPU, KIND, Budget::hard(10_000)).unwrap();
    let _held = context.allocate_from(&former, &request(6000)).unwrap();
    assert_eq!(live(&context), 6000);
    assert_eq!(context.memory_map().live(KIND), 6000);
    assert!(context.allocate_from(&former, &request(6000)).is_err());
}

/// As documented: without statistics its live blocks do not count, unless it is registered.
#[test]
fn an_allocator_without_statistics_is_charged_where_it_is_registered() {
    let context = budgeted(10_000);
    let silent = silent();
    let _passed = context.allocate_from(&silent, &request(6000)).unwrap();
    assert_eq!(live(&context), 0);
    assert!(context.allocate_from(&silent, &request(12_000)).is_err(), "a request alone is bounded");
    context.register(Device::CPU, KIND, silent.clone()).unwrap();
    let _registered = context.allocate_from(&silent, &request(6000)).unwrap();
    assert_eq!(live(&context), 6000);
    assert!(context.allocate_from(&silent, &request(6000)).is_err());
}

/// An arena allocates its segments as an adaptor would: past the gate of a handle that is older than it. Its
/// blocks are charged then, and otherwise its segments.
#[test]
fn an_arena_over_another_allocator_is_charged_once() {
    let cpu = Device::CPU;
    for (is_registered, is_early, charged) in
        [(false, true, 1024), (false, false, 4096), (true, true, 1024), (true, false, 4096)]
    {
        let context = context();
        let early = context.allocator(cpu, KIND).unwrap();
        context.set_budget(cpu, KIND, Budget::hard(6000).strict()).unwrap();
        let below = if is_early { early } else { context.allocator(cpu, KIND).unwrap() };
        let arena = UpstreamArena::new(below, 4096).into_ref().erase();
        if is_registered {
            context.register(cpu, KIND, arena.clone()).unwrap();
        }
        let block = context.allocate_from(&arena, &request(1024)).unwrap();
        assert_eq!(live(&context), charged, "registered: {is_registered}, early: {is_early}");
        drop(block);
        assert_eq!(live(&context), if is_early { 0 } else { 4096 });
        drop(arena);
    }
    // Registered before the budget.
    let context = context();
    let below = context.allocator(cpu, KIND).unwrap();
    context.register(cpu, KIND, UpstreamArena::new(below, 4096).into_ref()).unwrap();
    context.set_budget(cpu, KIND, Budget::hard(6000).strict()).unwrap();
    let block = context.allocate(cpu, &request(4096).no_retry()).unwrap();
    assert_eq!(live(&context), 4096);
    drop(block);
}
