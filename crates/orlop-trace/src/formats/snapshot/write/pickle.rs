//! Pickles of protocol 4, without its optional frames.
//!
//! Words, texts, frames and call sites are written once and then referred to by memo, as in PyTorch's
//! snapshots. Only opcodes that the viewer's reader supports are used. Lists are written in batches of a
//! thousand, as by Python, because the viewer puts each batch on its call stack.

use super::SnapshotOutput;
use crate::formats::snapshot::words::Word;
use crate::history::{Frame, SiteId, Sites, TextId};
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

/// The number of list items that are appended at once.
const BATCH: u32 = 1000;

/// A value that is written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum MemoKey {
    Word(u8),
    Text(TextId),
    Frame(Frame),
    Site(SiteId),
}

pub(super) struct Pickle<W: Write> {
    writer: BufWriter<W>,
    memos: HashMap<MemoKey, u32>,
    /// The number of items in the current batch of each list that is being written.
    batches: Vec<u32>,
}

impl<W: Write> Pickle<W> {
    pub(super) fn write(writer: W, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let mut pickle = Self { writer: BufWriter::new(writer), memos: HashMap::new(), batches: Vec::new() };
        pickle.writer.write_all(&[0x80, 4])?;
        write(&mut pickle)?;
        pickle.writer.write_all(b".")?;
        pickle.writer.flush()
    }

    /// Writes a reference to a value that was written before. Returns `false` if it was not.
    fn reference(&mut self, key: MemoKey) -> io::Result<bool> {
        let Some(&memo) = self.memos.get(&key) else { return Ok(false) };
        match u8::try_from(memo) {
            Ok(memo) => self.writer.write_all(&[b'h', memo])?,
            Err(_) => {
                self.writer.write_all(b"j")?;
                self.writer.write_all(&memo.to_le_bytes())?;
            }
        }
        Ok(true)
    }

    /// Memoizes the value that was just written.
    fn memoize(&mut self, key: MemoKey) -> io::Result<()> {
        // Memos beyond 2^32 cannot be referred to: such values are written again.
        if let Ok(memo) = u32::try_from(self.memos.len()) {
            self.memos.insert(key, memo);
            self.writer.write_all(&[0x94])?;
        }
        Ok(())
    }

    fn frame(&mut self, frame: Frame, sites: &Sites) -> io::Result<()> {
        if self.reference(MemoKey::Frame(frame))? {
            return Ok(());
        }
        self.writer.write_all(b"}")?;
        self.memoize(MemoKey::Frame(frame))?;
        self.writer.write_all(b"(")?;
        self.key(Word::Name)?;
        self.text(frame.function, sites)?;
        self.key(Word::Filename)?;
        self.text(frame.file, sites)?;
        self.number_field(Word::Line, frame.line.into())?;
        self.writer.write_all(b"u")
    }

    fn items(&mut self, site: SiteId, sites: &Sites) -> io::Result<()> {
        self.batches.push(0);
        for frame in sites.frames(site) {
            self.item()?;
            self.frame(frame, sites)?;
        }
        self.end_list()
    }
}

impl<W: Write> SnapshotOutput for Pickle<W> {
    fn begin_record(&mut self) -> io::Result<()> {
        self.writer.write_all(b"}(")
    }

    fn end_record(&mut self) -> io::Result<()> {
        self.writer.write_all(b"u")
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.batches.push(0);
        self.writer.write_all(b"]")
    }

    fn end_list(&mut self) -> io::Result<()> {
        match self.batches.pop() {
            Some(1..) => self.writer.write_all(b"e"),
            _ => Ok(()),
        }
    }

    fn item(&mut self) -> io::Result<()> {
        let Some(batch) = self.batches.last_mut() else { return Ok(()) };
        match *batch {
            0 => self.writer.write_all(b"(")?,
            BATCH => {
                *batch = 0;
                self.writer.write_all(b"e(")?;
            }
            _ => {}
        }
        *batch += 1;
        Ok(())
    }

    fn key(&mut self, key: Word) -> io::Result<()> {
        self.word(key)
    }

    fn number(&mut self, number: u64) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(number) {
            return self.writer.write_all(&[b'K', byte]);
        }
        if let Ok(short) = u16::try_from(number) {
            self.writer.write_all(b"M")?;
            return self.writer.write_all(&short.to_le_bytes());
        }
        if let Ok(int) = i32::try_from(number) {
            self.writer.write_all(b"J")?;
            return self.writer.write_all(&int.to_le_bytes());
        }
        // Two's complement: one more byte if the highest bit is set.
        let bytes = number.to_le_bytes();
        let zeros = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        let used = &bytes[..bytes.len() - zeros];
        let signed = used.last().is_some_and(|&byte| byte >= 0x80);
        let length = u8::try_from(used.len() + usize::from(signed)).unwrap_or(u8::MAX);
        self.writer.write_all(&[0x8a, length])?;
        self.writer.write_all(used)?;
        self.writer.write_all(if signed { &[0] } else { &[] })
    }

    fn flag(&mut self, flag: bool) -> io::Result<()> {
        self.writer.write_all(if flag { &[0x88] } else { &[0x89] })
    }

    fn word(&mut self, word: Word) -> io::Result<()> {
        let key = MemoKey::Word(word as u8);
        if self.reference(key)? {
            return Ok(());
        }
        self.string(word.text())?;
        self.memoize(key)
    }

    fn string(&mut self, text: &str) -> io::Result<()> {
        if let Ok(length) = u8::try_from(text.len()) {
            self.writer.write_all(&[0x8c, length])?;
        } else if let Ok(length) = u32::try_from(text.len()) {
            self.writer.write_all(b"X")?;
            self.writer.write_all(&length.to_le_bytes())?;
        } else {
            self.writer.write_all(&[0x8d])?;
            self.writer.write_all(&(text.len() as u64).to_le_bytes())?;
        }
        self.writer.write_all(text.as_bytes())
    }

    fn pair(&mut self, (first, second): (u64, u64)) -> io::Result<()> {
        self.number(first)?;
        self.number(second)?;
        self.writer.write_all(&[0x86])
    }

    fn text(&mut self, text: TextId, sites: &Sites) -> io::Result<()> {
        let key = MemoKey::Text(text);
        if self.reference(key)? {
            return Ok(());
        }
        self.string(sites.name(text))?;
        self.memoize(key)
    }

    fn site(&mut self, site: SiteId, sites: &Sites) -> io::Result<()> {
        let key = MemoKey::Site(site);
        if self.reference(key)? {
            return Ok(());
        }
        self.writer.write_all(b"]")?;
        self.memoize(key)?;
        self.items(site, sites)
    }
}
