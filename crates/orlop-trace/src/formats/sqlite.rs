//! Events as an SQLite database, for programs that have SQLite and no reader of Parquet.
//!
//! The view `recording` has the rows and columns of [`parquet`](super::parquet)'s table. Below it are the
//! table `events`, with the number of a call site in the place of its text, and the table `sites` with these
//! texts: one text is that of many events.

use super::Format;
use super::event_rows::{DeviceRows, Row, signed, site_text};
use crate::history::{DeviceHistory, History, SiteId, Sites};
use crate::{Result, TraceError};
use rusqlite::{Connection, ErrorCode, MAIN_DB, Statement, params};
use std::collections::HashSet;
use std::io::{self, Write};

/// The bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// The maximum number of pages: SQLite returns a database of at most 2 147 483 391 bytes as a whole
/// (`SQLITE_MAX_ALLOCATION_SIZE`).
const MAX_PAGES: u64 = 2_147_483_391 / PAGE_BYTES;

const SCHEMA: &str = "
CREATE TABLE sites (id INTEGER PRIMARY KEY, site TEXT NOT NULL);
CREATE TABLE events (
    device INTEGER NOT NULL, event INTEGER, time_ns INTEGER NOT NULL, action TEXT NOT NULL,
    address INTEGER, bytes INTEGER NOT NULL, freed INTEGER, \"left\" INTEGER,
    stream INTEGER NOT NULL, thread INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT, pool TEXT,
    site_id INTEGER REFERENCES sites, live INTEGER NOT NULL, reserved INTEGER NOT NULL
);
CREATE VIEW recording AS SELECT
    device, event, time_ns, action, address, bytes, freed, \"left\", stream, thread, kind, text, pool,
    site, live, reserved
FROM events LEFT JOIN sites ON id = site_id ORDER BY events.rowid;
";

/// Writes the database. It is in memory until it is complete.
///
/// ```
/// use orlop_trace::formats::sqlite;
/// use orlop_trace::history::History;
///
/// let history = History::parse("a,0,1000\na,1,500\nf,0\n".as_bytes())?;
/// let mut file = Vec::new();
/// sqlite::write_sqlite(&history, &mut file)?;
/// assert!(file.starts_with(b"SQLite format 3\0"));
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
///
/// # Errors
///
/// [`TraceError::Write`], also for a database of 2 GiB or more.
pub fn write_sqlite(history: &History, writer: &mut impl Write) -> Result<()> {
    write_pages(history, writer, MAX_PAGES).map_err(TraceError::write(Format::Sqlite))
}

/// Writes a database of at most `max_pages` pages.
fn write_pages(history: &History, writer: &mut impl Write, max_pages: u64) -> io::Result<()> {
    let database = database(history, max_pages).map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            let bytes = max_pages * PAGE_BYTES;
            let text = format!("the database exceeds {bytes} bytes, the maximum of this format; use Parquet");
            io::Error::new(io::ErrorKind::FileTooLarge, text)
        }
        _ => io::Error::other(error),
    })?;
    writer.write_all(&database.serialize(MAIN_DB).map_err(io::Error::other)?)
}

/// Returns the number of a call site in the tables.
fn number(site: SiteId) -> i64 {
    signed(site.index() as u64)
}

/// Returns the database, in memory. Fails as soon as it has more than `max_pages` pages.
fn database(history: &History, max_pages: u64) -> rusqlite::Result<Connection> {
    let mut database = Connection::open_in_memory()?;
    database.pragma_update(None, "page_size", signed(PAGE_BYTES))?;
    database.pragma_update_and_check(None, "max_page_count", signed(max_pages), |_| Ok(()))?;
    database.execute_batch(SCHEMA)?;
    let transaction = database.transaction()?;
    {
        let mut add_site = transaction.prepare("INSERT INTO sites VALUES (?, ?)")?;
        let placeholders = vec!["?"; 16].join(", ");
        let mut add_event = transaction.prepare(&format!("INSERT INTO events VALUES ({placeholders})"))?;
        let mut known = HashSet::new();
        for device in &history.devices {
            for row in DeviceRows::new(device) {
                let site = row.fact.site;
                if site != SiteId::UNKNOWN && known.insert(site) {
                    add_site.execute(params![number(site), site_text(site, &history.sites)])?;
                }
                insert(&mut add_event, device, &row, &history.sites)?;
            }
        }
    }
    transaction.commit()?;
    Ok(database)
}

