//! Transfers layer by layer: what a step may use of a load that is not complete, and what follows from its
//! end.

use crate::cases::tokens;
use crate::rows::{host, on_host, request, rows, settle};
use orlop_alloc::Block;
use orlop_core::{Device, StreamId};
use orlop_kv::{
    AdmissionRequest, DeviceTransfer, KvError, KvGeometry, KvLayer, KvPool, KvPoolBuilder, LayerGroup,
    NotStored, Sequence, TicketId, Visibility,
};
use orlop_testkit::QueuedDevice;
use std::sync::Arc;

const FULL: [KvLayer; 2] = [KvLayer { group: 0, layer: 0 }, KvLayer { group: 0, layer: 1 }];
const WINDOW: KvLayer = KvLayer { group: 1, layer: 0 };

/// Two layers with two arenas each, that keep every token, and one with a window of 8.
fn builder() -> KvPoolBuilder {
    let geometry = KvGeometry::new(vec![
        LayerGroup::full("full", 2, 8).with_arena("indexer", 4).with_block_tokens(4),
        LayerGroup::window("window", 1, 12, 8).with_block_tokens(4),
    ]);
    let builder = KvPool::builder(geometry.unwrap()).large_pages(24).match_unit(4);
    builder.visibility(Visibility::SameStream)
}

fn pool() -> KvPool {
    builder().build(&orlop_context::Context::new(), Device::CPU).unwrap()
}

fn bytes(start: u8, count: u8) -> Vec<u8> {
    (start..start + count).collect()
}

/// A sequence of 18 tokens whose first 14 are loaded layer by layer, and whose other 4 are in a closed step.
fn loading(pool: &mut KvPool, prompt: &[u32]) -> (Sequence, TicketId, orlop_kv::StepId) {
    let sequence = pool.admit(&request(prompt, 8)).unwrap().sequence;
    let (ticket, pages) = pool.begin_load_by_layer(&sequence, 14, 1_000).unwrap();
    assert_eq!(pages.len(), 4 * 2);
    pool.append(&sequence, 4).unwrap();
    let step = pool.close_step();
    (sequence, ticket, step)
}

fn probe(pool: &KvPool, prompt: &[u32]) -> u32 {
    pool.probe(&AdmissionRequest::new(request(prompt, 1).fields, prompt, 1))
}

/// sglang#22811, #38031: a layer is there with all of its arenas, and no layer is used before.
#[test]
fn a_step_uses_each_layer_when_it_is_there() {
    let (mut pool, transfer, prompt) = (pool(), on_host(), tokens(1, 19));
    let (sequence, ticket, step) = loading(&mut pool, &prompt);
    let missing = |result, layer: u32| {
        assert!(matches!(result, Err(KvError::LayerMissing { layer: at, .. }) if at == layer), "{result:?}");
    };
    let loaded = host(&bytes(0, 168));
    for layer in [FULL[0], FULL[1], WINDOW] {
        assert_eq!(pool.layer_bytes(ticket, layer).unwrap(), 14 * 12);
        missing(pool.await_layer(&transfer, ticket, layer), layer.layer);
        missing(pool.complete(ticket), layer.layer);
        // Neither the loaded tokens nor those of the step, whose kernels need them.
        let mut read = host(&[0; 168]);
        for range in [0..14, 14..18] {
            let range = rows(layer.group, layer.layer, range);
            let refused = pool.read_rows(&transfer, &sequence, &range, &mut read);
            assert!(matches!(refused, Err(KvError::BeyondEnd { .. })), "{refused:?}");
            assert!(pool.write_rows(&transfer, &sequence, &range, &loaded).is_err());
        }
        pool.load_layer(&transfer, ticket, layer, &loaded).unwrap();
        pool.await_layer(&transfer, ticket, layer).unwrap();
        // The first arena has the first bytes.
        pool.read_rows(&transfer, &sequence, &rows(layer.group, layer.layer, 0..14), &mut read).unwrap();
        let first = if layer == WINDOW { 168 } else { 14 * 8 };
        assert_eq!(read.bytes().unwrap()[..first], loaded.bytes().unwrap()[..first]);
        pool.write_rows(&transfer, &sequence, &rows(layer.group, layer.layer, 14..18), &loaded).unwrap();
    }
    let mut indexer = host(&[0; 56]);
    let range = orlop_kv::RowRange { arena: 1, ..rows(0, 1, 0..14) };
    pool.read_rows(&transfer, &sequence, &range, &mut indexer).unwrap();
    assert_eq!(indexer.bytes().unwrap(), bytes(112, 56));
    // The step settles before the ticket: nothing is visible until both have.
    assert_eq!((pool.len(&sequence).unwrap(), probe(&pool, &prompt)), ((18, 0), 0));
    pool.settle(step).unwrap();
    assert_eq!((pool.len(&sequence).unwrap(), probe(&pool, &prompt)), ((18, 0), 0));
    for refused in [
        pool.append_drafts(&sequence, 2),
        pool.truncate(&sequence, 16).map(drop),
        pool.fork(&sequence, 20).map(drop),
        pool.begin_store(&sequence, 4, 1).map(drop),
        pool.begin_store_by_layer(&sequence, 4, 1).map(drop),
        pool.begin_load_by_layer(&sequence, 1, 1).map(drop),
    ] {
        assert!(matches!(refused, Err(KvError::BeyondEnd { .. })), "{refused:?}");
    }
    pool.complete(ticket).unwrap();
    assert_eq!((pool.len(&sequence).unwrap(), probe(&pool, &prompt)), ((18, 18), 16));
    assert!(matches!(pool.complete(ticket), Err(KvError::TicketClosed(_))));
    assert_eq!(pool.verify(), Ok(()));
}

