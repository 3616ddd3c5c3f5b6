//! A device allocator and several threads: no lock is held while the device allocates, releases or waits.

use crate::hooked_device::HookedDevice;
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_core::StreamId;
use orlop_device::{BackingError, DeviceAllocator, DeviceError, Policy, StreamFilter, TorchConf};
use orlop_testkit::device::{DeviceCall, INJECTED, MockDevice, Random, WatchedDevice};
use orlop_testkit::suite::cases;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

fn torch(conf: &str) -> Policy {
    Policy::torch(&conf.parse::<TorchConf>().unwrap())
}

/// A function that stops in the first call of a name, and the two ends of its channels: the call has begun,
/// and it may go on.
fn gate(name: &'static str) -> (impl Fn(&'static str) + Send + Sync, Receiver<()>, SyncSender<()>) {
    let (begun, has_begun) = sync_channel(1);
    let (go_on, may_go_on) = sync_channel(1);
    let once = Mutex::new(Some((begun, may_go_on)));
    let stop = move |call| {
        if call == name
            && let Some((begun, may_go_on)) = once.lock().unwrap().take()
        {
            begun.send(()).unwrap();
            may_go_on.recv_timeout(LONG).expect("the other threads are done");
        }
    };
    (stop, has_begun, go_on)
}

/// Another thread is in a call of the device; requests that the cache serves, frees and figures go on.
fn others_go_on_during(call: &'static str, policy: Policy) {
    let device = MockDevice::new(64 << 20, true, 0);
    let (stop, has_begun, go_on) = gate(call);
    let is_armed = Arc::new(Mutex::new(false));
    let armed = Arc::clone(&is_armed);
    let hook = move |call| {
        if *armed.lock().unwrap() {
            stop(call);
        }
    };
    let hooked = HookedDevice { device: device.clone(), hook: Arc::new(hook) };
    let name = policy.name;
    let allocator = DeviceAllocator::new(hooked, policy).into_ref();
    let small = Request::new(1000);
    // The pool of small requests has room; of large ones, a block is pending and another is free.
    let kept = allocator.allocate(&small).unwrap();
    let [pending, free] = [(); 2].map(|()| allocator.allocate(&Request::new(20 << 20)).unwrap());
    pending.record_stream(StreamId::from_raw(7)).unwrap();
    device.go_on(pending.as_ptr().as_ptr().addr(), pending.capacity(), StreamId::from_raw(7));
    device.fail_one_in(DeviceCall::Query, 1);
    drop((pending, free));
    *is_armed.lock().unwrap() = true;
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            // Growth, moves, waits and releases.
            drop(allocator.allocate(&Request::new(30 << 20)).unwrap());
            drop(allocator.allocate(&Request::new(3 << 20).zeroed()).unwrap());
            allocator.empty_cache().unwrap();
        });
        if has_begun.recv_timeout(LONG).is_err() {
            slow.join().unwrap();
            panic!("{name} does not call {call}");
        }
        let (done, is_done) = sync_channel(1);
        scope.spawn(|| {
            let done = done;
            let blocks: Vec<Block> = (0..100).map(|_| allocator.allocate(&small).unwrap()).collect();
            drop(blocks);
            let live = allocator.device_stats().allocation.all.current;
            let address = kept.as_ptr().as_ptr().addr() + 900;
            let found = allocator.block_at(address).map(|block| block.start);
            done.send((live, found, allocator.usage().reserved > 0)).unwrap();
        });
        let others = is_done.recv_timeout(LONG);
        go_on.send(()).unwrap();
        slow.join().unwrap();
        let (live, found, has_memory) =
            others.unwrap_or_else(|_| panic!("{name}: a thread waits for {call}"));
        assert!(live >= 1 && has_memory, "{name}");
        assert_eq!(found, Some(kept.as_ptr().as_ptr().addr()), "{name}");
    });
    allocator.verify().unwrap();
    drop(kept);
    drop(allocator);
    device.check_end().unwrap();
}

#[test]
fn other_threads_go_on_while_the_device_is_called() {
    for call in ["map", "synchronize", "unmap", "release_addresses", "zero"] {
        others_go_on_during(call, Policy::orlop());
    }
    for call in ["map", "synchronize", "unmap", "zero"] {
        others_go_on_during(call, torch("expandable_segments:True"));
    }
    for call in ["allocate", "synchronize", "release", "zero"] {
        others_go_on_during(call, Policy::orlop_without_pages());
        others_go_on_during(call, torch(""));
    }
}

