//! JSON, on one line.

use super::SnapshotOutput;
use crate::formats::snapshot::words::Word;
use crate::history::{Frame, SiteId, Sites, TextId};
use std::io::{self, BufWriter, Write};

pub(super) struct Json<W: Write> {
    writer: BufWriter<W>,
    /// Whether the list or record that is being written is empty so far.
    first: bool,
}

impl<W: Write> Json<W> {
    pub(super) fn write(writer: W, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let mut json = Self { writer: BufWriter::new(writer), first: true };
        write(&mut json)?;
        json.writer.write_all(b"\n")?;
        json.writer.flush()
    }

    fn begin(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.first = true;
        self.writer.write_all(bracket)
    }

    fn end(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.first = false;
        self.writer.write_all(bracket)
    }

    fn frame(&mut self, frame: Frame, sites: &Sites) -> io::Result<()> {
        self.begin_record()?;
        self.key(Word::Name)?;
        self.text(frame.function, sites)?;
        self.key(Word::Filename)?;
        self.text(frame.file, sites)?;
        self.number_field(Word::Line, frame.line.into())?;
        self.end_record()
    }
}

impl<W: Write> SnapshotOutput for Json<W> {
    fn begin_record(&mut self) -> io::Result<()> {
        self.begin(b"{")
    }

    fn end_record(&mut self) -> io::Result<()> {
        self.end(b"}")
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.begin(b"[")
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.end(b"]")
    }

    fn item(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.writer.write_all(b",")?;
        }
        Ok(())
    }

    fn key(&mut self, key: Word) -> io::Result<()> {
        self.item()?;
        self.word(key)?;
        self.writer.write_all(b":")
    }

    fn number(&mut self, number: u64) -> io::Result<()> {
        write!(self.writer, "{number}")
    }

    fn flag(&mut self, flag: bool) -> io::Result<()> {
        write!(self.writer, "{flag}")
    }

    fn word(&mut self, word: Word) -> io::Result<()> {
        // Words contain no characters that need escapes.
        write!(self.writer, "\"{}\"", word.text())
    }

    fn string(&mut self, text: &str) -> io::Result<()> {
        serde_json::to_writer(&mut self.writer, text).map_err(io::Error::from)
    }

    fn pair(&mut self, (first, second): (u64, u64)) -> io::Result<()> {
        write!(self.writer, "[{first},{second}]")
    }

    fn text(&mut self, text: TextId, sites: &Sites) -> io::Result<()> {
        self.string(sites.name(text))
    }

    fn site(&mut self, site: SiteId, sites: &Sites) -> io::Result<()> {
        self.list(sites.frames(site), |out, frame| out.frame(frame, sites))
    }
}
