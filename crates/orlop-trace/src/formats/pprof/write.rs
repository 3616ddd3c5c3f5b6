//! Writing profiles.

use super::wire::Message;
use crate::formats::{Format, numbered_device};
use crate::history::{DeviceHistory, Frame, History, SiteId, TextId, WorkBlock, Workload};
use crate::{Result, TraceError};
use flate2::Compression;
use flate2::write::GzEncoder;
use orlop_core::MemoryKind;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

/// The values of a sample, with their units.
const VALUES: [(&str, &str); 6] = [
    ("allocations", "count"),
    ("space", "bytes"),
    ("end_allocations", "count"),
    ("end_space", "bytes"),
    ("total_allocations", "count"),
    ("total_space", "bytes"),
];

/// The index in [`VALUES`] of the value that is shown without a choice.
const DEFAULT: usize = 1;

/// Writes a profile, compressed by gzip.
///
/// ```
/// use orlop_trace::formats::pprof;
/// use orlop_trace::history::History;
///
/// let history = History::parse("a,0,1000\na,1,500\nf,0\n".as_bytes())?;
/// let mut profile = Vec::new();
/// pprof::write_pprof(&history, &mut profile)?;
/// let peak = History::parse(&profile[..])?;
/// let blocks: Vec<u64> = peak.devices[0].unplaced.iter().map(|block| block.bytes).collect();
/// assert_eq!(blocks, [750, 750]);
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
///
/// # Errors
///
/// [`TraceError::Write`].
pub fn write_pprof(history: &History, writer: impl Write) -> Result<()> {
    let mut profile = ProfileWriter::new(history);
    for device in &history.devices {
        profile.device(device);
    }
    let error = TraceError::write(Format::Pprof);
    let mut packed = GzEncoder::new(writer, Compression::default());
    packed.write_all(&profile.finish().0).map_err(&error)?;
    packed.finish().and_then(|mut writer| writer.flush()).map_err(error)
}

struct ProfileWriter<'h> {
    history: &'h History,
    profile: Message,
    strings: HashMap<String, u64>,
    /// The texts of `strings`, in the order of their indices.
    texts: Vec<String>,
    functions: HashMap<(TextId, TextId), u64>,
    locations: HashMap<Frame, u64>,
}

impl<'h> ProfileWriter<'h> {
    fn new(history: &'h History) -> Self {
        let mut writer = Self {
            history,
            profile: Message::default(),
            strings: HashMap::new(),
            texts: Vec::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
        };
        // The first string is empty.
        writer.string("");
        for (name, unit) in VALUES {
            let mut value = Message::default();
            value.number(1, writer.string(name)).number(2, writer.string(unit));
            writer.profile.message(1, &value);
        }
        writer
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        let index = self.texts.len() as u64;
        self.strings.insert(text.to_owned(), index);
        self.texts.push(text.to_owned());
        index
    }

    fn device(&mut self, device: &DeviceHistory) {
        let work = Workload::of(device);
        let peak = work.peak().1.map_or(0, |step| step + 1);
        let mut samples: BTreeMap<(SiteId, TextId, MemoryKind), [u64; VALUES.len()]> = BTreeMap::new();
        for block in &work.blocks {
            let sample = samples.entry((block.site, block.text, block.kind)).or_default();
            let end = work.steps.len();
            let counted = [is_live(block, peak), is_live(block, end), true];
            for (pair, _) in sample.chunks_exact_mut(2).zip(counted).filter(|(_, is_counted)| *is_counted) {
                pair[0] += 1;
                pair[1] = pair[1].saturating_add(block.bytes).min(i64::MAX as u64);
            }
        }
        let name = numbered_device(device.device)
            .map_or_else(|| device.device.to_string(), |device| device.to_string());
        for ((site, tag, kind), values) in samples {
            let kind = (kind != MemoryKind::Default).then(|| kind.to_string());
            let tag = self.history.sites.name(tag).to_owned();
            let mut sample = Message::default();
            let frames: Vec<Frame> = self.history.sites.frames(site).collect();
            let locations: Vec<u64> = frames.into_iter().map(|frame| self.location(frame)).collect();
            sample.packed(1, locations).packed(2, values);
            let labels = [("device", name.as_str()), ("kind", kind.as_deref().unwrap_or("")), ("tag", &tag)];
            for (key, text) in labels.into_iter().filter(|(_, text)| !text.is_empty()) {
                let mut label = Message::default();
                label.number(1, self.string(key)).number(2, self.string(text));
                sample.message(3, &label);
            }
            self.profile.message(2, &sample);
        }
    }

    fn location(&mut self, frame: Frame) -> u64 {
        if let Some(&id) = self.locations.get(&frame) {
            return id;
        }
        let function = self.function(frame);
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(frame, id);
        let (mut line, mut location) = (Message::default(), Message::default());
        line.number(1, function).number(2, frame.line.into());
        location.number(1, id).message(4, &line);
        self.profile.message(4, &location);
        id
    }

    fn function(&mut self, frame: Frame) -> u64 {
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((frame.function, frame.file)).or_insert(next);
        if id == next {
            let sites = &self.history.sites;
            let (name, file) = (sites.name(frame.function), sites.name(frame.file));
            let (name, file) = (self.string(name), self.string(file));
            let mut function = Message::default();
            function.number(1, id).number(2, name).number(3, name).number(4, file);
            self.profile.message(5, &function);
        }
        id
    }

    fn finish(mut self) -> Message {
        let default = self.string(VALUES[DEFAULT].0);
        for text in &self.texts {
            self.profile.bytes(6, text.as_bytes());
        }
        self.profile.number(14, default);
        self.profile
    }
}

/// Returns `true` if a block is live before a step.
fn is_live(block: &WorkBlock, step: usize) -> bool {
    block.born.is_none_or(|born| born < step) && block.died.is_none_or(|died| died >= step)
}
