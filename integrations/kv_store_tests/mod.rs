//! What the tests of stores of KV blocks share: a pool over a store.

use orlop_context::Context;
use orlop_core::{Device, StreamId};
use orlop_kv::{
    AdmissionRequest, BlockKey, BlockStore, ChainFields, DeviceTransfer, KvGeometry, KvPool, KvTiers,
    LayerGroup, Tenant,
};

pub(crate) const KEY: BlockKey = BlockKey { hash: 5, shard: 0, group: 1, index: 2, tokens: 16 };

/// A pool of two groups, of layers of `bytes` bytes, with a host tier that keeps nothing, over a store.
pub(crate) fn pool(context: &Context, bytes: u64, store: impl BlockStore + 'static) -> KvPool {
    let groups = vec![LayerGroup::full("full", 2, bytes), LayerGroup::window("window", 1, bytes, 32)];
    let builder = KvPool::builder(KvGeometry::new(groups).unwrap()).large_pages(32);
    let mut pool = builder.build(context, Device::CPU).unwrap();
    let transfer = DeviceTransfer::new(context.ops(Device::CPU).unwrap(), StreamId::HOST);
    pool.attach_tiers(KvTiers::new(context, 0, Box::new(transfer)).with_store(Box::new(store)));
    pool
}

/// Computes a prompt, and stores it. Returns the hit.
pub(crate) fn serve(pool: &mut KvPool) -> u32 {
    let prompt: Vec<u32> = (0..100).collect();
    let fields = ChainFields::new(Tenant::Named("a"), "weights", "bf16");
    let admission = pool.admit(&AdmissionRequest::new(fields, &prompt, 1)).unwrap();
    pool.append(&admission.sequence, 100 - admission.hit).unwrap();
    let step = pool.close_step();
    pool.settle(step).unwrap();
    pool.store(&admission.sequence, 96).unwrap();
    pool.finish(admission.sequence).unwrap();
    assert_eq!(pool.verify(), Ok(()));
    admission.hit
}