/// The load is complete before the step: then its tokens settle, and those of the step with it.
#[test]
fn a_load_by_layers_settles_before_its_step() {
    let (mut pool, transfer, prompt) = (pool(), on_host(), tokens(1, 19));
    let (sequence, ticket, step) = loading(&mut pool, &prompt);
    for layer in FULL {
        pool.load_layer(&transfer, ticket, layer, &host(&[1; 168])).unwrap();
    }
    pool.mark_layer_loaded(ticket, WINDOW, StreamId::HOST).unwrap();
    pool.complete(ticket).unwrap();
    assert_eq!(pool.len(&sequence).unwrap(), (18, 14));
    pool.settle(step).unwrap();
    assert_eq!(pool.len(&sequence).unwrap(), (18, 18));
    assert_eq!(pool.verify(), Ok(()));
}

/// A load that fails takes back what steps computed behind it. Its pages stay until these have settled.
#[test]
fn a_load_by_layers_that_fails_takes_its_steps_back() {
    for expires in [false, true] {
        let (mut pool, transfer, prompt) = (pool(), on_host(), tokens(1, 18));
        let (sequence, ticket, step) = loading(&mut pool, &prompt);
        pool.load_layer(&transfer, ticket, FULL[0], &host(&[1; 168])).unwrap();
        // A token that was sampled from what the load has not provided.
        pool.push_tokens(&sequence, 18, &[7]).unwrap();
        let free = pool.stats().free_bytes;
        if expires {
            pool.set_time(1_000);
        } else {
            pool.cancel(ticket).unwrap();
        }
        assert_eq!(pool.len(&sequence).unwrap(), (0, 0));
        assert_eq!(pool.stats().free_bytes, free, "pages of a step in flight were handed out");
        pool.append(&sequence, 18).unwrap();
        let second = pool.close_step();
        pool.settle(step).unwrap();
        assert_eq!(pool.len(&sequence).unwrap(), (18, 0), "the step that was taken back");
        pool.settle(second).unwrap();
        assert_eq!(pool.len(&sequence).unwrap(), (18, 18));
        let refused = pool.push_tokens(&sequence, 19, &[8]);
        let Err(KvError::NotNextToken { known, .. }) = refused else { panic!("{refused:?}") };
        assert!(known == 18 || known == 16, "{known}");
        pool.push_tokens(&sequence, known, &[&prompt[known as usize..], &[8]].concat()).unwrap();
        assert_eq!(pool.verify(), Ok(()));
    }
}

