//! Converting nodes to records.

use super::arena::{Chain, ItemCursor, NodeId, ODD, PickleArena, PickleNode, PickleValue};
use super::stored_events::StoredEvents;
use crate::formats::snapshot::build::SnapshotBuilder;
use crate::formats::snapshot::records::{EventFields, FrameFields};
use crate::formats::snapshot::value::{RecordValue, ScalarValue, SnapshotRecord};
use crate::formats::snapshot::words::Word;
use crate::history::{SiteId, TextId};
use crate::{Result, TraceError};
use foldhash::HashMap;

/// The records, fields and list items that may be read for each byte of the file. Without sharing there are
/// at most two.
const STEPS_PER_BYTE: u64 = 2;

/// A node that has not been converted.
const UNSEEN: u32 = u32::MAX;

/// The values of a pickle, with the results of those that were converted.
pub(super) struct NodeConverter {
    pub(super) arena: PickleArena,
    events: StoredEvents,
    /// For each node, the index of its text, frame or site in the lists below. It grows when it is needed.
    seen: Vec<u32>,
    texts: Vec<TextId>,
    frames: Vec<u32>,
    sites: Vec<SiteId>,
    /// The sites of shared runs of frames.
    pub(super) shared_sites: HashMap<u32, SiteId>,
    /// The bytes of the file that were read.
    bytes: u64,
    steps: u64,
}

impl NodeConverter {
    pub(super) fn new() -> Self {
        Self {
            arena: PickleArena::new(),
            events: StoredEvents::default(),
            seen: Vec::new(),
            texts: Vec::new(),
            frames: Vec::new(),
            sites: Vec::new(),
            shared_sites: HashMap::default(),
            bytes: 0,
            steps: 0,
        }
    }

