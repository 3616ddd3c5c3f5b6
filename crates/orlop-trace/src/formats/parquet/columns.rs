//! Columns of a group of rows.

use super::rows::Row;
use crate::history::{SiteId, Sites};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::SerializedRowGroupWriter;
use std::collections::HashMap;
use std::io::Write;

/// Writes the next column: a value for each row, or none where the schema allows it.
pub(super) fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Row],
    mut value: impl FnMut(&Row) -> Option<T::T>,
) -> Result<()> {
    let (mut values, mut levels) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
    for row in rows {
        let value = value(row);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    let missing = || ParquetError::General("the schema has fewer columns".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}

/// Returns a number as a signed one.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The call sites of a group of rows as texts, each made once.
#[derive(Debug)]
pub(super) struct SiteTexts(HashMap<SiteId, ByteArray>);

impl SiteTexts {
    pub(super) fn of(rows: &[Row], sites: &Sites) -> Self {
        let mut texts = HashMap::new();
        for row in rows.iter().filter(|row| row.fact.site != SiteId::UNKNOWN) {
            texts.entry(row.fact.site).or_insert_with(|| text(row.fact.site, sites));
        }
        Self(texts)
    }

    pub(super) fn get(&self, row: &Row) -> Option<ByteArray> {
        self.0.get(&row.fact.site).cloned()
    }
}

/// Returns the frames of a call site, a line each.
fn text(site: SiteId, sites: &Sites) -> ByteArray {
    let frame = |frame: crate::history::Frame| {
        let (file, function) = (sites.name(frame.file), sites.name(frame.function));
        match file {
            "" | "??" => function.replace('\n', " "),
            file => format!("{file}:{} {function}", frame.line).replace('\n', " "),
        }
    };
    sites.frames(site).map(frame).collect::<Vec<_>>().join("\n").into_bytes().into()
}
