//! [`RedisStore`]: blocks of KV memory in a Redis server. See the README, which follows.
//!
#![doc = include_str!("../README.md")]

use orlop_kv::{BlockKey, BlockStore};
use redis::{Client, Cmd, Connection, ConnectionLike, FromRedisValue, Pipeline, RedisError, RedisResult};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::{Duration, Instant};

/// How long connecting, sending and receiving may take each, unless it is set.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long operations are refused after an error of the connection, unless it is set.
const BACK_OFF: Duration = Duration::from_secs(60);

/// The prefix of keys, unless it is set.
const PREFIX: &str = "orlop-kv:";

/// What tells a content from others: the number of bytes that were read, and their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ContentMark {
    len: usize,
    hash: u64,
}

impl ContentMark {
    fn of(content: &[u8], marks: &RandomState) -> Self {
        Self { len: content.len(), hash: marks.hash_one(content) }
    }
}

/// A store of blocks in a Redis server.
pub struct RedisStore {
    client: Client,
    /// `None` before the first operation, after an error of the connection, and after a failed transaction.
    connection: Option<Connection>,
    prefix: Box<str>,
    lifetime: Option<Duration>,
    timeout: Duration,
    back_off: Duration,
    /// The last error of the connection, until an operation is tried again.
    failed: Option<Instant>,
    /// The block that was read last.
    last_read: Option<(BlockKey, ContentMark)>,
    /// The key of the marks of contents.
    marks: RandomState,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, lifetime, timeout, back_off, .. } = self;
        f.debug_struct("RedisStore")
            .field("prefix", prefix)
            .field("lifetime", lifetime)
            .field("timeout", timeout)
            .field("back_off", back_off)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Creates a store in the server at this address: `redis://host:port/database`. The first operation
    /// connects.
    ///
    /// # Errors
    /// If it is not the address of a server.
    pub fn open(address: &str) -> io::Result<Self> {
        Client::open(address)
            .map(Self::new)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }

    /// Creates a store in the server of a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            connection: None,
            prefix: PREFIX.into(),
            lifetime: None,
            timeout: TIMEOUT,
            back_off: BACK_OFF,
            failed: None,
            last_read: None,
            marks: RandomState::new(),
        }
    }

    /// Sets what the keys of blocks begin with; `orlop-kv:` by default.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long the server keeps a block after it was written; without a limit by default. Less than a
    /// millisecond counts as one.
    #[must_use]
    pub fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// Sets how long connecting, sending and receiving may take each; 10 seconds by default. Less than a
    /// millisecond counts as one.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Sets how long operations are refused at once after an error of the connection; 60 seconds by default.
    /// A server that hangs then delays its pool by one timeout in each such period.
    #[must_use]
    pub fn with_back_off(mut self, back_off: Duration) -> Self {
        self.back_off = back_off;
        self
    }

    /// Returns the name of a block in the server.
    #[must_use]
    pub fn name(&self, key: BlockKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Runs an operation over the connection. After an error of the connection that is closed: an answer
    /// that is late must not be taken for that to another question.
    fn run<T>(&mut self, operation: impl FnOnce(&mut Connection) -> RedisResult<T>) -> io::Result<T> {
        if self.failed.is_some_and(|at| at.elapsed() < self.back_off) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, BackOff));
        }
        self.failed = None;
        let result = self.connected().and_then(|connection| {
            let result = operation(connection);
            let is_open = connection.is_open();
            result.map_err(|error| (error, is_open))
        });
        result.map_err(|(error, is_open)| {
            if !is_open || error.is_io_error() || error.is_unrecoverable_error() {
                (self.connection, self.failed) = (None, Some(Instant::now()));
            }
            into_io(error)
        })
    }

    /// Returns the connection; connects if there is none.
    fn connected(&mut self) -> Result<&mut Connection, (RedisError, bool)> {
        let is_closed = |error| (error, false);
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connection = self.client.get_connection_with_timeout(self.timeout).map_err(is_closed)?;
                connection.set_read_timeout(Some(self.timeout)).map_err(is_closed)?;
                connection.set_write_timeout(Some(self.timeout)).map_err(is_closed)?;
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> io::Result<T> {
        self.run(|connection| command.query(connection))
    }
}

/// An operation was refused, because the connection has failed lately.
#[derive(Debug, thiserror::Error)]
#[error("the server is not used for a while after an error of the connection")]
struct BackOff;

fn into_io(error: RedisError) -> io::Error {
    let kind = if error.is_timeout() {
        io::ErrorKind::TimedOut
    } else if error.is_connection_refusal() {
        io::ErrorKind::ConnectionRefused
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, error)
}

/// Returns the command that reads the first `limit` bytes of a string.
fn get_range(name: &str, limit: usize) -> Cmd {
    // The end is part of the range, and a negative one counts from the end of the string.
    let mut command = redis::cmd("GETRANGE");
    command.arg(name).arg(0).arg(limit.saturating_sub(1).min(usize::MAX / 2));
    command
}

/// Removes a block if its content is the marked one. Nothing else changes it in between.
fn remove_if(
    connection: &mut Connection,
    name: &str,
    mark: ContentMark,
    marks: &RandomState,
) -> RedisResult<()> {
    redis::cmd("WATCH").arg(name).exec(connection)?;
    let found: Vec<u8> = get_range(name, mark.len).query(connection)?;
    if ContentMark::of(&found[..found.len().min(mark.len)], marks) != mark {
        return redis::cmd("UNWATCH").exec(connection);
    }
    // Without an answer, another one has written to it.
    let _: Option<()> = Pipeline::new().atomic().del(name).ignore().query(connection)?;
    Ok(())
}

impl BlockStore for RedisStore {
    /// Stores a block, unless there is one under its key.
    fn put(&mut self, key: BlockKey, bytes: &[u8]) -> io::Result<()> {
        let mut command = redis::cmd("SET");
        command.arg(self.name(key)).arg(bytes).arg("NX");
        if let Some(lifetime) = self.lifetime {
            command.arg("PX").arg(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX).max(1));
        }
        self.query::<Option<()>>(&command).map(drop)
    }

    fn get(&mut self, key: BlockKey, limit: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
        let name = self.name(key);
        self.last_read = None;
        let mut read = Pipeline::new();
        read.atomic().cmd("EXISTS").arg(&name).add_command(get_range(&name, limit));
        let (is_there, content): (bool, Vec<u8>) = self.run(|connection| read.query(connection))?;
        if is_there {
            let content = &content[..content.len().min(limit)];
            bytes.try_reserve_exact(content.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
            bytes.extend_from_slice(content);
            self.last_read = Some((key, ContentMark::of(content, &self.marks)));
        }
        Ok(is_there)
    }

    fn contains(&mut self, key: BlockKey) -> io::Result<bool> {
        let mut command = redis::cmd("EXISTS");
        command.arg(self.name(key));
        self.query(&command)
    }

    /// Removes a block. If this store has read it last, and another one has replaced it since, it stays.
    fn remove(&mut self, key: BlockKey) -> io::Result<()> {
        let name = self.name(key);
        match self.last_read.take_if(|(read, _)| *read == key) {
            Some((_, mark)) => {
                let marks = self.marks.clone();
                let removed = self.run(|connection| remove_if(connection, &name, mark, &marks));
                if removed.is_err() {
                    // The connection may still watch the key.
                    self.connection = None;
                }
                removed
            }
            None => self.query(redis::cmd("DEL").arg(name)),
        }
    }
}
