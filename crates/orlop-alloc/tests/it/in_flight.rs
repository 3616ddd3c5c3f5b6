//! Blocks that a device may still use when a call on them ends early: the host cannot access them any more,
//! and their memory is never handed out again.

use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;
use orlop_alloc::engine_support::{DeviceOps, DevicePtr, Record};
use orlop_alloc::{
    Access, Allocator, AllocatorRef, Block, CopyRange, Deleter, Error, PendingCopy, Request, Result,
};
use orlop_core::{Device, StreamId};
use orlop_testkit::QueuedDevice;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const NEAR: Device = Device::custom(11, 0);
const STREAM: StreamId = StreamId::from_raw(7);
const BYTES: usize = 4096;
const HALVES: [CopyRange; 2] = [
    CopyRange { to: 0, from: BYTES / 2, bytes: BYTES / 2 },
    CopyRange { to: BYTES / 2, from: 0, bytes: BYTES / 2 },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The operation of this index panics after it has submitted its work.
    Operation(usize),
    SynchronizePanics,
    SynchronizeFails,
}

/// The operations of a device, one of which fails.
#[derive(Debug)]
struct FailingOps {
    inner: QueuedDevice,
    operations: AtomicUsize,
    failure: Failure,
}

impl FailingOps {
    fn new(inner: &QueuedDevice, failure: Failure) -> Self {
        Self { inner: inner.clone(), operations: AtomicUsize::new(0), failure }
    }

    fn count(&self) {
        let index = self.operations.fetch_add(1, Ordering::Relaxed);
        if self.failure == Failure::Operation(index) {
            resume_unwind(Box::new(()));
        }
    }
}

// SAFETY: those of the queued device. What fails has submitted its work, or waits for nothing.
unsafe impl DeviceOps for FailingOps {
    fn device(&self) -> Device {
        DeviceOps::device(&self.inner)
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: StreamId) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.copy(to, from, bytes, stream) }?;
        self.count();
        Ok(())
    }

    unsafe fn fill(&self, to: DevicePtr, pattern: &[u8], count: usize, stream: StreamId) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.fill(to, pattern, count, stream) }?;
        self.count();
        Ok(())
    }

    fn wait_for(&self, stream: StreamId, earlier: StreamId) -> Result<()> {
        self.inner.wait_for(stream, earlier)
    }

    fn synchronize(&self, stream: StreamId) -> Result<()> {
        match self.failure {
            Failure::SynchronizePanics => resume_unwind(Box::new(())),
            Failure::SynchronizeFails => {
                Err(Error::StreamsNotHonoured { device: DeviceOps::device(self), stream })
            }
            Failure::Operation(_) => DeviceOps::synchronize(&self.inner, stream),
        }
    }
}

fn block(allocator: &AllocatorRef) -> Block {
    allocator.allocate(&Request::new(BYTES).stream(STREAM)).expect("memory")
}

/// Work on a block of the host, and another one of the operations' device.
type Operation = fn(&mut Block, &Block, &FailingOps) -> Result<()>;

/// The operations with the device they are of, and the number of runs that they submit.
const OPERATIONS: [(&str, Device, usize, Operation); 4] = [
    ("copy_by", NEAR, 1, |block, other, ops| block.copy_by(ops, other, STREAM)),
    ("copy_ranges_by", NEAR, 2, |block, other, ops| block.copy_ranges_by(ops, other, &HALVES, STREAM)),
    ("copy_within_by", Device::CPU, 2, |block, _, ops| block.copy_within_by(ops, &HALVES, STREAM)),
    ("zero_by", Device::CPU, 1, |block, _, ops| block.zero_by(ops, STREAM)),
];

