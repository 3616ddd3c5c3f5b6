//! Copies of entries: what an engine writes is what it reads, and nothing that others refer to is written.

use crate::cases::tokens;
use orlop_alloc::{Block, HostOps, Request};
use orlop_context::Context;
use orlop_core::{Device, StreamId};
use orlop_kv::{
    AdmissionRequest, ChainFields, DeviceTransfer, KvError, KvGeometry, KvPool, KvPoolBuilder, LayerGroup,
    RowRange, Sequence, Tenant,
};
use orlop_testkit::QueuedDevice;
use std::ops::Range;
use std::sync::Arc;

pub(crate) fn request(prompt: &[u32], max_new: u32) -> AdmissionRequest<'_> {
    AdmissionRequest::new(ChainFields::new(Tenant::Shared, "weights", "bf16"), prompt, max_new)
}

pub(crate) fn rows(group: usize, layer: u32, rows: Range<u32>) -> RowRange {
    RowRange { group, layer, arena: 0, rows }
}

pub(crate) fn on_host() -> DeviceTransfer {
    DeviceTransfer::new(Arc::new(HostOps), StreamId::HOST)
}

pub(crate) fn host(bytes: &[u8]) -> Block {
    Context::new()
        .allocator(Device::CPU, Default::default())
        .unwrap()
        .allocate_copy(&Request::new(0), bytes)
        .unwrap()
}

/// Two layers that keep every token, in pages of a layer, one with a window of 8, and a state.
fn builder(large_pages: u32) -> KvPoolBuilder {
    let geometry = KvGeometry::new(vec![
        LayerGroup::full("full", 2, 8).with_block_tokens(4),
        LayerGroup::window("window", 1, 8, 8).with_block_tokens(4),
        LayerGroup::state("state", 1, 16),
    ]);
    KvPool::builder(geometry.unwrap()).large_pages(large_pages).match_unit(4)
}

pub(crate) fn settle(pool: &mut KvPool) {
    let step = pool.close_step();
    pool.settle(step).unwrap();
}

/// Reads `count` bytes of rows.
fn read(
    pool: &KvPool,
    transfer: &DeviceTransfer,
    sequence: &Sequence,
    rows: &RowRange,
    count: usize,
) -> Vec<u8> {
    let mut block = host(&vec![0xee; count]);
    pool.read_rows(transfer, sequence, rows, &mut block).unwrap();
    block.bytes().unwrap().to_vec()
}

#[test]
fn rows_come_back_from_every_segment_and_device() {
    let device = QueuedDevice::new(Device::cuda(0), 1 << 24);
    let on_device = device.context().unwrap();
    let ops = on_device.ops(Device::cuda(0)).unwrap();
    let host_pool = builder(32).segment(1).build(&Context::new(), Device::CPU).unwrap();
    let device_pool = builder(32).segment(3).build(&on_device, Device::cuda(0)).unwrap();
    let on_device = DeviceTransfer::new(ops, StreamId::from_raw(5));
    for (mut pool, transfer) in [(host_pool, on_host()), (device_pool, on_device)] {
        let prompt = tokens(1, 30);
        let sequence = pool.admit(&request(&prompt, 10)).unwrap().sequence;
        pool.append(&sequence, 30).unwrap();
        let content: Vec<u8> = (0..240).collect();
        for layer in 0..2 {
            let bytes: Vec<u8> =
                content.iter().map(|byte| byte ^ u8::try_from(layer * 85).unwrap()).collect();
            pool.write_rows(&transfer, &sequence, &rows(0, layer, 0..13), &host(&bytes)).unwrap();
            pool.write_rows(&transfer, &sequence, &rows(0, layer, 13..30), &host(&bytes[104..])).unwrap();
        }
        for layer in 0..2 {
            let bytes = read(&pool, &transfer, &sequence, &rows(0, layer, 3..29), 26 * 8);
            let expected = content[24..232].iter().map(|byte| byte ^ u8::try_from(layer * 85).unwrap());
            assert!(bytes.into_iter().eq(expected), "layer {layer}");
        }
        let state = rows(2, 0, 0..1);
        pool.write_rows(&transfer, &sequence, &state, &host(&content[..16])).unwrap();
        assert_eq!(read(&pool, &transfer, &sequence, &state, 16), content[..16]);
        assert!(read(&pool, &transfer, &sequence, &rows(0, 0, 7..7), 0).is_empty());
    }
}

