//! Traces of requests to a language model: when they arrived, how long they were, what they share.

use crate::{LabError, Result};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The tokens of a hash id, as Mooncake's traces have them.
const ID_TOKENS: u32 = 512;

/// The maximum of tokens in a request.
const MAX_TOKENS: u32 = 1 << 24;

/// The time between requests of a trace without arrivals.
const INTERVAL_MS: u64 = 250;

/// The maximum of a time: sums of a few do not overflow.
const MAX_MS: u64 = u64::MAX / 4;

/// A request to a language model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceRequest {
    /// When it arrived, in milliseconds since the start.
    pub arrival_ms: u64,
    /// Tokens of the prompt.
    pub input: u32,
    /// Tokens that were generated.
    pub output: u32,
    /// What each [unit](RequestTrace::unit) of the prompt contains: prompts with equal contents at the start
    /// share it. Empty if unknown.
    pub contents: Vec<u32>,
}

/// The requests of a trace, by arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTrace {
    /// The requests.
    pub requests: Vec<TraceRequest>,
    /// The tokens of a unit of content; `None` if the trace does not say what prompts share.
    pub unit: Option<u32>,
}

/// What is wrong with a line of a request trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// It is not JSON.
    #[error("it is not a JSON object")]
    NotJson,
    /// A field is missing, or is not a number.
    #[error("\"{0}\" is missing or not a number")]
    Field(&'static str),
    /// A column is missing in the header.
    #[error("no column has the tokens of the {0}: input_tokens and output_tokens are needed")]
    Column(&'static str),
    /// The request has too many tokens.
    #[error("more than {MAX_TOKENS} tokens")]
    TooLong,
}

impl RequestTrace {
    /// Reads a trace, plain or compressed by gzip, zstd or xz. The form is that of Mooncake (JSON lines with
    /// `timestamp`, `input_length`, `output_length` and `hash_ids`), or a table with a header that names the
    /// columns: `arrival_ms`, `input_tokens`, `output_tokens`, or Azure's `TIMESTAMP`, `ContextTokens`,
    /// `GeneratedTokens`. Without arrivals there are four requests a second.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is not a request.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        Self::read_from(File::open(path).map_err(|error| LabError::Read { error })?)
    }

    /// As [`read`](Self::read), from a reader.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_from(reader: impl Read) -> Result<Self> {
        let mut text = String::new();
        let read = orlop_trace::open_input(reader).and_then(|mut input| input.read_to_string(&mut text));
        read.map_err(|error| LabError::Read { error })?;
        Self::parse(&text)
    }

    /// Parses a trace. See [`read`](Self::read) for the forms.
    ///
    /// # Errors
    /// If a line is not a request, or there is none.
    pub fn parse(text: &str) -> Result<Self> {
        let is_json = text.trim_start().starts_with('{');
        let mut requests = if is_json { parse_json_lines(text)? } else { parse_table(text)? };
        if requests.is_empty() {
            return Err(LabError::NoRequests);
        }
        requests.sort_by_key(|request| request.arrival_ms);
        let knows_contents = requests.iter().any(|request| !request.contents.is_empty());
        Ok(Self { requests, unit: knows_contents.then_some(ID_TOKENS) })
    }

    /// Returns the tokens of all prompts.
    #[must_use]
    pub fn input_tokens(&self) -> u64 {
        self.requests.iter().map(|request| u64::from(request.input)).sum()
    }

    /// Returns the tokens generated.
    #[must_use]
    pub fn output_tokens(&self) -> u64 {
        self.requests.iter().map(|request| u64::from(request.output)).sum()
    }

    /// Returns the prompt tokens whose content and that of all before was seen in an earlier request: what a
    /// cache that forgets nothing could reuse. `None` if the trace does not say what prompts share.
    #[must_use]
    pub fn repeated_tokens(&self) -> Option<u64> {
        let unit = self.unit?;
        // A prefix is known by its last unit and the prefix before.
        let mut prefixes: HashMap<(usize, u32), usize> = HashMap::new();
        let mut repeated = 0;
        for request in &self.requests {
            let (mut prefix, mut is_known) = (0, true);
            for (&content, tokens) in request.contents.iter().zip(request.unit_tokens(unit)) {
                let next = prefixes.len() + 1;
                let seen = prefixes.get(&(prefix, content)).copied();
                is_known &= seen.is_some();
                repeated += if is_known { u64::from(tokens) } else { 0 };
                prefix = *prefixes.entry((prefix, content)).or_insert(next);
            }
        }
        Some(repeated)
    }

    /// Returns the distinct contents of the trace's units.
    #[must_use]
    pub fn distinct_contents(&self) -> usize {
        let contents = self.requests.iter().flat_map(|request| &request.contents);
        contents.collect::<HashSet<_>>().len()
    }
}

