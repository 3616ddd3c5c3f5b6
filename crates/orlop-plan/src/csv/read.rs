//! Reading a problem.

use super::line::{Lines, fields};
use super::relations::Relations;
use crate::{Buffer, CsvError, Problem, ProblemBuilder, ProblemColumn};
use orlop_core::Alignment;
use std::borrow::Cow;
use std::io::{BufReader, Read};
use std::ops::Range;

/// The maximum number of characters of a field in an error.
const SHOWN: usize = 40;

/// The indices of the columns.
#[derive(Debug, Default)]
pub(super) struct CsvHeader {
    columns: usize,
    id: Option<usize>,
    start: Option<usize>,
    end: Option<usize>,
    /// Whether the end is the last time at which the buffer is live, and not the one after it.
    includes_end: bool,
    size: Option<usize>,
    alignment: Option<usize>,
    gaps: Option<usize>,
    pub(super) offset: Option<usize>,
    hint: Option<usize>,
    accesses: Option<usize>,
    spaces: Option<usize>,
    pub(super) part_of: Option<usize>,
    pub(super) exclude: Option<usize>,
}

impl CsvHeader {
    fn new(names: &[Cow<'_, str>], line: u64) -> Result<Self, CsvError> {
        let mut header = Self { columns: names.len(), ..Self::default() };
        let mut unknown = None;
        for (index, name) in names.iter().enumerate() {
            let (place, column) = match name.to_ascii_lowercase().as_str() {
                "id" | "buffer" | "buffer_id" => (&mut header.id, ProblemColumn::Id),
                "lower" | "start" | "begin" => (&mut header.start, ProblemColumn::Start),
                "upper" => (&mut header.end, ProblemColumn::End),
                "end" => {
                    header.includes_end = true;
                    (&mut header.end, ProblemColumn::End)
                }
                "size" => (&mut header.size, ProblemColumn::Size),
                "alignment" => (&mut header.alignment, ProblemColumn::Alignment),
                "gaps" => (&mut header.gaps, ProblemColumn::Gaps),
                "offset" => (&mut header.offset, ProblemColumn::Offset),
                "hint" => (&mut header.hint, ProblemColumn::Hint),
                "accesses" => (&mut header.accesses, ProblemColumn::Accesses),
                "spaces" => (&mut header.spaces, ProblemColumn::Spaces),
                "part_of" => (&mut header.part_of, ProblemColumn::PartOf),
                "exclude" => (&mut header.exclude, ProblemColumn::Exclude),
                _ => {
                    unknown.get_or_insert(name);
                    continue;
                }
            };
            if place.replace(index).is_some() {
                return Err(CsvError::ColumnTwice { line, column });
            }
        }
        let needed = [
            (header.start, ProblemColumn::Start),
            (header.end, ProblemColumn::End),
            (header.size, ProblemColumn::Size),
        ];
        // First: other files, such as recordings, have no such columns.
        if let Some(&(_, column)) = needed.iter().find(|(place, _)| place.is_none()) {
            return Err(CsvError::MissingColumn { line, column });
        }
        match unknown {
            Some(name) => Err(CsvError::UnknownColumn { line, name: shorten(name) }),
            None => Ok(header),
        }
    }
}

/// The fields of a buffer's line.
pub(super) struct CsvRow<'a> {
    fields: Vec<Cow<'a, str>>,
    pub(super) line: u64,
}

