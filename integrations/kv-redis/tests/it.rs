//! A pool over a Redis server that the test starts: what was stored comes back, what is broken is a counted
//! miss, and what is there is not overwritten.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../../kv_store_tests/mod.rs"]
mod kv_store_tests;
#[path = "../../kv_store_tests/redis_server.rs"]
mod redis_server;

use self::kv_store_tests::{KEY, pool, serve};
use self::redis_server::RedisServer;
use orlop_context::Context;
use orlop_kv::{BlockKey, BlockStore, TierFault};
use orlop_kv_redis::RedisStore;
use redis::{Client, Connection};
use std::io;
use std::net::TcpListener;
use std::time::Duration;

impl RedisServer {
    fn store(&self) -> RedisStore {
        RedisStore::open(&self.url()).unwrap()
    }

    fn connection(&self) -> Connection {
        Client::open(self.url()).unwrap().get_connection().unwrap()
    }
}

/// Returns the names of all blocks, and their contents.
fn blocks(connection: &mut Connection) -> Vec<(String, Vec<u8>)> {
    let names: Vec<String> = redis::cmd("KEYS").arg("orlop-kv:*").query(connection).unwrap();
    let content = |name: &String| redis::cmd("GET").arg(name).query(connection).unwrap();
    let contents: Vec<Vec<u8>> = names.iter().map(content).collect();
    names.into_iter().zip(contents).collect()
}

fn set(connection: &mut Connection, name: &str, content: &[u8]) {
    redis::cmd("SET").arg(name).arg(content).exec(connection).unwrap();
}

#[test]
fn the_store_keeps_the_contract() {
    let Some(server) = RedisServer::start() else { return };
    let mut store = server.store();
    let mut bytes = b"before".to_vec();
    assert!(!store.contains(KEY).unwrap() && !store.get(KEY, 100, &mut bytes).unwrap());
    store.remove(KEY).unwrap();
    for content in [&b"a block"[..], b"another one, which is longer", b"", b"short"] {
        store.put(KEY, content).unwrap();
        assert!(store.contains(KEY).unwrap() && !store.contains(BlockKey { index: 3, ..KEY }).unwrap());
        for limit in [0, 3, content.len(), 1000, usize::MAX] {
            bytes.truncate(6);
            assert!(store.get(KEY, limit, &mut bytes).unwrap(), "limit {limit}");
            assert_eq!(bytes, [&b"before"[..], &content[..limit.min(content.len())]].concat());
        }
        store.remove(KEY).unwrap();
        assert!(!store.contains(KEY).unwrap());
    }
}

#[test]
fn a_block_is_written_once() {
    let Some(server) = RedisServer::start() else { return };
    let (mut first, mut second) = (server.store(), server.store());
    first.put(KEY, b"first").unwrap();
    second.put(KEY, b"second").unwrap();
    let mut bytes = Vec::new();
    assert!(second.get(KEY, 100, &mut bytes).unwrap());
    assert_eq!(bytes, b"first");
    // The first one finds it broken, and removes it after the second one has replaced it.
    assert!(first.get(KEY, 100, &mut Vec::new()).unwrap());
    second.remove(KEY).unwrap();
    second.put(KEY, b"mended").unwrap();
    first.remove(KEY).unwrap();
    assert!(second.contains(KEY).unwrap(), "what was not read is not removed");
    assert!(first.get(KEY, 3, &mut Vec::new()).unwrap());
    first.remove(KEY).unwrap();
    assert!(!second.contains(KEY).unwrap());
}

/// A transaction that fails leaves nothing for the next one, which another client's write would cancel.
#[test]
fn a_failed_removal_leaves_no_key_watched() {
    let Some(server) = RedisServer::start() else { return };
    let (mut store, mut connection) = (server.store(), server.connection());
    store.put(KEY, b"block").unwrap();
    assert!(store.get(KEY, 100, &mut Vec::new()).unwrap());
    let name = store.name(KEY);
    redis::cmd("DEL").arg(&name).exec(&mut connection).unwrap();
    redis::cmd("LPUSH").arg(&name).arg("element").exec(&mut connection).unwrap();
    assert!(store.remove(KEY).is_err(), "a key of another type is no block");
    set(&mut connection, &name, b"mended");
    let mut bytes = Vec::new();
    assert!(store.get(KEY, 100, &mut bytes).unwrap());
    assert_eq!(bytes, b"mended");
}

