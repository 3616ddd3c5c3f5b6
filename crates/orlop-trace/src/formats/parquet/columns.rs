//! Columns of a group of rows.

use crate::formats::event_rows::{Row, site_text};
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

/// The call sites of a group of rows as texts, each made once.
#[derive(Debug)]
pub(super) struct SiteTexts(HashMap<SiteId, ByteArray>);

impl SiteTexts {
    pub(super) fn of(rows: &[Row], sites: &Sites) -> Self {
        let mut texts = HashMap::new();
        for row in rows.iter().filter(|row| row.fact.site != SiteId::UNKNOWN) {
            texts.entry(row.fact.site).or_insert_with(|| site_text(row.fact.site, sites).into_bytes().into());
        }
        Self(texts)
    }

    pub(super) fn get(&self, row: &Row) -> Option<ByteArray> {
        self.0.get(&row.fact.site).cloned()
    }
}