/// A store by layers reads tokens of a step in flight, and its pages stay whatever becomes of the sequence.
#[test]
fn a_store_by_layers_reads_steps_in_flight() {
    let (mut pool, transfer, prompt) = (pool(), on_host(), tokens(1, 14));
    let sequence = pool.admit(&request(&prompt, 4)).unwrap().sequence;
    pool.append(&sequence, 14).unwrap();
    let refused = pool.begin_store_by_layer(&sequence, 14, 1_000);
    assert!(matches!(refused, Err(KvError::InOpenStep { .. })), "{refused:?}");
    for layer in [rows(0, 0, 0..14), rows(0, 1, 0..14), rows(1, 0, 0..14)] {
        pool.write_rows(&transfer, &sequence, &layer, &host(&bytes(1, 168))).unwrap();
    }
    let step = pool.close_step();
    let ticket = pool.begin_store_by_layer(&sequence, 14, 1_000).unwrap();
    drop(sequence);
    let store = |pool: &mut KvPool, layer, room: usize| {
        let copy = pool.store_layer(&transfer, ticket, layer, StreamId::HOST, host(&vec![0; room]))?;
        Ok::<Vec<u8>, KvError>(copy.wait()?.bytes()?.to_vec())
    };
    assert!(matches!(store(&mut pool, WINDOW, 167), Err(KvError::BufferTooSmall { .. })));
    let outside = KvLayer { group: 1, layer: 1 };
    assert!(matches!(store(&mut pool, outside, 168), Err(KvError::NoSuchPart { .. })));
    let host_copy = host(&[0; 168]);
    assert!(matches!(pool.load_layer(&transfer, ticket, WINDOW, &host_copy), Err(KvError::WrongTicket(_))));
    for layer in FULL {
        assert_eq!(store(&mut pool, layer, 168).unwrap()[..112], bytes(1, 112), "{layer:?}");
    }
    assert!(matches!(pool.complete(ticket), Err(KvError::LayerMissing { group: 1, layer: 0 })));
    assert_eq!(store(&mut pool, WINDOW, 168).unwrap(), bytes(1, 168));
    pool.settle(step).unwrap();
    assert!(pool.stats().in_flight_bytes > 0);
    pool.complete(ticket).unwrap();
    assert_eq!(pool.stats().in_flight_bytes, 0);
    assert_eq!(pool.verify(), Ok(()));
}

/// Pinned blocks are few: one whose layer could not be stored is used for the next.
#[test]
fn a_layer_that_is_not_stored_leaves_its_block() {
    let (device, far) = (Device::cuda(0), Device::cuda(1));
    let queued = QueuedDevice::new(device, 1 << 24);
    let context = queued.context().unwrap();
    let mut pool = builder().build(&context, device).unwrap();
    let (prompt, stream) = (tokens(1, 14), StreamId::from_raw(5));
    let sequence = pool.admit(&request(&prompt, 4)).unwrap().sequence;
    pool.append(&sequence, 14).unwrap();
    settle(&mut pool);
    let transfer = |of: &QueuedDevice| DeviceTransfer::new(Arc::new(of.clone()), stream);
    let (near, far) = (transfer(&queued), transfer(&QueuedDevice::new(far, 1 << 20)));
    let ticket = pool.begin_store_by_layer(&sequence, 14, 10).unwrap();
    let other = pool.admit(&request(&tokens(2, 4), 4)).unwrap().sequence;
    let (load, _) = pool.begin_load_by_layer(&other, 4, 10).unwrap();
    let short = pool.store_layer(&near, ticket, FULL[0], stream, host(&[0; 167])).unwrap_err();
    assert_eq!(short.host.map(|host| host.len()), Some(167));
    assert!(matches!(short.source, KvError::BufferTooSmall { room: 167, needed: 168 }));
    let mut block = Some(host(&[0; 168]));
    let address = block.as_ref().map(Block::as_ptr);
    let mut refused = |pool: &mut KvPool, transfer: &DeviceTransfer, ticket, layer| {
        let stored = pool.store_layer(transfer, ticket, layer, stream, block.take().unwrap());
        let NotStored { host, source } = stored.unwrap_err();
        assert_eq!(host.as_ref().map(Block::as_ptr), address);
        block = host;
        source
    };
    let outside = KvLayer { group: 1, layer: 1 };
    assert!(matches!(refused(&mut pool, &near, ticket, outside), KvError::NoSuchPart { .. }));
    assert!(matches!(refused(&mut pool, &near, load, WINDOW), KvError::WrongTicket(_)));
    assert!(matches!(refused(&mut pool, &far, ticket, FULL[0]), KvError::Allocation(_)));
    queued.fail_next();
    assert!(matches!(refused(&mut pool, &near, ticket, FULL[0]), KvError::Allocation(_)));
    pool.set_time(10);
    assert!(matches!(refused(&mut pool, &near, ticket, FULL[0]), KvError::TicketClosed(_)));
}

/// A load by layers does not begin in a block that others refer to: a copy would have to come first.
#[test]
fn a_load_by_layers_does_not_copy() {
    let mut pool = pool();
    let first = pool.admit(&request(&tokens(1, 6), 4)).unwrap().sequence;
    pool.append(&first, 6).unwrap();
    settle(&mut pool);
    let fork = pool.fork(&first, 20).unwrap();
    let before = pool.stats();
    let refused = pool.begin_load_by_layer(&fork, 8, 10);
    assert!(matches!(refused, Err(KvError::SharedRow { group: 0, row: 6 })), "{refused:?}");
    assert_eq!((pool.stats(), pool.verify()), (before, Ok(())));
    pool.begin_load_by_layer(&first, 8, 10).unwrap();
}