#[test]
fn blocks_have_a_prefix_and_a_lifetime() {
    let Some(server) = RedisServer::start() else { return };
    let mut store = server.store().with_prefix("model-a:").with_lifetime(Duration::from_secs(3600));
    store.put(KEY, b"block").unwrap();
    assert!(!server.store().contains(KEY).unwrap(), "another prefix");
    let left: i64 = redis::cmd("PTTL").arg(store.name(KEY)).query(&mut server.connection()).unwrap();
    assert!((1..=3_600_000).contains(&left), "{left} ms");
}

#[test]
fn prefixes_come_back_and_broken_blocks_are_counted_by_cause() {
    let Some(server) = RedisServer::start() else { return };
    let (context, mut connection) = (Context::new(), server.connection());
    assert_eq!(serve(&mut pool(&context, 64, server.store())), 0);
    let intact = blocks(&mut connection);
    assert!(intact.len() > 2);
    let mut other = pool(&context, 64, server.store());
    assert_eq!(serve(&mut other), 96);
    assert!(other.tier_stats().unwrap().store_reads > 0);

    type Damage<'a> = (TierFault, Box<dyn Fn(usize) -> Vec<u8> + 'a>);
    let of_other_layout = {
        let server = RedisServer::start().unwrap();
        serve(&mut pool(&context, 128, server.store()));
        blocks(&mut server.connection()).remove(0).1
    };
    let content = |at: usize| intact[at % intact.len()].1.clone();
    let damages: [Damage<'_>; 4] = [
        (TierFault::Torn, Box::new(|at| content(at)[..content(at).len() - 1].to_vec())),
        (TierFault::Stale, Box::new(|at| content(at + 1))),
        (TierFault::Foreign, Box::new(|_| of_other_layout.clone())),
        (TierFault::Foreign, Box::new(|_| b"a string of another program".to_vec())),
    ];
    for (fault, damaged) in damages {
        for (at, (name, _)) in intact.iter().enumerate() {
            set(&mut connection, name, &damaged(at));
        }
        let mut broken = pool(&context, 64, server.store());
        assert_eq!(serve(&mut broken), 0, "{fault:?}");
        assert!(broken.tier_stats().unwrap().faults(fault) > 0, "{fault:?}");
        // What was found broken was removed, computed and stored again.
        let mended = || serve(&mut pool(&context, 64, server.store())) == 96;
        assert!(intact.iter().any(|_| mended()), "{fault:?}");
        assert_eq!(blocks(&mut connection).len(), intact.len());
    }
    // A key of another type is no block that can be read or written: a failure of the store.
    for (name, _) in &intact {
        redis::cmd("DEL").arg(name).exec(&mut connection).unwrap();
        redis::cmd("LPUSH").arg(name).arg("element").exec(&mut connection).unwrap();
    }
    let mut refused = pool(&context, 64, server.store());
    assert_eq!(serve(&mut refused), 0);
    assert!(refused.tier_stats().unwrap().faults(TierFault::Failed) > 0);
}

#[test]
fn a_server_that_ends_is_a_miss_until_it_is_back() {
    let Some(mut server) = RedisServer::start() else { return };
    let context = Context::new();
    let mut store = server.store().with_back_off(Duration::from_secs(3600));
    let mut pool = pool(&context, 64, server.store().with_back_off(Duration::ZERO));
    assert_eq!(serve(&mut pool), 0);
    store.put(KEY, b"block").unwrap();
    server.stop();
    pool.discard_cache();
    assert_eq!(serve(&mut pool), 0, "what cannot be read is computed");
    assert!(store.contains(KEY).is_err());
    let refused = store.put(KEY, b"block").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::NotConnected);
    let server = RedisServer::start_at(server.port).unwrap();
    assert_eq!(store.contains(KEY).unwrap_err().kind(), io::ErrorKind::NotConnected, "it backs off");
    let mut store = store.with_back_off(Duration::ZERO);
    assert!(!store.contains(KEY).unwrap(), "it connects again");
    pool.discard_cache();
    assert_eq!(serve(&mut pool), 0);
    pool.discard_cache();
    assert_eq!(serve(&mut pool), 96);
    drop(server);
}

#[test]
fn a_server_without_an_answer_costs_a_timeout() {
    // It accepts the connection, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("redis://{}/", silent.local_addr().unwrap());
    let mut store = RedisStore::open(&address).unwrap().with_timeout(Duration::from_millis(10));
    assert!(store.contains(KEY).is_err());
    assert_eq!(store.contains(KEY).unwrap_err().kind(), io::ErrorKind::NotConnected);
    assert_eq!(RedisStore::open("no address").unwrap_err().kind(), io::ErrorKind::InvalidInput);
}