impl CsvRow<'_> {
    /// Returns the text of a column, if there is such a column.
    pub(super) fn text(&self, place: Option<usize>) -> Option<&str> {
        place.and_then(|place| self.fields.get(place)).map(|field| &**field)
    }

    pub(super) fn unexpected(&self, column: ProblemColumn, found: &str) -> CsvError {
        CsvError::Unexpected { line: self.line, column, found: shorten(found) }
    }

    fn number(&self, place: Option<usize>, column: ProblemColumn) -> Result<u64, CsvError> {
        let text = self.text(place).unwrap_or_default();
        // The standard library also takes a sign.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits).ok_or_else(|| self.unexpected(column, text))
    }

    /// Returns the number in a column, if it has one.
    pub(super) fn optional(
        &self,
        place: Option<usize>,
        column: ProblemColumn,
    ) -> Result<Option<u64>, CsvError> {
        let is_empty = self.text(place).is_none_or(str::is_empty);
        if is_empty { Ok(None) } else { self.number(place, column).map(Some) }
    }

    fn end(&self, header: &CsvHeader) -> Result<u64, CsvError> {
        let end = self.number(header.end, ProblemColumn::End)?;
        let behind = if header.includes_end { end.checked_add(1) } else { Some(end) };
        behind.ok_or_else(|| self.unexpected(ProblemColumn::End, self.text(header.end).unwrap_or_default()))
    }

    fn alignment(&self, header: &CsvHeader) -> Result<Alignment, CsvError> {
        if header.alignment.is_none() {
            return Ok(Alignment::ONE);
        }
        let bytes = self.number(header.alignment, ProblemColumn::Alignment)?;
        let alignment = usize::try_from(bytes).ok().and_then(|bytes| Alignment::new(bytes).ok());
        alignment.ok_or_else(|| self.unexpected(ProblemColumn::Alignment, &bytes.to_string()))
    }

    /// Returns the times at which the buffer is not live.
    fn gaps(&self, header: &CsvHeader) -> Result<Vec<Range<u64>>, CsvError> {
        let text = self.text(header.gaps).unwrap_or_default();
        let gap = |gap: &str| {
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let (start, end) =
                gap.split_once('-').filter(|(start, end)| is_number(start) && is_number(end))?;
            let (start, end) = (start.parse().ok()?, end.parse::<u64>().ok()?);
            Some(start..end.checked_add(u64::from(header.includes_end))?)
        };
        let gaps: Option<Vec<_>> = text.split_ascii_whitespace().map(gap).collect();
        gaps.ok_or_else(|| self.unexpected(ProblemColumn::Gaps, text))
    }

    fn buffer(&self, header: &CsvHeader) -> Result<Buffer, CsvError> {
        let lifetime = self.number(header.start, ProblemColumn::Start)?..self.end(header)?;
        let size = self.number(header.size, ProblemColumn::Size)?;
        Ok(Buffer::unaligned(lifetime, size).aligned(self.alignment(header)?))
    }
}

/// Returns the beginning of a text for an error.
fn shorten(text: &str) -> Box<str> {
    text.chars().take(SHOWN).collect()
}

/// Returns `true` if an id is this number in its normal form.
fn is_number(id: &str, number: u64) -> bool {
    let padded = id.len() > 1 && id.starts_with('0');
    !padded && !id.starts_with('+') && id.parse() == Ok(number)
}