impl TraceRequest {
    /// Returns the tokens of each unit of the prompt: the last one has the rest.
    fn unit_tokens(&self, unit: u32) -> impl Iterator<Item = u32> {
        (0..self.input.div_ceil(unit)).map(move |at| unit.min(self.input - at * unit))
    }
}

fn parse_json_lines(text: &str) -> Result<Vec<TraceRequest>> {
    let mut contents = HashMap::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(number, line)| {
        json_request(line, &mut contents)
            .map_err(|problem| LabError::RequestLine { line: number + 1, problem })
    });
    parsed.collect()
}

fn json_request(line: &str, contents: &mut HashMap<u64, u32>) -> Result<TraceRequest, LineProblem> {
    let value: Value = serde_json::from_str(line).map_err(|_| LineProblem::NotJson)?;
    let number = |name| value.get(name).and_then(Value::as_f64).ok_or(LineProblem::Field(name));
    let ids = match value.get("hash_ids") {
        None => &[],
        Some(ids) => ids.as_array().ok_or(LineProblem::Field("hash_ids"))?.as_slice(),
    };
    let ids = ids.iter().map(|id| {
        let id = id.as_u64().ok_or(LineProblem::Field("hash_ids"))?;
        let next = u32::try_from(contents.len()).map_err(|_| LineProblem::TooLong)?;
        Ok(*contents.entry(id).or_insert(next))
    });
    Ok(TraceRequest {
        contents: ids.collect::<Result<_, LineProblem>>()?,
        arrival_ms: milliseconds(number("timestamp")?),
        input: tokens("input_length", number("input_length")?)?,
        output: tokens("output_length", number("output_length")?)?,
    })
}

/// The columns of a table, by their number.
struct Columns {
    arrival_ms: Option<usize>,
    timestamp: Option<usize>,
    input: usize,
    output: usize,
}

impl Columns {
    fn of(header: &str) -> Result<Self, LineProblem> {
        let names: Vec<&str> = header.trim_start_matches('\u{feff}').split(',').map(str::trim).collect();
        let find = |wanted: &[&str]| {
            names.iter().position(|name| wanted.iter().any(|wanted| name.eq_ignore_ascii_case(wanted)))
        };
        let input = find(&["input_tokens", "ContextTokens", "num_prefill_tokens"]);
        let output = find(&["output_tokens", "GeneratedTokens", "num_decode_tokens"]);
        Ok(Self {
            arrival_ms: find(&["arrival_ms"]),
            timestamp: find(&["TIMESTAMP"]),
            input: input.ok_or(LineProblem::Column("prompt"))?,
            output: output.ok_or(LineProblem::Column("answer"))?,
        })
    }
}

fn parse_table(text: &str) -> Result<Vec<TraceRequest>> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let at = |number: usize| move |problem| LabError::RequestLine { line: number + 1, problem };
    let Some((number, header)) = lines.next() else { return Ok(Vec::new()) };
    let columns = Columns::of(header).map_err(at(number))?;
    let mut first = None;
    let rows = lines.enumerate().map(|(row, (number, line))| {
        table_request(row as u64, line, &columns, &mut first).map_err(at(number))
    });
    rows.collect()
}

fn table_request(
    row: u64,
    line: &str,
    columns: &Columns,
    first: &mut Option<u64>,
) -> Result<TraceRequest, LineProblem> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let number = |at: usize, name| {
        let field = fields.get(at).copied().unwrap_or_default();
        field.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or(LineProblem::Field(name))
    };
    let has = |at: Option<usize>| at.filter(|&at| fields.get(at).is_some_and(|field| !field.is_empty()));
    let arrival_ms = match (has(columns.arrival_ms), has(columns.timestamp)) {
        (Some(at), _) => milliseconds(number(at, "arrival_ms")?),
        (None, Some(at)) => {
            let time = clock_ms(fields[at]).ok_or(LineProblem::Field("TIMESTAMP"))?;
            time.saturating_sub(*first.get_or_insert(time))
        }
        (None, None) => row * INTERVAL_MS,
    };
    let input = tokens("input_tokens", number(columns.input, "input_tokens")?)?;
    Ok(TraceRequest {
        arrival_ms,
        input,
        output: tokens("output_tokens", number(columns.output, "output_tokens")?)?,
        contents: Vec::new(),
    })
}

