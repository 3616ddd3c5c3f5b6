//! A pool over stores of OpenDAL: what was stored comes back, and what is broken is a counted miss.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use opendal::services::{Fs, Memory};
use opendal::{Operator, blocking};
use orlop_context::Context;
use orlop_core::{Device, StreamId};
use orlop_kv::{
    AdmissionRequest, BlockKey, BlockStore, ChainFields, DeviceTransfer, KvGeometry, KvPool, KvTiers,
    LayerGroup, Tenant, TierFault,
};
use orlop_kv_opendal::OpendalStore;
use std::path::Path;
use tokio::runtime::Runtime;

const KEY: BlockKey = BlockKey { hash: 5, shard: 0, group: 1, index: 2, tokens: 16 };

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

/// A pool of two groups with a host tier that keeps nothing, over a store.
fn pool(context: &Context, store: OpendalStore) -> KvPool {
    let geometry =
        KvGeometry::new(vec![LayerGroup::full("full", 2, 64), LayerGroup::window("window", 1, 64, 32)]);
    let builder = KvPool::builder(geometry.unwrap()).large_pages(32);
    let mut pool = builder.build(context, Device::CPU).unwrap();
    let transfer = DeviceTransfer::new(context.ops(Device::CPU).unwrap(), StreamId::HOST);
    pool.attach_tiers(KvTiers::new(context, 0, Box::new(transfer)).with_store(Box::new(store)));
    pool
}

/// Computes a prompt, and stores it. Returns the hit.
fn serve(pool: &mut KvPool) -> u32 {
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

/// What one pool has stored, another one restores; of a torn object it counts the fault, and it removes it.
fn check_pool(operator: &Operator) {
    let context = Context::new();
    let store = || OpendalStore::new(operator.clone()).unwrap();
    assert_eq!(serve(&mut pool(&context, store())), 0);
    let mut other = pool(&context, store());
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
    let mut torn = pool(&context, store());
    assert_eq!(serve(&mut torn), 0);
    assert!(torn.tier_stats().unwrap().faults(TierFault::Torn) > 0);
    // What is removed is computed and stored again, object by object.
    assert!(names.iter().any(|_| serve(&mut pool(&context, store())) == 96));
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
    use opendal::services::Redis;
    use std::net::{TcpListener, TcpStream};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// A server, which ends with this, and its port.
    struct Server(Child, u16);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts a server; `None` if there is none on this machine.
    fn start() -> Option<Server> {
        // A port that is free at this moment.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
        let mut server = Server(command.stdout(Stdio::null()).spawn().ok()?, port);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.0.try_wait().unwrap().is_none(), "the server has ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    #[test]
    fn blocks_come_back_from_redis() {
        let Some(server) = start() else {
            println!("skipped: no redis-server");
            return;
        };
        let endpoint = format!("redis://127.0.0.1:{}", server.1);
        let operator = Operator::new(Redis::default().endpoint(&endpoint)).unwrap().finish();
        check_contract(OpendalStore::new(operator.clone()).unwrap());
        let context = Context::new();
        let store = || OpendalStore::new(operator.clone()).unwrap();
        assert_eq!(serve(&mut pool(&context, store())), 0);
        assert_eq!(serve(&mut pool(&context, store())), 96);
    }
}