impl Problem {
    /// Reads a problem as CSV: see [`csv`](crate::csv) for the format. Ids that only number the buffers from
    /// 0 are not names.
    ///
    /// ```
    /// use orlop_plan::Problem;
    ///
    /// let problem = Problem::read_csv("id,lower,upper,size\nweights,0,9,4096\nx,2,3,512\n".as_bytes())?;
    /// assert_eq!((problem.name(1), problem.buffers()[1].size), (Some("x"), 512));
    /// let error = Problem::read_csv("id,lower,upper,size\nweights,0,nine,4096\n".as_bytes()).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "line 2: the end cannot be \"nine\", expected a whole number below 2^64"
    /// );
    /// # Ok::<(), orlop_plan::CsvError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CsvError`] with the number of the line.
    pub fn read_csv(reader: impl Read) -> Result<Self, CsvError> {
        let mut lines = Lines::new(BufReader::new(reader));
        let header = match lines.next()? {
            Some((line, names)) => CsvHeader::new(&fields(&names).ok_or(CsvError::Quote { line })?, line)?,
            None => CsvHeader::new(&[], 1)?,
        };
        let mut builder = ProblemBuilder::new();
        let (mut count, mut counting) = (0_u64, true);
        let mut relations = Relations::default();
        while let Some((line, text)) = lines.next()? {
            let row = CsvRow { fields: fields(&text).ok_or(CsvError::Quote { line })?, line };
            let found = row.fields.len();
            if found != header.columns {
                return Err(CsvError::Fields { line, found, expected: header.columns });
            }
            let buffer = row.buffer(&header)?;
            let id = row.text(header.id).unwrap_or_default();
            counting = counting && is_number(id, count);
            let invalid = |error| CsvError::Problem { line, error };
            let index = builder.push_named(id, buffer).map_err(invalid)?;
            builder.gaps(index, row.gaps(&header)?).map_err(invalid)?;
            relations.note(index, &row, &header)?;
            if let Some(offset) = row.optional(header.hint, ProblemColumn::Hint)? {
                builder.hint(index, offset).map_err(invalid)?;
            }
            if let Some(accesses) = row.optional(header.accesses, ProblemColumn::Accesses)? {
                builder.accesses(index, accesses).map_err(invalid)?;
            }
            let spaces = row.text(header.spaces).unwrap_or_default();
            if !spaces.is_empty() {
                builder.allow_spaces(index, spaces.split_ascii_whitespace()).map_err(invalid)?;
            }
            count += 1;
        }
        relations.add_to(&mut builder)?;
        if counting {
            builder.forget_names();
        }
        Ok(builder.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Planner, ProblemError};

    fn read(text: &str) -> Result<Problem, CsvError> {
        Problem::read_csv(text.as_bytes())
    }

    #[test]
    fn columns_have_any_order_and_several_names() {
        let expected = [Buffer::unaligned(3..8, 64), Buffer::unaligned(0..1, 0)];
        for text in [
            "id,lower,upper,size\n0,3,8,64\n1,0,1,0\n",
            "\u{feff}Size , begin,Upper\r\n64,3,8\r\n\r\n0,0,1",
            "offset,buffer_id,size,start,end\n,0,64,3,7\n,1,0,0,0\n",
            "alignment,gaps,size,lower,upper\n1,,64,3,8\n1,\"\",0,0,1\n",
        ] {
            let problem = read(text).unwrap();
            assert_eq!(problem.buffers(), expected, "{text:?}");
            assert!(!problem.has_names());
        }
    }

    #[test]
    fn offsets_are_fixed_and_hints_are_not() {
        let problem = read("lower,upper,size,offset,hint\n0,3,8,16,\n0,3,8,,24\n0,3,8,,\n").unwrap();
        let places = [0, 1, 2].map(|index| (problem.fixed_offset(index), problem.hint(index)));
        assert_eq!(places, [(Some(16), None), (None, Some(24)), (None, None)]);
        assert_eq!(Planner::new().plan(&problem).offsets(), [16, 0, 8]);
        // A hint is kept where it costs nothing.
        let problem = read("lower,upper,size,hint\n0,3,8,8\n0,3,8,\n").unwrap();
        assert_eq!(Planner::new().plan(&problem).offsets(), [8, 0]);
    }

    #[test]
    fn accesses_and_spaces_are_those_of_their_lines() {
        let text = "lower,upper,size,accesses,spaces\n0,9,2,7,sram  dram\n0,9,2,,\n";
        let problem = read(text).unwrap();
        assert_eq!([0, 1].map(|index| problem.accesses(index)), [7, 1]);
        assert_eq!([0, 1].map(|index| problem.spaces(index).join("|")), ["sram|dram", ""]);
        let mut written = Vec::new();
        problem.write_csv(&mut written).unwrap();
        assert_eq!(Problem::read_csv(&written[..]).unwrap(), problem);
        let error = read("lower,upper,size,accesses\n0,9,2,-1\n").unwrap_err();
        assert!(matches!(error, CsvError::Unexpected { column: ProblemColumn::Accesses, .. }), "{error}");
    }

    #[test]
    fn gaps_end_as_lifetimes_do() {
        for text in [
            "gaps,lower,upper,size\n2-4 6-7,0,9,5\n,0,9,5\n",
            "start,end,size,gaps\n0,8,5,2-3  6-6\n0,8,5,\n",
        ] {
            let problem = read(text).unwrap();
            assert_eq!((problem.gaps(0), problem.gaps(1)), (&[2..4, 6..7][..], &[][..]), "{text:?}");
        }
        for gaps in ["3", "3-", "-4", "a-4", "3-+4", "3 - 4", "3-4-5"] {
            let error = read(&format!("lower,upper,size,gaps\n0,9,2,{gaps}\n")).unwrap_err();
            assert!(matches!(error, CsvError::Unexpected { column: ProblemColumn::Gaps, .. }), "{error}");
        }
    }

    #[test]
    fn names_and_alignments() {
        let problem =
            read("id,lower,upper,size,alignment\n0,0,1,1,256\n\"a, b\",0,1,1,1\n,0,1,1,2\n").unwrap();
        assert_eq!([0, 1, 2].map(|index| problem.name(index)), [Some("0"), Some("a, b"), None]);
        assert_eq!(problem.buffers()[0].alignment, Alignment::PLANNED);
        let padded = read("id,lower,upper,size\n0,0,1,1\n01,0,1,1\n").unwrap();
        assert_eq!([0, 1].map(|index| padded.name(index)), [Some("0"), Some("01")]);
    }

    #[test]
    fn errors_have_their_line() {
        let cases = [
            ("", "line 1: no column for the start, expected `lower`, `start` or `begin`"),
            ("\nlower,upper\n", "line 2: no column for the size, expected `size`"),
            ("action,size\n", "line 1: no column for the start, expected `lower`, `start` or `begin`"),
            (
                "lower,start,upper,size\n",
                "line 1: a second column for the start: `lower`, `start` or `begin` are the same",
            ),
            ("lower,upper,size\n\n0,1\n", "line 3: 2 fields, but the header has 3"),
            (
                "lower,upper,size\n0,+1,2\n",
                "line 2: the end cannot be \"+1\", expected a whole number below 2^64",
            ),
            (
                "lower,upper,size\n,1,2\n",
                "line 2: the start cannot be \"\", expected a whole number below 2^64",
            ),
            (
                "lower,end,size\n0,18446744073709551615,2\n",
                "line 2: the end cannot be \"18446744073709551615\", expected a whole number below 2^64",
            ),
            (
                "lower,upper,size,alignment\n0,1,2,3\n",
                "line 2: the alignment cannot be \"3\", expected a power of two",
            ),
            (
                "lower,upper,size,gaps\n0,9,2,3-4@0:1\n",
                "line 2: the gaps cannot be \"3-4@0:1\", \
                 expected times like `3-5 8-9` without windows of bytes",
            ),
            (
                "lower,upper,size,gaps\n0,9,2,3-4 8-10\n",
                "line 2: buffer 0: 8..10 cannot be a gap of its lifetime",
            ),
            (
                "lower,upper,size,offset\n0,9,2,-1\n",
                "line 2: the offset cannot be \"-1\", expected a whole number below 2^64",
            ),
            (
                "lower,upper,size,offset\n0,9,2,8\n0,1,3,\n7,9,3,6\n",
                "line 4: buffer 2: at its fixed offset it shares bytes with buffer 0 while both are live",
            ),
            (
                "lower,upper,size,alignment,offset\n0,9,2,8,0\n0,1,3,8,4\n",
                "line 3: buffer 1: the offset 4 is not a multiple of 8",
            ),
            (
                "lower,upper,size,pool\n0,9,2,1\n",
                "line 1: the column \"pool\" is unknown: remove it if the plan does not depend on it",
            ),
            ("lower,upper,size\n0,\"1,2\n", "line 2: a quote is not closed, or text follows a quoted field"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).unwrap_err().to_string(), expected, "{text:?}");
        }
        let error = read("lower,upper,size\n1,2,3\n4,4,5\n").unwrap_err();
        let empty = ProblemError::EmptyLifetime { index: 1, start: 4, end: 4 };
        assert!(matches!(error, CsvError::Problem { line: 3, error } if error == empty), "{error}");
    }
}
