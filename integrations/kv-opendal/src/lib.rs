//! [`OpendalStore`]: blocks of KV memory in the stores that OpenDAL reaches. See the README, which
//! follows.
//!
#![doc = include_str!("../README.md")]

use opendal::{ErrorKind, Operator};
use orlop_kv::{BlockKey, BlockStore};
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// How long an operation may take, unless it is set.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long operations are refused after a timeout, unless it is set.
const BACK_OFF: Duration = Duration::from_secs(60);

/// How much longer than the timeout the caller waits: the store's own thread ends an operation unless that
/// blocks it.
const GRACE: Duration = Duration::from_secs(1);

/// A store of blocks behind an operator of OpenDAL.
#[derive(Debug)]
pub struct OpendalStore {
    operator: Operator,
    timeout: Duration,
    back_off: Duration,
    /// The last timeout, until an operation is tried again.
    timed_out: Option<Instant>,
    /// `None` after the drop has begun.
    runtime: Option<Runtime>,
}

impl OpendalStore {
    /// Creates a store with the objects under the operator's root.
    ///
    /// # Errors
    /// If the thread of its runtime cannot be started.
    pub fn new(operator: Operator) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("orlop-kv-opendal").enable_all().build()?;
        Ok(Self { operator, timeout: TIMEOUT, back_off: BACK_OFF, timed_out: None, runtime: Some(runtime) })
    }

    /// Sets how long an operation may take; 10 seconds by default.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long operations are refused at once after one that took too long; 60 seconds by default. A
    /// store that hangs then delays its pool by one timeout in each such period.
    #[must_use]
    pub fn with_back_off(mut self, back_off: Duration) -> Self {
        self.back_off = back_off;
        self
    }

    /// Runs an operation on the store's own thread and waits for it: the caller's may be one of another
    /// runtime, which must not be entered twice.
    fn wait<T: Send + 'static>(
        &mut self,
        operation: impl Future<Output = opendal::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let Some(runtime) = &self.runtime else { return Err(io::Error::from(io::ErrorKind::NotConnected)) };
        if self.timed_out.is_some_and(|at| at.elapsed() < self.back_off) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, BackOff));
        }
        self.timed_out = None;
        let (sender, receiver) = mpsc::sync_channel(1);
        let timeout = self.timeout;
        runtime.spawn(async move {
            let result = tokio::time::timeout(timeout, operation).await;
            // The receiver waits, or its thread has panicked.
            let _ = sender.send(result);
        });
        match receiver.recv_timeout(timeout.saturating_add(GRACE)) {
            Ok(Ok(result)) => result.map_err(into_io),
            Ok(Err(_)) | Err(RecvTimeoutError::Timeout) => {
                self.timed_out = Some(Instant::now());
                Err(io::Error::from(io::ErrorKind::TimedOut))
            }
            // The operation panicked.
            Err(error @ RecvTimeoutError::Disconnected) => Err(io::Error::other(error)),
        }
    }
}

/// An operation was refused, because another one has timed out.
#[derive(Debug, thiserror::Error)]
#[error("the store is not used for a while after a timeout")]
struct BackOff;

fn into_io(error: opendal::Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::Unsupported => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// Returns the name of a block's object.
fn path(key: BlockKey) -> String {
    format!("{key}.kv")
}

impl BlockStore for OpendalStore {
    fn put(&mut self, key: BlockKey, bytes: &[u8]) -> io::Result<()> {
        let (operator, bytes) = (self.operator.clone(), bytes.to_vec());
        self.wait(async move { operator.write(&path(key), bytes).await.map(|_| ()) })
    }

    fn get(&mut self, key: BlockKey, limit: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
        let operator = self.operator.clone();
        let read = self.wait(async move {
            // Services differ in what they answer to a range beyond the end.
            let size = operator.stat(&path(key)).await?.content_length();
            operator.read_with(&path(key)).range(0..size.min(limit as u64)).await
        });
        match read {
            Ok(content) => {
                let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
                bytes.try_reserve_exact(content.len()).map_err(too_large)?;
                content.for_each(|part| bytes.extend_from_slice(&part));
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn contains(&mut self, key: BlockKey) -> io::Result<bool> {
        let operator = self.operator.clone();
        self.wait(async move { operator.exists(&path(key)).await })
    }

    fn remove(&mut self, key: BlockKey) -> io::Result<()> {
        let operator = self.operator.clone();
        self.wait(async move { operator.delete(&path(key)).await })
    }
}

impl Drop for OpendalStore {
    fn drop(&mut self) {
        // Asynchronous code may drop the store, and must not wait for a runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opendal::services::Memory;
    use std::future::pending;

    fn store(timeout: Duration, back_off: Duration) -> OpendalStore {
        let operator = Operator::new(Memory::default()).expect("a service in memory").finish();
        let store = OpendalStore::new(operator).expect("a thread");
        store.with_timeout(timeout).with_back_off(back_off)
    }

    #[test]
    fn an_operation_without_an_end_fails_after_the_timeout() {
        let mut store = store(Duration::from_millis(1), Duration::ZERO);
        let late = store.wait(pending::<opendal::Result<()>>());
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let panicked = store.wait(async { panic!("a panic of the service") }).map(|(): ()| ());
        assert_eq!(panicked.unwrap_err().kind(), io::ErrorKind::Other);
    }

    /// The timeout of the runtime does not end an operation that blocks its thread.
    #[test]
    fn an_operation_that_blocks_the_runtime_fails_after_the_timeout() {
        let mut store = store(Duration::from_millis(1), Duration::ZERO);
        let (end, ended) = mpsc::channel::<()>();
        let blocked = store.wait(async move {
            // Until the test has ended.
            let _ = ended.recv();
            Ok(())
        });
        assert_eq!(blocked.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(end);
    }

    #[test]
    fn a_store_that_has_timed_out_refuses_until_the_back_off_ends() {
        let key = BlockKey { hash: 5, shard: 0, group: 1, index: 2, tokens: 16 };
        let mut store = store(Duration::from_secs(60), Duration::MAX);
        store.put(key, b"block").unwrap();
        assert!(store.contains(key).unwrap());
        store.timeout = Duration::from_millis(1);
        store.wait(pending::<opendal::Result<()>>()).unwrap_err();
        store.timeout = Duration::from_secs(60);
        for refused in [store.contains(key).map(drop), store.put(key, b"other"), store.remove(key)] {
            let refused = refused.unwrap_err();
            assert!(refused.get_ref().is_some_and(|error| error.is::<BackOff>()), "{refused}");
        }
        store.back_off = Duration::ZERO;
        let mut bytes = Vec::new();
        assert!(store.get(key, 100, &mut bytes).unwrap());
        assert_eq!(bytes, b"block");
    }
}
