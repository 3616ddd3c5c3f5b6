//! [`OpendalStore`]: blocks of KV memory in the stores that OpenDAL reaches. See the README, which
//! follows.
//!
#![doc = include_str!("../README.md")]

use opendal::{ErrorKind, Operator};
use orlop_kv::{BlockKey, BlockStore};
use std::io;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long an operation may take, unless it is set.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A store of blocks behind an operator of OpenDAL.
#[derive(Debug)]
pub struct OpendalStore {
    operator: Operator,
    timeout: Duration,
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
        Ok(Self { operator, timeout: TIMEOUT, runtime: Some(runtime) })
    }

    /// Sets how long an operation may take; 10 seconds by default.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs an operation on the store's own thread and waits for it: the caller's may be one of another
    /// runtime, which must not be entered twice.
    fn wait<T: Send + 'static>(
        &self,
        operation: impl Future<Output = opendal::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let Some(runtime) = &self.runtime else { return Err(io::Error::from(io::ErrorKind::NotConnected)) };
        let (sender, receiver) = mpsc::sync_channel(1);
        let timeout = self.timeout;
        runtime.spawn(async move {
            let result = tokio::time::timeout(timeout, operation).await;
            // The receiver waits, or its thread has panicked.
            let _ = sender.send(result);
        });
        match receiver.recv() {
            Ok(Ok(result)) => result.map_err(into_io),
            Ok(Err(elapsed)) => Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)),
            // The operation panicked.
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

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

    fn contains(&mut self, key: BlockKey) -> bool {
        let operator = self.operator.clone();
        self.wait(async move { operator.exists(&path(key)).await }).unwrap_or(false)
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

    #[test]
    fn an_operation_without_an_end_fails_after_the_timeout() {
        let operator = Operator::new(Memory::default()).unwrap().finish();
        let store = OpendalStore::new(operator).unwrap().with_timeout(Duration::from_millis(1));
        let late = store.wait(pending::<opendal::Result<()>>());
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let panicked = store.wait(async { panic!("a panic of the service") }).map(|(): ()| ());
        assert_eq!(panicked.unwrap_err().kind(), io::ErrorKind::Other);
    }
}