    pub(super) fn at(&mut self, node: NodeId) -> NodeRef<'_> {
        self.of(PickleValue::Node(node))
    }

    fn of(&mut self, value: PickleValue) -> NodeRef<'_> {
        NodeRef { converter: self, value }
    }

    pub(super) fn set_bytes(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Returns `true` if one of the keys is that of an event's action.
    pub(super) fn has_action(&self, items: &[PickleValue]) -> bool {
        items.iter().step_by(2).any(|&key| self.arena.word(key) == Word::Action)
    }

    /// Stores a dict with these items as an event. Returns `false` if they are not those of an event, or if
    /// something is wrong with them, which is an error only where an event is expected.
    pub(super) fn store_event(
        &mut self,
        dict: PickleValue,
        items: &[PickleValue],
        builder: &mut SnapshotBuilder,
    ) -> bool {
        if !self.arena.is_empty_dict(dict) || !self.has_action(items) {
            return false;
        }
        let mut fields = EventFields::default();
        for pair in items.chunks_exact(2) {
            let key = self.arena.word(pair[0]);
            if self.step().and_then(|()| self.set_field(&mut fields, key, pair[1], builder)).is_err() {
                return false;
            }
        }
        self.store_fields(dict, fields, 0)
    }

    /// Sets a field of an event.
    pub(super) fn set_field(
        &mut self,
        fields: &mut EventFields,
        key: Word,
        value: PickleValue,
        builder: &mut SnapshotBuilder,
    ) -> Result<()> {
        fields.set(key, self.of(value), builder)
    }

    /// Stores a dict with these fields as an event, and counts `steps` more of them. Returns `false` if they
    /// are not those of an event, or too many.
    pub(super) fn store_fields(&mut self, dict: PickleValue, fields: EventFields, steps: u64) -> bool {
        let steps = self.steps + steps;
        if steps > self.bytes.saturating_mul(STEPS_PER_BYTE) {
            return false;
        }
        let Ok(Some((event, detail))) = fields.finish() else { return false };
        let Some(index) = self.events.push(event, detail) else { return false };
        self.arena.set_event(dict, index);
        self.steps = steps;
        true
    }

    /// Returns `true` if the node is a list.
    pub(super) fn is_list(&self, node: NodeId) -> bool {
        matches!(self.arena.node(node), PickleNode::List(_) | PickleNode::Tuple(_))
    }

    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps > self.bytes.saturating_mul(STEPS_PER_BYTE) {
            return Err(TraceError::ExcessiveSharing { records: self.steps, bytes: self.bytes });
        }
        Ok(())
    }

    /// Returns the next item of a list.
    fn next(&mut self, cursor: &mut ItemCursor) -> Result<Option<NodeId>> {
        let next = self.arena.next(cursor);
        if next.is_some() {
            self.step()?;
        }
        Ok(next)
    }

    fn list(&self, node: NodeId, expected: &'static str) -> Result<Chain> {
        match self.arena.node(node) {
            PickleNode::List(chain) | PickleNode::Tuple(chain) => Ok(chain),
            PickleNode::Odd => Ok(Chain::EMPTY),
            _ => Err(TraceError::WrongType { expected }),
        }
    }

    fn fields<R: SnapshotRecord>(&mut self, node: NodeId, builder: &mut SnapshotBuilder) -> Result<()> {
        self.step()?;
        let PickleNode::Dict(chain) = self.arena.node(node) else {
            return Err(TraceError::WrongType { expected: R::NAME });
        };
        let mut record = R::default();
        let mut cursor = PickleArena::cursor(chain);
        while let Some(key) = self.next(&mut cursor)? {
            let Some(value) = self.arena.next(&mut cursor) else { break };
            record.set(self.word(key), self.at(value), builder)?;
        }
        record.done(builder)
    }

    /// Reads the events of a device.
    fn trace<R: SnapshotRecord>(&mut self, node: NodeId, builder: &mut SnapshotBuilder) -> Result<()> {
        let chain = self.list(node, "a list of records")?;
        let mut cursor = PickleArena::cursor(chain);
        let arena = &self.arena;
        let indices = std::iter::from_fn(|| arena.next(&mut cursor));
        let indices = indices.map(|item| match arena.node(item) {
            PickleNode::Event(index) => Some(index),
            _ => None,
        });
        if let Some((events, details)) = self.events.take(indices) {
            builder.events(events, details);
            return Ok(());
        }
        let mut cursor = PickleArena::cursor(chain);
        while let Some(record) = self.next(&mut cursor)? {
            match self.arena.node(record) {
                PickleNode::Event(index) => {
                    let stored = self.events.get(index).ok_or(TraceError::WrongType { expected: R::NAME })?;
                    builder.event(stored.0, stored.1)?;
                }
                _ => self.fields::<R>(record, builder)?,
            }
        }
        Ok(())
    }

    fn word(&self, node: NodeId) -> Word {
        if let PickleNode::Text { word, .. } = self.arena.node(node) { word } else { Word::Other }
    }

    /// Returns the result in `kept` of a node that was converted before.
    fn known<T: Copy>(&self, node: NodeId, kept: &[T]) -> Option<T> {
        self.seen.get(node as usize).and_then(|&place| kept.get(place as usize)).copied()
    }

    /// Stores the result of converting a node. A node has one type, so its index refers to one list.
    fn keep<T>(seen: &mut Vec<u32>, node: NodeId, kept: &mut Vec<T>, value: T) {
        if node as usize >= seen.len() {
            seen.resize(node as usize + 1, UNSEEN);
        }
        if let (Some(place), Ok(next)) = (seen.get_mut(node as usize), u32::try_from(kept.len())) {
            *place = next;
            kept.push(value);
        }
    }

    fn frame(&mut self, node: NodeId, builder: &mut SnapshotBuilder) -> Result<()> {
        let seen =
            matches!(self.arena.node(node), PickleNode::Dict(_)).then(|| self.known(node, &self.frames));
        if let Some(frame) = seen.flatten() {
            builder.stack.push(frame);
            return Ok(());
        }
        self.fields::<FrameFields>(node, builder)?;
        if let Some(&frame) = builder.stack.last() {
            Self::keep(&mut self.seen, node, &mut self.frames, frame);
        }
        Ok(())
    }
}

/// A value of a pickle.
pub(super) struct NodeRef<'d> {
    converter: &'d mut NodeConverter,
    value: PickleValue,
}

