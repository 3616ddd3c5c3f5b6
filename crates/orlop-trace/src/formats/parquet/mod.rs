//! Events as a table in a Parquet file, for databases and data frames.
//!
//! There is one row for each event, in the history's order, device after device. Before the events of a
//! device come its blocks that were live at the start, with the action `start`.
//!
//! | column | type | what |
//! |---|---|---|
//! | `device` | `INT32` | the number of the device |
//! | `event` | `INT64`, optional | the index among the events of the device; null for `start` |
//! | `time_ns` | `INT64` | nanoseconds; only differences are meaningful |
//! | `action` | text | `start`, or as in [`csv`](super::csv) |
//! | `address` | `INT64`, optional | null for `out_of_memory` and `refused` |
//! | `bytes` | `INT64` | requested bytes, or the length of a region |
//! | `freed` | `INT64`, optional | of `start`, `allocate`: the event that frees the block, if any |
//! | `left` | `INT64`, optional | of `out_of_memory` and `refused`: the bytes that were left |
//! | `stream`, `thread` | `INT64` | 0 is the default stream, or an unknown thread |
//! | `kind` | text | the memory kind, such as `kv_cache` |
//! | `text` | text, optional | the tag, or the name of an annotation |
//! | `pool` | text, optional | the private pool, such as `0,7` |
//! | `site` | text, optional | the call site, a frame in each line, innermost first |
//! | `live` | `INT64` | the requested bytes of live blocks after the event |
//! | `reserved` | `INT64` | the bytes of segments after the event; 0 if the source does not record them |
//!
//! All numbers are signed, so that differences do not overflow; one above 2^63 - 1 is written as that
//! number. Texts are in dictionaries, and columns are compressed with Snappy.

mod columns;

use self::columns::{SiteTexts, column};
use crate::formats::Format;
use crate::formats::event_rows::{DeviceRows, Row, signed};
use crate::history::{DeviceHistory, History, Sites};
use crate::{Result, TraceError};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::io::{self, Write};
use std::sync::Arc;

/// The rows that are in memory at a time, and that readers take as a unit.
const GROUP: usize = 1 << 17;

const SCHEMA: &str = "message events {
    required int32 device;
    optional int64 event;
    required int64 time_ns;
    required binary action (UTF8);
    optional int64 address;
    required int64 bytes;
    optional int64 freed;
    optional int64 left;
    required int64 stream;
    required int64 thread;
    required binary kind (UTF8);
    optional binary text (UTF8);
    optional binary pool (UTF8);
    optional binary site (UTF8);
    required int64 live;
    required int64 reserved;
}";

/// Writes the table of events.
///
/// ```
/// use orlop_trace::formats::parquet;
/// use orlop_trace::history::History;
///
/// let history = History::parse("a,0,1000\na,1,500\nf,0\n".as_bytes())?;
/// let mut file = Vec::new();
/// parquet::write_parquet(&history, &mut file)?;
/// assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"));
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
///
/// # Errors
///
/// [`TraceError::Write`].
pub fn write_parquet(history: &History, writer: impl Write + Send) -> Result<()> {
    write(history, writer)
        .map_err(|error| TraceError::write(Format::Parquet)(io::Error::other(error.to_string())))
}

fn write(history: &History, writer: impl Write + Send) -> ParquetResult<()> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut file = SerializedFileWriter::new(writer, schema, Arc::new(properties))?;
    for device in &history.devices {
        let mut rows = DeviceRows::new(device);
        loop {
            let group: Vec<Row> = rows.by_ref().take(GROUP).collect();
            if group.is_empty() {
                break;
            }
            let mut writer = file.next_row_group()?;
            write_group(&mut writer, device, &group, &history.sites)?;
            writer.close()?;
        }
    }
    file.close().map(drop)
}

