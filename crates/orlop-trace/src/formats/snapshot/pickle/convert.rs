//! Converting nodes to records.

use super::arena::{Chain, ItemCursor, NodeId, PickleArena, PickleNode};
use crate::formats::snapshot::build::SnapshotBuilder;
use crate::formats::snapshot::records::FrameFields;
use crate::formats::snapshot::value::{RecordValue, ScalarValue, SnapshotRecord};
use crate::formats::snapshot::words::Word;
use crate::history::{SiteId, TextId};
use crate::{Result, TraceError};

/// The records, fields and list items that may be read for each byte of the file. Without sharing there are
/// at most two.
const STEPS_PER_BYTE: u64 = 2;

/// A node that has not been converted.
const UNSEEN: u32 = u32::MAX;

/// The values of a pickle, with the results of those that were converted.
pub(super) struct NodeConverter {
    arena: PickleArena,
    /// For each node, the index of its text, frame or site in the lists below.
    seen: Vec<u32>,
    texts: Vec<TextId>,
    frames: Vec<u32>,
    sites: Vec<SiteId>,
    bytes: u64,
    steps: u64,
}

impl NodeConverter {
    pub(super) fn new(arena: PickleArena, bytes: u64) -> Self {
        let seen = vec![UNSEEN; arena.len()];
        Self { arena, seen, texts: Vec::new(), frames: Vec::new(), sites: Vec::new(), bytes, steps: 0 }
    }

    pub(super) fn at(&mut self, node: NodeId) -> NodeRef<'_> {
        NodeRef { converter: self, node }
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
            record.set(self.word(key), NodeRef { converter: self, node: value }, builder)?;
        }
        record.done(builder)
    }

    fn word(&self, node: NodeId) -> Word {
        if let PickleNode::Text { word, .. } = self.arena.node(node) { word } else { Word::Other }
    }

    /// Returns the result in `kept` of a node that was converted before.
    fn known<T: Copy>(&self, node: NodeId, kept: &[T]) -> Option<T> {
        self.seen.get(node as usize).and_then(|&place| kept.get(place as usize)).copied()
    }

    /// Stores the result of converting a node. A node has one type, so its index refers to one list.
    fn keep<T>(seen: &mut [u32], node: NodeId, kept: &mut Vec<T>, value: T) {
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
    node: NodeId,
}

impl RecordValue for NodeRef<'_> {
    type Error = TraceError;

    fn scalar(self) -> Result<ScalarValue> {
        let arena = &self.converter.arena;
        Ok(match arena.node(self.node) {
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
            PickleNode::Odd | PickleNode::Dict(_) => ScalarValue::Odd,
        })
    }

    fn text(self, builder: &mut SnapshotBuilder) -> Result<TextId> {
        let converter = self.converter;
        let PickleNode::Text { at, length, .. } = converter.arena.node(self.node) else {
            return Ok(TextId::NONE);
        };
        if let Some(text) = converter.known(self.node, &converter.texts) {
            return Ok(text);
        }
        let text = builder.sites.text(&String::from_utf8_lossy(converter.arena.bytes(at, length)));
        NodeConverter::keep(&mut converter.seen, self.node, &mut converter.texts, text);
        Ok(text)
    }

    fn string(self) -> Result<Option<Box<str>>> {
        let PickleNode::Text { at, length, .. } = self.converter.arena.node(self.node) else {
            return Ok(None);
        };
        Ok(Some(String::from_utf8_lossy(self.converter.arena.bytes(at, length)).into()))
    }

    fn site(self, builder: &mut SnapshotBuilder) -> Result<SiteId> {
        let converter = self.converter;
        let (PickleNode::List(chain) | PickleNode::Tuple(chain)) = converter.arena.node(self.node) else {
            return Ok(SiteId::UNKNOWN);
        };
        if let Some(site) = converter.known(self.node, &converter.sites) {
            return Ok(site);
        }
        builder.stack.clear();
        let mut cursor = PickleArena::cursor(chain);
        while let Some(frame) = converter.next(&mut cursor)? {
            converter.frame(frame, builder)?;
        }
        let site = builder.take_stack();
        NodeConverter::keep(&mut converter.seen, self.node, &mut converter.sites, site);
        Ok(site)
    }

    fn record<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<()> {
        self.converter.fields::<R>(self.node, builder)
    }

    fn records<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<()> {
        let mut cursor = PickleArena::cursor(self.converter.list(self.node, "a list of records")?);
        while let Some(record) = self.converter.next(&mut cursor)? {
            self.converter.fields::<R>(record, builder)?;
        }
        Ok(())
    }

    fn traces<R: SnapshotRecord>(self, builder: &mut SnapshotBuilder) -> Result<()> {
        let mut cursor =
            PickleArena::cursor(self.converter.list(self.node, "a list of events for each device")?);
        for device in 0.. {
            let Some(trace) = self.converter.next(&mut cursor)? else { break };
            builder.begin_trace(device);
            self.converter.at(trace).records::<R>(builder)?;
            builder.end_trace()?;
        }
        Ok(())
    }

    fn skip(self) -> Result<()> {
        Ok(())
    }
}
