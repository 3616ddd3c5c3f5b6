//! One entry of the trace as JSON.

use serde::ser::{Serialize, SerializeMap, Serializer};
use std::io::{self, Write};

/// The value of an argument of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) enum ArgumentValue<'a> {
    Number(u64),
    Text(&'a str),
    /// As text: a browser would lose the low bits of such a number.
    Address(u64),
}

/// An entry of the Perfetto file.
#[derive(Debug)]
pub(super) struct PerfettoEntry<'a> {
    name: &'a str,
    phase: &'static str,
    process: u32,
    thread: u64,
    /// In nanoseconds since the first event of the trace; metadata has no time.
    time: Option<u64>,
    /// The length of a slice in nanoseconds.
    duration: Option<u64>,
    /// The id of a block.
    id: Option<u64>,
    arguments: Vec<(&'a str, ArgumentValue<'a>)>,
}

impl<'a> PerfettoEntry<'a> {
    /// Creates an entry without a time.
    pub(super) fn metadata(name: &'a str, process: u32) -> Self {
        Self {
            name,
            phase: "M",
            process,
            thread: 0,
            time: None,
            duration: None,
            id: None,
            arguments: Vec::new(),
        }
    }

    pub(super) fn counter(name: &'a str, process: u32, time: u64) -> Self {
        Self { phase: "C", time: Some(time), ..Self::metadata(name, process) }
    }

    pub(super) fn instant(name: &'a str, process: u32, thread: u32, time: u64) -> Self {
        Self { phase: "i", thread: thread.into(), ..Self::counter(name, process, time) }
    }

    /// Creates a slice on the track of a thread.
    pub(super) fn slice(name: &'a str, process: u32, thread: u64, time: u64, duration: u64) -> Self {
        Self { phase: "X", thread, duration: Some(duration), ..Self::counter(name, process, time) }
    }

    /// Creates the beginning or the end of a block's lifetime.
    pub(super) fn block(begins: bool, process: u32, time: u64, id: u64) -> Self {
        let phase = if begins { "b" } else { "e" };
        Self { phase, id: Some(id), ..Self::counter("block", process, time) }
    }

    pub(super) fn with(mut self, name: &'a str, value: ArgumentValue<'a>) -> Self {
        self.arguments.push((name, value));
        self
    }
}

impl Serialize for PerfettoEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.name)?;
        map.serialize_entry("ph", self.phase)?;
        map.serialize_entry("pid", &self.process)?;
        map.serialize_entry("tid", &self.thread)?;
        if let Some(time) = self.time {
            map.serialize_entry("ts", &(time as f64 / 1000.0))?;
        }
        if let Some(duration) = self.duration {
            map.serialize_entry("dur", &(duration as f64 / 1000.0))?;
            // PyTorch's category for the steps of a program.
            map.serialize_entry("cat", "user_annotation")?;
        }
        if let Some(id) = self.id {
            map.serialize_entry("cat", "block")?;
            map.serialize_entry("id", &id)?;
        }
        if self.phase == "i" {
            // The mark spans the tracks of its process.
            map.serialize_entry("s", "p")?;
        }
        if !self.arguments.is_empty() {
            map.serialize_entry("args", &ArgumentMap(&self.arguments))?;
        }
        map.end()
    }
}

struct ArgumentMap<'a>(&'a [(&'a str, ArgumentValue<'a>)]);

impl Serialize for ArgumentMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl Serialize for ArgumentValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Number(number) => serializer.serialize_u64(number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Address(address) => serializer.collect_str(&format_args!("{address:#x}")),
        }
    }
}

/// Writes the entries of a file.
pub(super) struct EntryWriter<W> {
    writer: W,
    /// The time at which the trace begins.
    zero: u64,
    first: bool,
}

impl<W: Write> EntryWriter<W> {
    pub(super) fn new(mut writer: W, zero: u64) -> io::Result<Self> {
        writer.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Self { writer, zero, first: true })
    }

    pub(super) fn put(&mut self, mut entry: PerfettoEntry<'_>) -> io::Result<()> {
        entry.time = entry.time.map(|time| time.saturating_sub(self.zero));
        let separator: &[u8] = if self.first { b"\n" } else { b",\n" };
        self.first = false;
        self.writer.write_all(separator)?;
        serde_json::to_writer(&mut self.writer, &entry).map_err(io::Error::from)
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.writer.write_all(b"\n]}\n")?;
        self.writer.flush()
    }
}