#[test]
#[cfg_attr(any(miri, orlop_asan), ignore = "it leaks memory, as it must")]
fn a_block_of_a_call_that_ends_early_is_never_reused() {
    for (name, device, runs, operation) in OPERATIONS {
        let failures = (0..runs).map(Failure::Operation);
        for failure in failures.chain([Failure::SynchronizePanics, Failure::SynchronizeFails]) {
            let device = QueuedDevice::new(device, 64 << 20);
            let ops = FailingOps::new(&device, failure);
            let host = Direct::new(System::new()).into_ref().erase();
            let (mut target, other) = (block(&host), block(&device.allocator()));
            let address = target.as_ptr();
            let ended = catch_unwind(AssertUnwindSafe(|| operation(&mut target, &other, &ops)));
            assert_eq!(ended.is_ok(), failure == Failure::SynchronizeFails, "{name}, {failure:?}");
            assert!(!matches!(ended, Ok(Ok(()))));
            assert!(device.pending(STREAM) > 0, "{name}, {failure:?}: in flight");
            assert!(matches!(target.bytes(), Err(Error::NotHostAccessible { .. })), "{name}, {failure:?}");
            let again = target.zero_by(&FailingOps::new(&device, failure), STREAM);
            let is_refused =
                matches!(again, Err(Error::NotHostAccessible { .. } | Error::WrongOperations { .. }));
            assert!(is_refused, "{name}, {failure:?}: {again:?}");
            let live = host.stats().live();
            drop(target);
            assert_eq!(host.stats().live(), live, "{name}, {failure:?}: leaked");
            let others: Vec<_> = (0..40).map(|_| block(&host)).collect();
            assert!(others.iter().all(|other| other.as_ptr() != address), "{name}, {failure:?}");
            // The leaked memory is still valid.
            device.advance(STREAM);
        }
    }
}

#[test]
#[cfg_attr(any(miri, orlop_asan), ignore = "it leaks memory, as it must")]
fn the_source_of_a_pending_copy_that_ends_early_is_not_freed() {
    for failure in [Failure::Operation(0), Failure::Operation(1), Failure::SynchronizePanics] {
        let device = QueuedDevice::new(NEAR, 64 << 20);
        let host = Direct::new(System::new()).into_ref().erase();
        let mut memory = vec![7_u8; BYTES];
        let first = NonNull::from(memory.as_mut_slice()).cast();
        let mut record = Record::new(first, BYTES, NEAR, Access::Device);
        record.requested = BYTES;
        let is_freed = Arc::new(AtomicUsize::new(0));
        let freed = Arc::clone(&is_freed);
        let deleter = Deleter::from_closure(move |_| {
            freed.fetch_add(1, Ordering::Relaxed);
        });
        // SAFETY: the bytes outlive the block, and nothing else accesses them.
        let source = unsafe { Block::foreign(record, deleter) };
        let mut copy = PendingCopy::new(block(&host), Arc::new(FailingOps::new(&device, failure)), STREAM);
        let ended = catch_unwind(AssertUnwindSafe(|| copy.copy_ranges(&source, &HALVES)));
        assert!(ended.is_err() && device.pending(STREAM) > 0, "{failure:?}");
        drop(source);
        assert_eq!(is_freed.load(Ordering::Relaxed), 0, "{failure:?}: the device may still read it");
        let ended = catch_unwind(AssertUnwindSafe(|| drop(copy)));
        assert_eq!(ended.is_err(), failure == Failure::SynchronizePanics);
        device.advance(STREAM);
    }
}

/// No number of a stream stands for anything else.
#[test]
fn a_block_with_any_stream_is_given_back() {
    let device = QueuedDevice::new(NEAR, 64 << 20);
    let allocator = device.allocator();
    for number in (0..64).map(|bit| 1 << bit).flat_map(|bit: u64| [bit, !bit]).chain([!(0x2105 << 48)]) {
        let used = block(&allocator);
        used.record_stream(StreamId::from_raw(number)).unwrap();
        assert_eq!(used.stream_uses().count(), usize::from(StreamId::from_raw(number) != STREAM));
        drop(used);
        assert_eq!(allocator.stats().live(), 0, "{number:#x}");
    }
}