/// Returns the milliseconds of a time such as `2023-11-16 18:15:46.680`, since the start of its month.
fn clock_ms(text: &str) -> Option<u64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let day: u64 = date.rsplit('-').next()?.parse().ok()?;
    let mut parts = time.trim_end_matches('Z').splitn(3, ':');
    let (hours, minutes): (u64, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let seconds: f64 = parts.next()?.split(['+', '-']).next()?.parse().ok()?;
    let minutes = day.checked_mul(24)?.checked_add(hours)?.checked_mul(60)?.checked_add(minutes)?;
    let time = minutes.checked_mul(60_000)?.checked_add(milliseconds(seconds * 1000.0))?;
    Some(time.min(MAX_MS))
}

/// Rounds milliseconds; what is negative is 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn milliseconds(number: f64) -> u64 {
    (number.round() as u64).min(MAX_MS)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn tokens(name: &'static str, number: f64) -> Result<u32, LineProblem> {
    if number < 0.0 {
        return Err(LineProblem::Field(name));
    }
    if number > f64::from(MAX_TOKENS) { Err(LineProblem::TooLong) } else { Ok(number.round() as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn every_form_is_read() {
        let json = "{\"timestamp\": 7, \"input_length\": 600, \"output_length\": 9, \"hash_ids\": [5, 6]}\n\
                    {\"timestamp\": 8, \"input_length\": 700, \"output_length\": 9, \"hash_ids\": [5, 9]}";
        let trace = RequestTrace::parse(json).unwrap();
        assert_eq!((trace.unit, trace.repeated_tokens()), (Some(512), Some(512)));
        assert_eq!(trace.requests[1].contents, [0, 2]);
        let table = RequestTrace::parse("arrival_ms,input_tokens,output_tokens\n1,2,3\n,4,5\n").unwrap();
        let arrivals: Vec<u64> = table.requests.iter().map(|request| request.arrival_ms).collect();
        assert_eq!((arrivals, table.input_tokens(), table.unit), (vec![1, 250], 6, None));
        let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.680,374,44\n\
                     2023-11-16 18:15:50.9952,396,109";
        assert_eq!(RequestTrace::parse(azure).unwrap().requests[1].arrival_ms, 4315);
    }

    /// 64 MiB of spaces in 64 KiB.
    #[test]
    fn a_file_that_decompresses_without_end_is_refused() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&vec![b' '; 64 << 20]).unwrap();
        let path = std::env::temp_dir().join(format!("orlop-lab-bomb-{}.gz", std::process::id()));
        std::fs::write(&path, encoder.finish().unwrap()).unwrap();
        let refused = RequestTrace::read(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(refused, LabError::Read { .. }), "{refused}");
    }

    #[test]
    fn a_wrong_line_is_named() {
        let error = |text: &str| RequestTrace::parse(text).unwrap_err().to_string();
        assert!(error("{}\n").contains("line 1"));
        assert!(error("input_tokens,output_tokens\n1,2\nx,2").contains("line 3"));
        assert!(error("a,b\n1,2").contains("prompt"));
        assert!(error("input_tokens,output_tokens\n1e9,2").contains("more than"));
        assert!(error("input_tokens,output_tokens\n1,-2").contains("output_tokens"));
        let negative = "{\"timestamp\": 1, \"input_length\": -2, \"output_length\": 3}";
        assert!(error(negative).contains("input_length"));
        assert!(error("").contains("no requests"));
        let far =
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-1 1:1:1,1,1\n2023-11-100000000000 1:1:1,1,1";
        assert_eq!(RequestTrace::parse(far).unwrap().requests[1].arrival_ms, MAX_MS - 90_061_000);
        assert!(
            error("{\"timestamp\": 1, \"input_length\": 2, \"output_length\": 3, \"hash_ids\": 4}")
                .contains("hash_ids")
        );
    }
}
