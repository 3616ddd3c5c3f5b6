//! Plain or compressed bytes: the first ones tell.

use flate2::read::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// What every gzip file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What `reader` gives, decompressed if need be, a bufferful at a time.
pub(super) fn open<'a>(mut reader: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut head = Vec::with_capacity(GZIP.len());
    reader.by_ref().take(GZIP.len() as u64).read_to_end(&mut head)?;
    let compressed = head == GZIP;
    let whole = Cursor::new(head).chain(reader);
    Ok(if compressed {
        Box::new(BufReader::new(MultiGzDecoder::new(whole)))
    } else {
        Box::new(BufReader::new(whole))
    })
}