impl NodeRef<'_> {
    /// Returns what the value is, and its id: texts, lists and dicts are always nodes.
    #[inline]
    fn node(&self) -> (PickleNode, NodeId) {
        match self.value {
            PickleValue::Node(id) => (self.converter.arena.node(id), id),
            PickleValue::Number(number) => (PickleNode::Number(number), ODD),
        }
    }
}

impl RecordValue for NodeRef<'_> {
    type Error = TraceError;

    #[inline]
    fn scalar(self) -> Result<ScalarValue> {
        let arena = &self.converter.arena;
        Ok(match self.node().0 {
            PickleNode::Number(number) => ScalarValue::Number(number),
            PickleNode::Flag(flag) => ScalarValue::Flag(flag),
            PickleNode::Text { word, .. } => ScalarValue::Word(word),
            PickleNode::List(chain) | PickleNode::Tuple(chain) => {
                let mut cursor = PickleArena::cursor(chain);
                let mut number = || match arena.next(&mut cursor).map(|item| arena.node(item)) {
                    Some(PickleNode::Number(number)) => Some(number),
                    _ => None,
                };
                match (number(), number()) {
                    (Some(first), Some(second)) => ScalarValue::Pair(first, second),
                    _ => ScalarValue::Odd,
                }
            }
            PickleNode::Odd | PickleNode::Dict(_) | PickleNode::Event(_) => ScalarValue::Odd,
        })
    }

    fn text(self, builder: &mut SnapshotBuilder) -> Result<TextId> {
        let (PickleNode::Text { at, length, .. }, node) = self.node() else {
            return Ok(TextId::NONE);
        };
        let converter = self.converter;
        if let Some(text) = converter.known(node, &converter.texts) {
            return Ok(text);
        }
        let text = builder.sites.text(&String::from_utf8_lossy(converter.arena.bytes(at, length)));
        NodeConverter::keep(&mut converter.seen, node, &mut converter.texts, text);
        Ok(text)
    }

    fn string(self) -> Result<Option<Box<str>>> {
        let (PickleNode::Text { at, length, .. }, _) = self.node() else {
            return Ok(None);
        };
        Ok(Some(String::from_utf8_lossy(self.converter.arena.bytes(at, length)).into()))
    }

    fn site(self, builder: &mut SnapshotBuilder) -> Result<SiteId> {
        let (PickleNode::List(chain) | PickleNode::Tuple(chain), node) = self.node() else {
            return Ok(SiteId::UNKNOWN);
        };
        let converter = self.converter;
        let run = converter.arena.shared_run(chain);
        let known = match run {
            Some(run) => converter.shared_sites.get(&run).copied(),
            None => converter.known(node, &converter.sites),
        };
        if let Some(site) = known {
            return Ok(site);
        }
        builder.stack.clear();
        let mut cursor = PickleArena::cursor(chain);
        while let Some(frame) = converter.next(&mut cursor)? {
            converter.frame(frame, builder)?;
        }
        let site = builder.take_stack();
        match run {
            Some(run) => _ = converter.shared_sites.insert(run, site),
            None => NodeConverter::keep(&mut converter.seen, node, &mut converter.sites, site),
        }
        Ok(site)
    }

    fn record<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<()> {
        let node = self.node().1;
        self.converter.fields::<R>(node, builder)
    }

    fn records<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<()> {
        let node = self.node().1;
        let mut cursor = PickleArena::cursor(self.converter.list(node, "a list of records")?);
        while let Some(record) = self.converter.next(&mut cursor)? {
            self.converter.fields::<R>(record, builder)?;
        }
        Ok(())
    }

    fn traces<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<()> {
        let node = self.node().1;
        let converter = self.converter;
        let mut cursor = PickleArena::cursor(converter.list(node, "a list of events for each device")?);
        for device in 0.. {
            let Some(trace) = converter.next(&mut cursor)? else { break };
            builder.begin_trace(device);
            converter.trace::<R>(trace, builder)?;
            builder.end_trace()?;
        }
        Ok(())
    }

    fn skip(self) -> Result<()> {
        Ok(())
    }
}
