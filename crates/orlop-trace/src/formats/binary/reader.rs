//! Reading a file block by block.

use super::super::{AdmittedDevices, BlockFault, Format};
use super::payload::PayloadCursor;
use super::record::BinaryRecord;
use super::start_records::StartOrder;
use super::tables::RecordTables;
use super::{BLOCK_HEAD, EventOrder, HEADER, MAGIC, MAX_BLOCK, NEARLY, OLDEST_VERSION, VERSION};
use crate::history::{HistoryEvent, HistoryWarning, Sites};
use crate::input;
use crate::{Result, TraceError};
use std::fmt;
use std::io::{self, BufRead, Read as _};

/// An iterator over the events of a file. In memory it has one block, and what the events refer to:
/// [`BinaryReader::sites`].
///
/// It ends after the first error; the events before it are valid. [`TraceError::CutOff`] and
/// [`TraceError::Damaged`] have the position.
pub struct BinaryReader<'a> {
    input: Box<dyn BufRead + 'a>,
    order: EventOrder,
    payload: Vec<u8>,
    /// The bytes of the payload that were read.
    used: usize,
    /// The positions of this block and the next one.
    at: u64,
    next_at: u64,
    events: u64,
    ended: bool,
    devices: AdmittedDevices,
    start_order: StartOrder,
    tables: RecordTables,
}

impl<'a> BinaryReader<'a> {
    /// Opens a file, plain or gzip.
    ///
    /// # Errors
    ///
    /// [`TraceError::WrongFormat`], [`TraceError::Version`], [`TraceError::Read`].
    pub fn new(reader: impl io::Read + 'a) -> Result<Self> {
        let failed = TraceError::read(Format::Binary);
        let mut input = input::open(reader).map_err(&failed)?;
        let mut header = Vec::with_capacity(HEADER);
        input.by_ref().take(HEADER as u64).read_to_end(&mut header).map_err(failed)?;
        let known = header.strip_prefix(&MAGIC).and_then(|rest| rest.first_chunk::<4>());
        let Some(&[version_low, version_high, flags_low, flags_high]) = known else {
            return Err(TraceError::WrongFormat { format: Format::Binary });
        };
        let found = u16::from_le_bytes([version_low, version_high]);
        if !(OLDEST_VERSION..=VERSION).contains(&found) {
            return Err(TraceError::Version { found, known: VERSION });
        }
        let nearly = u16::from_le_bytes([flags_low, flags_high]) & NEARLY != 0;
        Ok(Self {
            input,
            order: if nearly { EventOrder::Nearly } else { EventOrder::Exact },
            payload: Vec::new(),
            used: 0,
            at: HEADER as u64,
            next_at: HEADER as u64,
            events: 0,
            ended: false,
            devices: AdmittedDevices::default(),
            start_order: StartOrder::default(),
            tables: RecordTables::default(),
        })
    }

    /// Returns the order of the events.
    #[must_use]
    pub fn order(&self) -> EventOrder {
        self.order
    }

    /// Returns the device of the last event; 0 before the first.
    #[must_use]
    pub fn device(&self) -> u32 {
        self.tables.device.unwrap_or(0)
    }

    /// Returns the call sites and texts of the events so far.
    #[must_use]
    pub fn sites(&self) -> &Sites {
        &self.tables.sites
    }

    pub(super) fn into_sites(self) -> Sites {
        self.tables.sites
    }

    /// Reads the next record of any kind.
    fn read_record(&mut self) -> Result<Option<BinaryRecord>> {
        if self.ended {
            return Ok(None);
        }
        let item = self.advance();
        self.ended = !matches!(item, Ok(Some(_)));
        item
    }

    /// Reads the next record of any kind. A file that is cut off or damaged ends there, with a warning.
    ///
    /// # Errors
    ///
    /// [`TraceError::Read`], [`TraceError::TooManyDevices`].
    pub fn next_record(&mut self, warnings: &mut Vec<HistoryWarning>) -> Result<Option<BinaryRecord>> {
        let end = match self.read_record() {
            Err(TraceError::CutOff { at }) => HistoryWarning::CutOff { at },
            Err(TraceError::Damaged { at, .. }) => HistoryWarning::Damaged { at },
            item => return item,
        };
        warnings.push(end);
        Ok(None)
    }

    fn advance(&mut self) -> Result<Option<BinaryRecord>> {
        loop {
            let mut cursor = PayloadCursor(self.payload.get(self.used..).unwrap_or_default());
            if cursor.0.is_empty() {
                if !self.block()? {
                    return Ok(None);
                }
                continue;
            }
            let item = self.tables.record(&mut cursor);
            let item = item.map_err(|fault| TraceError::Damaged { at: self.at, fault })?;
            self.used = self.payload.len() - cursor.0.len();
            if let Some(item) = item {
                let in_order = self.start_order.check(&item);
                in_order.map_err(|fault| TraceError::Damaged { at: self.at, fault })?;
                match item {
                    BinaryRecord::Event(_) => self.events += 1,
                    BinaryRecord::Device(device) => self.devices.admit(device)?,
                    // These belong to device 0 if the file has not named a device before.
                    BinaryRecord::Memory(_)
                    | BinaryRecord::Detail(_)
                    | BinaryRecord::Unplaced(_)
                    | BinaryRecord::CountedReserved(_)
                        if self.devices.is_empty() =>
                    {
                        self.devices.admit(0)?;
                    }
                    _ => {}
                }
                return Ok(Some(item));
            }
        }
    }

    /// Reads the next block; returns `false` at the end.
    fn block(&mut self) -> Result<bool> {
        self.at = self.next_at;
        let mut head = [0; BLOCK_HEAD];
        self.fill(&mut head)?;
        let [a, b, c, d, e, f, g, h] = head;
        let (length, checksum) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let at = self.at;
        if length == 0 {
            let mut count = [0; 8];
            self.fill(&mut count)?;
            if crc32fast::hash(&count) != checksum {
                return Err(TraceError::Damaged { at, fault: BlockFault::Checksum });
            }
            if u64::from_le_bytes(count) != self.events {
                return Err(TraceError::Damaged { at, fault: BlockFault::Count });
            }
            return Ok(false);
        }
        if length as usize > MAX_BLOCK {
            return Err(TraceError::Damaged { at, fault: BlockFault::Length });
        }
        self.payload.clear();
        self.used = 0;
        // Grows as bytes arrive: a length field alone allocates nothing.
        let read = self.input.by_ref().take(length.into()).read_to_end(&mut self.payload);
        self.input_error(read.map(|_| ()))?;
        if self.payload.len() < length as usize {
            return Err(TraceError::CutOff { at });
        }
        if crc32fast::hash(&self.payload) != checksum {
            return Err(TraceError::Damaged { at, fault: BlockFault::Checksum });
        }
        self.next_at = at + BLOCK_HEAD as u64 + u64::from(length);
        self.tables.begin_block();
        Ok(true)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let read = self.input.read_exact(bytes);
        self.input_error(read)
    }

    /// A compressed file that is cut off ends with an unexpected end of file, too.
    fn input_error(&self, read: io::Result<()>) -> Result<()> {
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => TraceError::CutOff { at: self.at },
            _ => TraceError::read(Format::Binary)(error),
        })
    }
}

impl Iterator for BinaryReader<'_> {
    type Item = Result<HistoryEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.read_record() {
                Ok(Some(BinaryRecord::Event(event))) => return Some(Ok(event)),
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl fmt::Debug for BinaryReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BinaryReader")
            .field("at", &self.at)
            .field("events", &self.events)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
