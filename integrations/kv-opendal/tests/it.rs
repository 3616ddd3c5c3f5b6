//! A pool over stores of OpenDAL: what was stored comes back, and what is broken is a counted miss.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../../kv_store_tests/mod.rs"]
mod kv_store_tests;
#[cfg(feature = "redis")]
#[path = "../../kv_store_tests/redis_server.rs"]
mod redis_server;

use self::kv_store_tests::{KEY, pool, serve};
use opendal::services::{Fs, Memory};
use opendal::{Operator, blocking};
use orlop_context::Context;
use orlop_kv::{BlockKey, BlockStore, TierFault};
use orlop_kv_opendal::OpendalStore;
use std::path::Path;
use tokio::runtime::Runtime;

fn memory() -> Operator {
    Operator::new(Memory::default()).unwrap().finish()
}

fn folder(path: &Path) -> Operator {
    let [root, aside] = ["blocks", "aside"].map(|name| path.join(name));
    let service = Fs::default().root(root.to_str().unwrap()).atomic_write_dir(aside.to_str().unwrap());
    Operator::new(service).unwrap().finish()
}

/// What every store has to do.
fn check_contract(mut store: OpendalStore) {
    let mut bytes = b"before".to_vec();
    assert!(!store.contains(KEY).unwrap() && !store.get(KEY, 100, &mut bytes).unwrap());
    store.remove(KEY).unwrap();
    for content in [&b"a block"[..], b"another one, which is longer", b"", b"short"] {
        store.put(KEY, content).unwrap();
        assert!(store.contains(KEY).unwrap() && !store.contains(BlockKey { index: 3, ..KEY }).unwrap());
        for limit in [0, 3, content.len(), 1000] {
            bytes.truncate(6);
            assert!(store.get(KEY, limit, &mut bytes).unwrap(), "limit {limit}");
            assert_eq!(bytes, [&b"before"[..], &content[..limit.min(content.len())]].concat());
        }
    }
    store.remove(KEY).unwrap();
    assert!(!store.contains(KEY).unwrap());
}

/// What one pool has stored, another one restores; of a torn object it counts the fault, and it removes it.
fn check_pool(operator: &Operator) {
    let context = Context::new();
    let store = || OpendalStore::new(operator.clone()).unwrap();
    assert_eq!(serve(&mut pool(&context, 64, store())), 0);
    let mut other = pool(&context, 64, store());
    assert_eq!(serve(&mut other), 96);
    assert!(other.tier_stats().unwrap().store_reads > 0);

    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let objects = blocking::Operator::new(operator.clone()).unwrap();
    let mut names: Vec<String> =
        objects.list("/").unwrap().into_iter().map(|entry| entry.path().to_owned()).collect();
    names.retain(|name| name.ends_with(".kv"));
    assert!(!names.is_empty());
    for name in &names {
        let content = objects.read(name).unwrap().to_vec();
        objects.write(name, content[..content.len() - 1].to_vec()).unwrap();
    }
    let mut torn = pool(&context, 64, store());
    assert_eq!(serve(&mut torn), 0);
    assert!(torn.tier_stats().unwrap().faults(TierFault::Torn) > 0);
    // What is removed is computed and stored again, object by object.
    assert!(names.iter().any(|_| serve(&mut pool(&context, 64, store())) == 96));
}

#[test]
fn stores_keep_the_contract() {
    let path = tempfile::tempdir().unwrap();
    check_contract(OpendalStore::new(memory()).unwrap());
    check_contract(OpendalStore::new(folder(path.path())).unwrap());
}

#[test]
fn prefixes_come_back_from_a_store() {
    let path = tempfile::tempdir().unwrap();
    check_pool(&memory());
    check_pool(&folder(path.path()));
}

#[test]
fn it_works_inside_of_asynchronous_code() {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async { check_contract(OpendalStore::new(memory()).unwrap()) });
}

#[test]
fn errors_are_those_of_the_store() {
    let path = tempfile::tempdir().unwrap();
    let operator = folder(path.path());
    // A folder stands where the object would be.
    std::fs::create_dir_all(path.path().join("blocks").join(format!("{KEY}.kv")).join("inside")).unwrap();
    let mut store = OpendalStore::new(operator).unwrap();
    assert!(store.put(KEY, b"block").is_err());
    assert!(store.get(KEY, 10, &mut Vec::new()).is_err());
}

#[cfg(feature = "redis")]
mod redis {
    use super::*;
    use crate::redis_server::RedisServer;
    use opendal::services::Redis;

    #[test]
    fn blocks_come_back_from_redis() {
        let Some(server) = RedisServer::start() else { return };
        let operator = Operator::new(Redis::default().endpoint(&server.url())).unwrap().finish();
        check_contract(OpendalStore::new(operator.clone()).unwrap());
        let context = Context::new();
        let store = || OpendalStore::new(operator.clone()).unwrap();
        assert_eq!(serve(&mut pool(&context, 64, store())), 0);
        assert_eq!(serve(&mut pool(&context, 64, store())), 96);
    }
}