#[test]
fn rows_outside_are_refused() {
    let mut pool = builder(32).build(&Context::new(), Device::CPU).unwrap();
    let prompt = tokens(1, 30);
    let sequence = pool.admit(&request(&prompt, 10)).unwrap().sequence;
    pool.append(&sequence, 30).unwrap();
    let transfer = on_host();
    let bytes = host(&[7; 240]);
    let mut write = |range: &RowRange, block: &Block| pool.write_rows(&transfer, &sequence, range, block);
    assert!(matches!(write(&rows(0, 0, 30..31), &bytes), Err(KvError::BeyondEnd { position: 31, end: 30 })));
    #[expect(clippy::reversed_empty_ranges, reason = "it has to be refused")]
    let backwards = rows(0, 0, 9..3);
    assert!(matches!(write(&backwards, &bytes), Err(KvError::BeyondEnd { .. })));
    assert!(matches!(write(&rows(0, 2, 0..1), &bytes), Err(KvError::NoSuchPart { group: 0, .. })));
    assert!(matches!(write(&rows(9, 0, 0..1), &bytes), Err(KvError::NoSuchPart { group: 9, .. })));
    assert!(matches!(write(&rows(2, 0, 0..2), &bytes), Err(KvError::BeyondEnd { .. })));
    let short = write(&rows(0, 0, 0..30), &host(&[7; 239]));
    assert!(matches!(short, Err(KvError::BufferTooSmall { room: 239, needed: 240 })), "{short:?}");
    settle(&mut pool);
    // The window's first blocks are returned.
    let gone = pool.read_rows(&transfer, &sequence, &rows(1, 0, 0..30), &mut host(&[0; 240]));
    assert!(matches!(gone, Err(KvError::NoSuchRow { group: 1, row: 0 })), "{gone:?}");
    pool.sleep_keep(&Context::new(), &mut on_host()).unwrap();
    let asleep = pool.read_rows(&transfer, &sequence, &rows(0, 0, 0..1), &mut host(&[0; 8]));
    assert!(matches!(asleep, Err(KvError::Asleep)));
    let mut detached = builder(32).build_detached().unwrap();
    let sequence = detached.admit(&request(&prompt, 10)).unwrap().sequence;
    detached.append(&sequence, 30).unwrap();
    assert!(
        detached.write_rows(&transfer, &sequence, &rows(0, 0, 0..1), &bytes).is_err(),
        "it has no memory"
    );
}

/// TRT#12306, in bytes: a shared block is written after it was copied, and not before.
#[test]
fn rows_of_others_are_not_written() {
    let mut pool = builder(32).build(&Context::new(), Device::CPU).unwrap();
    let transfer = on_host();
    let prompt = tokens(1, 30);
    let first = pool.admit(&request(&prompt, 10)).unwrap().sequence;
    let mut left = 30;
    while left > 0 {
        let next = pool.tokens_to_checkpoint(&first).unwrap().unwrap_or(left);
        pool.append(&first, next).unwrap();
        let (end, _) = pool.len(&first).unwrap();
        pool.write_rows(&transfer, &first, &rows(0, 0, end - next..end), &host(&[1; 240])).unwrap();
        // The step that ends at a checkpoint writes the state that is saved there.
        pool.write_rows(&transfer, &first, &rows(2, 0, 0..1), &host(&[u8::try_from(end).unwrap(); 16]))
            .unwrap();
        settle(&mut pool);
        left -= next;
    }
    // The cache has the first 28 tokens: they are not written again.
    let cached = pool.write_rows(&transfer, &first, &rows(0, 0, 27..30), &host(&[2; 24]));
    assert!(matches!(cached, Err(KvError::SharedRow { group: 0, row: 27 })), "{cached:?}");
    pool.write_rows(&transfer, &first, &rows(0, 0, 28..30), &host(&[2; 16])).unwrap();
    let fork = pool.fork(&first, 40).unwrap();
    for sequence in [&first, &fork] {
        let shared = pool.write_rows(&transfer, sequence, &rows(0, 0, 29..30), &host(&[3; 8]));
        assert!(matches!(shared, Err(KvError::SharedRow { group: 0, row: 29 })), "{shared:?}");
        let state = pool.write_rows(&transfer, sequence, &rows(2, 0, 0..1), &host(&[3; 16]));
        assert!(matches!(state, Err(KvError::SharedRow { group: 2, row: 0 })), "{state:?}");
    }
    for (sequence, byte) in [(&first, 4), (&fork, 5)] {
        pool.append(sequence, 1).unwrap();
        pool.run_copies(&transfer).unwrap();
        assert_eq!(read(&pool, &transfer, sequence, &rows(2, 0, 0..1), 16), [30; 16], "the state was copied");
        pool.write_rows(&transfer, sequence, &rows(0, 0, 30..31), &host(&[byte; 8])).unwrap();
        pool.write_rows(&transfer, sequence, &rows(2, 0, 0..1), &host(&[byte; 16])).unwrap();
        settle(&mut pool);
    }
    for (sequence, byte) in [(&first, 4), (&fork, 5)] {
        let bytes = read(&pool, &transfer, sequence, &rows(0, 0, 27..31), 32);
        let expected = [[1; 8], [2; 8], [2; 8], [byte; 8]].concat();
        assert_eq!(bytes, expected);
    }
    assert_eq!(pool.verify(), Ok(()));
}

