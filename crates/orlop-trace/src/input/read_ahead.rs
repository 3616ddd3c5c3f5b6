//! Reading a file on a thread of its own, while what was read of it is parsed.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

const BUFFER: usize = 512 << 10;
const BUFFERS: usize = 8;

/// The length from which a file is worth a thread.
const MIN_LENGTH: u64 = 4 << 20;

/// Parses a file, which is read ahead if it is long. Pipes are not: a read can take any time, and an error of
/// `parse` would wait for it.
pub(crate) fn read_ahead<T>(file: &File, parse: impl FnOnce(&mut dyn Read) -> T) -> T {
    let is_long = file.metadata().is_ok_and(|data| data.is_file() && data.len() >= MIN_LENGTH);
    if !is_long {
        return parse(&mut &*file);
    }
    let (to_fill, unfilled) = sync_channel(BUFFERS);
    let (to_read, filled) = sync_channel(BUFFERS);
    for _ in 0..BUFFERS {
        // There is room, and a receiver.
        let _ = to_fill.send(vec![0; BUFFER]);
    }
    thread::scope(|scope| {
        let fill = move || fill(file, &unfilled, &to_read);
        match thread::Builder::new().spawn_scoped(scope, fill) {
            Ok(_) => parse(&mut AheadReader { to_fill, filled, current: Vec::new(), at: 0, length: 0 }),
            Err(_) => parse(&mut &*file),
        }
    })
}

/// A buffer and the number of bytes that were read into it.
type Filled = io::Result<(Vec<u8>, usize)>;

/// Fills buffers up to the end of the file, the first error, or the end of the reader.
fn fill(mut file: &File, unfilled: &Receiver<Vec<u8>>, to_read: &SyncSender<Filled>) {
    while let Ok(mut buffer) = unfilled.recv() {
        let read = loop {
            match file.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let is_last = !matches!(read, Ok(1..));
        if to_read.send(read.map(|length| (buffer, length))).is_err() || is_last {
            return;
        }
    }
}

struct AheadReader {
    to_fill: SyncSender<Vec<u8>>,
    filled: Receiver<Filled>,
    current: Vec<u8>,
    at: usize,
    length: usize,
}

impl Read for AheadReader {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.at == self.length {
            // After the last buffer there are no others.
            let Ok(next) = self.filled.recv() else { return Ok(0) };
            let (next, length) = next?;
            let read = std::mem::replace(&mut self.current, next);
            (self.at, self.length) = (0, length);
            if !read.is_empty() {
                // The thread has ended if it needs no more.
                let _ = self.to_fill.send(read);
            }
        }
        let rest = self.current.get(self.at..self.length).unwrap_or_default();
        let count = rest.len().min(target.len());
        if let (Some(target), Some(rest)) = (target.get_mut(..count), rest.get(..count)) {
            target.copy_from_slice(rest);
        }
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    #[test]
    fn a_long_file_is_read_in_order_and_as_far_as_it_is_parsed() {
        let bytes: Vec<u8> = (0..MIN_LENGTH + 77).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        for count in [bytes.len(), bytes.len() / 2, 10] {
            file.rewind().unwrap();
            let read = read_ahead(&file, |reader| {
                let mut read = Vec::new();
                reader.take(count as u64).read_to_end(&mut read).unwrap();
                read
            });
            assert!(read == bytes[..count]);
        }
        file.rewind().unwrap();
        let ends = read_ahead(&file, |reader| {
            io::copy(reader, &mut io::sink()).unwrap();
            [reader.read(&mut [0]).unwrap(), reader.read(&mut [0]).unwrap()]
        });
        assert_eq!(ends, [0, 0]);
    }
}