/// Adds a row, in the order of the columns.
fn insert(add: &mut Statement<'_>, device: &DeviceHistory, row: &Row, sites: &Sites) -> rusqlite::Result<()> {
    let fact = &row.fact;
    let text = Some(sites.name(fact.text)).filter(|text| !text.is_empty());
    add.execute(params![
        device.device,
        row.event.map(|event| signed(event as u64)),
        signed(fact.time),
        row.action(),
        (!row.fails()).then(|| signed(fact.address)),
        signed(fact.bytes),
        row.freed.map(|event| signed(event as u64)),
        row.fails().then(|| signed(fact.address)),
        signed(fact.stream.raw()),
        i64::from(fact.thread),
        fact.kind.name(),
        text,
        row.pool_name(),
        (fact.site != SiteId::UNKNOWN).then(|| number(fact.site)),
        signed(row.live),
        signed(row.reserved),
    ])
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Two blocks of one call site, a failed request, and a number that does not fit.
    fn history() -> History {
        use crate::history::{EventAction, HistoryEvent};
        let mut history = History::default();
        let frames = [("forward", 7), ("main", 2)];
        let frames = frames.map(|(name, line)| history.sites.frame(name, "model.py", line));
        let site = history.sites.stack(&frames);
        let event =
            |action, address, bytes| HistoryEvent { site, ..HistoryEvent::new(action, address, bytes) };
        history.devices.push(DeviceHistory::from_events(vec![
            event(EventAction::RegionReserved, 4096, 1 << 20),
            event(EventAction::Allocate, 4096, 100),
            event(EventAction::FreeRequested, 4096, 100),
            event(EventAction::FreeCompleted, 4096, 100),
            event(EventAction::Allocate, 4096, 300),
            event(EventAction::OutOfMemory, 77, u64::MAX),
        ]));
        history
    }

    fn large_history() -> History {
        use crate::history::{EventAction, HistoryEvent};
        let event = |address| HistoryEvent::new(EventAction::Allocate, address, 100);
        let events = (0..2000).map(|index| event(4096 * index)).collect();
        let mut history = History::default();
        history.devices.push(DeviceHistory::from_events(events));
        history
    }

    fn opened(history: &History) -> (tempfile::TempDir, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording.sqlite");
        write_sqlite(history, &mut std::fs::File::create(&path).unwrap()).unwrap();
        let database = Connection::open(path).unwrap();
        (folder, database)
    }

    #[test]
    fn rows_have_lifetimes_sums_and_call_sites() {
        let (_folder, database) = opened(&history());
        let row = |event: i64| {
            let columns = "action, address, bytes, freed, \"left\", site, live, reserved";
            let query = format!("SELECT {columns} FROM recording WHERE event = ?");
            let values = database.query_row(&query, [event], |row| {
                let texts: (String, Option<String>) = (row.get(0)?, row.get(5)?);
                let numbers: [Option<i64>; 6] =
                    [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(6)?, row.get(7)?];
                Ok((texts, numbers))
            });
            values.unwrap()
        };
        let site = Some("model.py:7 forward\nmodel.py:2 main".to_owned());
        let some = Some::<i64>;
        let expected = [some(4096), some(100), some(2), None, some(100), some(1 << 20)];
        assert_eq!(row(1), (("allocate".to_owned(), site.clone()), expected));
        let expected = [None, some(i64::MAX), None, some(77), some(300), some(1 << 20)];
        assert_eq!(row(5), (("out_of_memory".to_owned(), site), expected));
        let sites: i64 = database.query_row("SELECT count(*) FROM sites", [], |row| row.get(0)).unwrap();
        assert_eq!(sites, 1);
    }

    /// Every query of `docs/tables.md` has an answer, with the view in the place of the file.
    #[test]
    fn the_queries_of_the_page_have_answers() {
        let (_folder, database) = opened(&history());
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tables.md"));
        let queries = page.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
        let mut answers = BTreeMap::new();
        for (index, query) in queries.enumerate() {
            let query = query.replace("'recording.parquet'", "recording");
            let mut statement = database.prepare(&query).unwrap_or_else(|error| panic!("{query}: {error}"));
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| {
                let cells = (0..columns).map(|column| row.get::<_, rusqlite::types::Value>(column));
                cells.collect::<rusqlite::Result<Vec<_>>>()
            });
            answers.insert(index, rows.unwrap().collect::<rusqlite::Result<Vec<_>>>().unwrap());
        }
        assert_eq!(answers.len(), 5);
        assert!(answers.values().all(|rows| !rows.is_empty()), "{answers:?}");
        let place = rusqlite::types::Value::Text("model.py:7 forward".to_owned());
        assert_eq!(answers[&1][0][0], place);
    }

    #[test]
    fn a_database_beyond_the_maximum_is_an_error_that_names_it() {
        let mut written = Vec::new();
        let history = large_history();
        let error = write_pages(&history, &mut written, 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().starts_with("the database exceeds 40960 bytes"), "{error}");
        assert!(written.is_empty());
        write_pages(&history, &mut written, 1000).unwrap();
        let pages = written.len() as u64 / PAGE_BYTES;
        assert!((11..1000).contains(&pages), "{pages}");
        // The maximum itself is allowed.
        write_pages(&history, &mut Vec::new(), pages).unwrap();
        write_pages(&history, &mut Vec::new(), pages - 1).unwrap_err();
    }

    #[test]
    fn an_empty_history_is_a_table_without_rows() {
        let (_folder, database) = opened(&History::default());
        let rows: i64 = database.query_row("SELECT count(*) FROM recording", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0);
    }
}