/// Runs `slow` on a thread and `meanwhile` on another one, while the first is in its `nth` call of this name.
fn during<R: Send>(
    (device, policy): (&MockDevice, Policy),
    (call, nth): (&'static str, usize),
    before: impl FnOnce(&AllocatorRef<DeviceAllocator<HookedDevice>>),
    slow: impl FnOnce(&DeviceAllocator<HookedDevice>) -> R + Send,
    meanwhile: impl FnOnce(&AllocatorRef<DeviceAllocator<HookedDevice>>) + Send,
) -> (AllocatorRef<DeviceAllocator<HookedDevice>>, R) {
    let (stop, has_begun, go_on) = gate(call);
    let left = Arc::new(Mutex::new(None));
    let counted = Arc::clone(&left);
    let hook = move |name| {
        let is_nth = || {
            let mut left = counted.lock().unwrap();
            let now = left.as_mut().filter(|_| name == call)?;
            *now -= 1;
            (*now == 0).then_some(())
        };
        if is_nth().is_some() {
            stop(name);
        }
    };
    let hooked = HookedDevice { device: device.clone(), hook: Arc::new(hook) };
    let allocator = DeviceAllocator::new(hooked, policy).into_ref();
    before(&allocator);
    *left.lock().unwrap() = Some(nth);
    let result = thread::scope(|scope| {
        let slow = scope.spawn(|| slow(&allocator));
        has_begun.recv_timeout(LONG).expect("the call is made");
        *left.lock().unwrap() = None;
        let other = scope.spawn(|| meanwhile(&allocator)).join();
        go_on.send(()).unwrap();
        other.unwrap();
        slow.join().unwrap()
    });
    allocator.verify().unwrap();
    (allocator, result)
}

/// A stream that is new meanwhile takes the place of another one in the order of the streams.
#[test]
fn all_streams_are_waited_for_while_other_threads_add_some() {
    let device = MockDevice::new(64 << 20, false, 0);
    device.fail_one_in(DeviceCall::Query, 1);
    let free_used_by = |allocator: &AllocatorRef<DeviceAllocator<HookedDevice>>, stream| {
        let block = allocator.allocate(&Request::new(1000)).unwrap();
        block.record_stream(StreamId::from_raw(stream)).unwrap();
        device.go_on(block.as_ptr().as_ptr().addr(), block.capacity(), StreamId::from_raw(stream));
    };
    let before = |allocator: &_| [5, 6].iter().for_each(|&stream| free_used_by(allocator, stream));
    let (allocator, emptied) = during(
        (&device, torch("")),
        ("synchronize", 1),
        before,
        |allocator| allocator.empty_cache(),
        |allocator| free_used_by(allocator, 3),
    );
    emptied.unwrap();
    assert_eq!(allocator.device_stats().active.all.current, 1, "one block was freed later");
}

/// The index of a free chunk can be another chunk's after a call.
#[test]
fn only_the_memory_that_was_free_before_is_released() {
    let device = MockDevice::new(64 << 20, false, 0);
    let request = |mib: usize, stream| Request::new(mib << 20).stream(StreamId::from_raw(stream));
    let before = |allocator: &AllocatorRef<DeviceAllocator<HookedDevice>>| {
        let common = [12, 14].map(|mib| allocator.allocate(&request(mib, 1)).unwrap());
        allocator.begin_allocate_to_pool((1, 1), StreamFilter::only([StreamId::from_raw(7)])).unwrap();
        drop(allocator.allocate(&request(12, 7)).unwrap());
        drop(common);
    };
    let (allocator, emptied) = during(
        (&device, torch("")),
        ("release", 1),
        before,
        |allocator| allocator.empty_cache(),
        |allocator| {
            // The chunk of the second region gets another index, and its own that of the private one.
            drop(allocator.allocate(&request(3, 1)).unwrap());
            drop(allocator.allocate(&request(3, 7)).unwrap());
        },
    );
    emptied.unwrap();
    let private = allocator.with_engine(|engine| {
        engine.segments().iter().filter(|segment| segment.pool == (1, 1)).map(|it| it.bytes).sum::<usize>()
    });
    assert_eq!(private, 12 << 20, "a private pool with users keeps its memory");
}

/// A request of a foreign stream makes a wait of its own meanwhile.
#[test]
fn a_release_returns_its_failure_whatever_other_threads_do() {
    let device = MockDevice::new(64 << 20, false, 0);
    let foreign = StreamId::from_raw(9);
    let mut kept = None;
    let (allocator, emptied) = during(
        (&device, torch("")),
        ("release", 2),
        |allocator| {
            allocator.adopt_foreign_stream(foreign).unwrap();
            kept = Some(allocator.allocate(&Request::new(1000)).unwrap());
            drop([12, 14].map(|mib: usize| allocator.allocate(&Request::new(mib << 20)).unwrap()));
            // An event, the wait for it, the release.
            device.fail_nth(3, BackingError::Failed(INJECTED));
        },
        |allocator| allocator.empty_cache(),
        |allocator| drop(allocator.allocate(&Request::new(1000).stream(foreign)).unwrap()),
    );
    assert!(matches!(emptied, Err(DeviceError::Backing { call: "release", .. })), "{emptied:?}");
    assert_eq!(allocator.device_stats().leaked_bytes, 12 << 20);
}

/// Threads that allocate, use, free, trim and inspect at random.
fn stress(policy: &Policy, seed: u64) {
    let mut random = Random::new(seed);
    let memory = random.pick(&[64 << 20, 256 << 20]).unwrap();
    let device = MockDevice::new(memory, true, seed);
    device.let_calls_overlap();
    device.fail_one_in(DeviceCall::Query, random.pick(&[0, 2]).unwrap());
    device.fail_one_in(DeviceCall::Remap, random.pick(&[0, 4]).unwrap());
    device.panic_one_in(random.pick(&[0, 0, 40]).unwrap());
    if random.one_in(8) {
        device.fail_nth(300, BackingError::Lost(INJECTED));
    }
    let hooked = HookedDevice { device: device.clone(), hook: Arc::new(|_| thread::yield_now()) };
    let allocator = DeviceAllocator::new(hooked, policy.clone()).into_ref();
    thread::scope(|scope| {
        for worker in 0..3 {
            let (allocator, device) = (&allocator, &device);
            scope.spawn(move || work(allocator, device, seed * 8 + worker));
        }
    });
    device.panic_one_in(0);
    allocator.verify().unwrap();
    let _may_be_lost = allocator.empty_cache();
    allocator.verify().unwrap();
    let stats = allocator.device_stats();
    assert_eq!(stats.allocation.all.current, 0);
    if !device.is_lost() {
        assert_eq!(stats.reserved_bytes.all.current, stats.leaked_bytes);
    }
    drop(allocator);
    device.check_end().unwrap();
}

fn work(allocator: &AllocatorRef<DeviceAllocator<HookedDevice>>, device: &MockDevice, seed: u64) {
    let mut random = Random::new(seed);
    let mut live: Vec<(Block, StreamId)> = Vec::new();
    let uses = |block: &Block| (block.as_ptr().as_ptr().addr(), block.capacity());
    for _ in 0..200 {
        let stream = StreamId::from_raw(1 + random.below(4) as u64);
        match random.below(20) {
            0..=9 => {
                let max = random.pick(&[1 << 12, 1 << 20, 24 << 20]).unwrap();
                let bytes = 1 + random.below(max);
                let Ok(block) = allocator.allocate(&Request::new(bytes).stream(stream)) else { continue };
                let (address, bytes) = uses(&block);
                device.begin_use(address, bytes, stream);
                live.push((block, stream));
            }
            10..=16 if !live.is_empty() => {
                let (block, stream) = live.swap_remove(random.below(live.len()));
                let (address, bytes) = uses(&block);
                device.go_on(address, bytes, stream);
            }
            17 if !live.is_empty() => {
                let (block, _) = &live[random.below(live.len())];
                let (address, bytes) = uses(block);
                block.record_stream(stream).unwrap();
                device.go_on(address, bytes, stream);
                let found = allocator.block_at(address + random.below(bytes)).unwrap();
                assert!(found.contains(&address));
            }
            18 if random.one_in(4) => drop(allocator.trim(32 << 20)),
            19 if random.one_in(4) => allocator.verify().unwrap(),
            _ => assert!(allocator.device_stats().allocation.all.current >= live.len() as u64),
        }
        device.fault().unwrap();
    }
}

#[test]
fn threads_share_a_device() {
    let policies =
        [Policy::orlop(), Policy::orlop_without_pages(), torch(""), torch("expandable_segments:True")];
    for policy in &policies {
        for seed in 0..u64::from(cases()) {
            stress(policy, seed);
        }
    }
}