/// Writes rows, column by column in the order of the schema.
fn write_group<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    device: &DeviceHistory,
    rows: &[Row],
    sites: &Sites,
) -> ParquetResult<()> {
    let number = i32::try_from(device.device).unwrap_or(i32::MAX);
    let places = SiteTexts::of(rows, sites);
    column::<Int32Type, _>(group, rows, |_| Some(number))?;
    column::<Int64Type, _>(group, rows, |row| row.event.map(|event| signed(event as u64)))?;
    column::<Int64Type, _>(group, rows, |row| Some(signed(row.fact.time)))?;
    column::<ByteArrayType, _>(group, rows, |row| Some(row.action().into()))?;
    column::<Int64Type, _>(group, rows, |row| (!row.fails()).then(|| signed(row.fact.address)))?;
    column::<Int64Type, _>(group, rows, |row| Some(signed(row.fact.bytes)))?;
    column::<Int64Type, _>(group, rows, |row| row.freed.map(|event| signed(event as u64)))?;
    column::<Int64Type, _>(group, rows, |row| row.fails().then(|| signed(row.fact.address)))?;
    column::<Int64Type, _>(group, rows, |row| Some(signed(row.fact.stream.raw())))?;
    column::<Int64Type, _>(group, rows, |row| Some(i64::from(row.fact.thread)))?;
    column::<ByteArrayType, _>(group, rows, |row| Some(row.fact.kind.name().into()))?;
    let text = |row: &Row| Some(sites.name(row.fact.text)).filter(|text| !text.is_empty());
    column::<ByteArrayType, _>(group, rows, |row| text(row).map(ByteArray::from))?;
    column::<ByteArrayType, _>(group, rows, |row| row.pool_name().map(|name| name.into_bytes().into()))?;
    column::<ByteArrayType, _>(group, rows, |row| places.get(row))?;
    column::<Int64Type, _>(group, rows, |row| Some(signed(row.live)))?;
    column::<Int64Type, _>(group, rows, |row| Some(signed(row.reserved)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    /// Blocks of the start, a call site, a pool, a failed request, and numbers that do not fit.
    #[test]
    fn rows_have_lifetimes_and_sums() {
        use crate::history::{
            BlockState, EventAction, EventDetail, HistoryEvent, Segment, SegmentBlock, TextId,
        };
        let mut history = History::default();
        let frame = history.sites.frame("forward", "model.py", 7);
        let site = history.sites.stack(&[frame, frame]);
        let event =
            |action, address, bytes| HistoryEvent { site, ..HistoryEvent::new(action, address, bytes) };
        let mut device = DeviceHistory::from_events(vec![
            event(EventAction::Allocate, 4096, 100),
            event(EventAction::FreeRequested, 512, 30),
            event(EventAction::OutOfMemory, 77, u64::MAX),
            event(EventAction::RegionReserved, 8192, 1 << 20),
        ]);
        let live = SegmentBlock { state: BlockState::Live, requested: 30, ..SegmentBlock::free(512, 512) };
        device.start = vec![Segment {
            address: 512,
            bytes: 2048,
            stream: device.events[0].stream,
            small: true,
            expandable: false,
            pool: (0, 0),
            site,
            blocks: vec![live, SegmentBlock::free(1024, 1536)],
        }];
        device.details = vec![EventDetail { event: 0, context: TextId::NONE, pool: (0, 9) }];
        history.devices.push(device);

        let mut file = Vec::new();
        write_parquet(&history, &mut file).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap()).collect();
        let of = |row: usize, column| rows[row].get_long(column).ok();
        let text = |row: usize, column| rows[row].get_string(column).ok().map(String::as_str);
        let columns = |column| (0..5).map(|row| of(row, column)).collect::<Vec<_>>();
        assert_eq!(columns(1), [None, Some(0), Some(1), Some(2), Some(3)], "event");
        assert_eq!(columns(6), [Some(1), None, None, None, None], "freed");
        assert_eq!(columns(7), [None, None, None, Some(77), None], "left");
        assert_eq!(columns(14), [30, 130, 100, 100, 100].map(Some), "live");
        assert_eq!(columns(15), [2048, 2048, 2048, 2048, 2048 + (1 << 20)].map(Some), "reserved");
        assert_eq!((of(3, 5), of(3, 4)), (Some(i64::MAX), None));
        assert_eq!((text(0, 3), text(1, 3), text(1, 12)), (Some("start"), Some("allocate"), Some("0,9")));
        assert_eq!(text(2, 13), Some("model.py:7 forward\nmodel.py:7 forward"));
    }

    #[test]
    fn an_empty_history_is_a_table_without_rows() {
        let mut file = Vec::new();
        write_parquet(&History::default(), &mut file).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
        assert_eq!(reader.metadata().file_metadata().schema().get_fields().len(), 16);
    }
}