#[test]
fn rows_of_a_pending_load_are_refused() {
    let geometry = KvGeometry::new(vec![LayerGroup::full("full", 1, 8).with_block_tokens(4)]);
    let builder = KvPool::builder(geometry.unwrap()).large_pages(32).match_unit(4);
    let mut pool = builder.build(&Context::new(), Device::CPU).unwrap();
    let transfer = on_host();
    let sequence = pool.admit(&request(&tokens(1, 30), 10)).unwrap().sequence;
    pool.append(&sequence, 6).unwrap();
    pool.write_rows(&transfer, &sequence, &rows(0, 0, 0..6), &host(&[1; 48])).unwrap();
    settle(&mut pool);
    let (ticket, _) = pool.begin_load(&sequence, 10, 1000).unwrap();
    for range in [5..7, 6..6 + 10] {
        let bytes = range.len() * 8;
        let written = pool.write_rows(&transfer, &sequence, &rows(0, 0, range.clone()), &host(&[2; 80]));
        assert!(matches!(written, Err(KvError::BeyondEnd { end: 6, .. })), "{written:?}");
        let mut block = host(&vec![0xee; bytes]);
        let read = pool.read_rows(&transfer, &sequence, &rows(0, 0, range), &mut block);
        assert!(matches!(read, Err(KvError::BeyondEnd { end: 6, .. })), "{read:?}");
        assert_eq!(block.bytes().unwrap(), vec![0xee; bytes]);
    }
    assert_eq!(read(&pool, &transfer, &sequence, &rows(0, 0, 0..6), 48), [1; 48]);
    pool.complete(ticket).unwrap();
    assert_eq!(read(&pool, &transfer, &sequence, &rows(0, 0, 6..16), 80).len(), 80);
}

/// A copy that ran before a state was written, and runs again, would replace it by the saved one.
#[test]
fn a_copy_runs_once_in_a_step() {
    let mut pool = builder(64).build(&Context::new(), Device::CPU).unwrap();
    let (transfer, state) = (on_host(), rows(2, 0, 0..1));
    let first = pool.admit(&request(&tokens(1, 6), 10)).unwrap().sequence;
    let mut left = 6;
    while left > 0 {
        let next = pool.tokens_to_checkpoint(&first).unwrap().unwrap_or(left);
        pool.append(&first, next).unwrap();
        pool.write_rows(&transfer, &first, &state, &host(&[1; 16])).unwrap();
        settle(&mut pool);
        left -= next;
    }
    let forks = [(); 2].map(|()| pool.fork(&first, 20).unwrap());
    // The copies of a step start from its first one.
    for (before, after) in [(1, 8), (8, 9)] {
        for fork in &forks {
            let copies = pool.copies().len();
            pool.append(fork, 1).unwrap();
            assert!(before > 1 || pool.copies().len() > copies, "a shared state is copied");
            pool.run_copies(&transfer).unwrap();
            assert_eq!(read(&pool, &transfer, fork, &state, 16), [before; 16]);
            pool.write_rows(&transfer, fork, &state, &host(&[after; 16])).unwrap();
        }
        for fork in &forks {
            assert_eq!(read(&pool, &transfer, fork, &state, 16), [after; 16]);
        }
        settle(&mut pool);
    }
    let fork = pool.fork(&forks[0], 20).unwrap();
    pool.append(&fork, 1).unwrap();
    assert!(!pool.copies().is_empty());
    pool.run_copies(&transfer).unwrap();
    assert_eq!(read(&pool, &transfer, &fork, &state, 16), [9; 16]);
}
