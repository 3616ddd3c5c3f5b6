//! Nodes into records.

use super::arena::{Chain, ItemCursor, NodeId, PickleArena, PickleNode};
use crate::formats::snapshot::SnapshotError;
use crate::formats::snapshot::build::Build;
use crate::formats::snapshot::records::FrameFields;
use crate::formats::snapshot::value::{RecordValue, ScalarValue, SnapshotRecord};
use crate::formats::snapshot::words::Word;
use crate::history::{SiteId, TextId};

/// Records, fields and places of lists that may be read for each byte of the file. Without sharing there
/// cannot be more than two.
const STEPS_PER_BYTE: u64 = 2;

/// A node that was not converted.
const UNSEEN: u32 = u32::MAX;

/// The values of a pickle, and what some of them have become.
pub(super) struct Dag {
    arena: PickleArena,
    /// By node: a text's, a frame's or a site's place in the history's tables.
    seen: Vec<u32>,
    texts: Vec<TextId>,
    frames: Vec<u32>,
    sites: Vec<SiteId>,
    bytes: u64,
    steps: u64,
}

impl Dag {
    pub(super) fn new(arena: PickleArena, bytes: u64) -> Self {
        let seen = vec![UNSEEN; arena.len()];
        Self { arena, seen, texts: Vec::new(), frames: Vec::new(), sites: Vec::new(), bytes, steps: 0 }
    }

    pub(super) fn at(&mut self, node: NodeId) -> NodeRef<'_> {
        NodeRef { dag: self, node }
    }

    fn step(&mut self) -> Result<(), SnapshotError> {
        self.steps += 1;
        if self.steps > self.bytes.saturating_mul(STEPS_PER_BYTE) {
            return Err(SnapshotError::Swollen { records: self.steps, bytes: self.bytes });
        }
        Ok(())
    }

    /// The next item of a list.
    fn next(&mut self, cursor: &mut ItemCursor) -> Result<Option<NodeId>, SnapshotError> {
        let next = self.arena.next(cursor);
        if next.is_some() {
            self.step()?;
        }
        Ok(next)
    }

    fn list(&self, node: NodeId, expected: &'static str) -> Result<Chain, SnapshotError> {
        match self.arena.node(node) {
            PickleNode::List(chain) | PickleNode::Tuple(chain) => Ok(chain),
            PickleNode::Odd => Ok(Chain::EMPTY),
            _ => Err(SnapshotError::Unexpected { expected }),
        }
    }

    fn fields<R: SnapshotRecord>(&mut self, node: NodeId, build: &mut Build) -> Result<(), SnapshotError> {
        self.step()?;
        let PickleNode::Dict(chain) = self.arena.node(node) else {
            return Err(SnapshotError::Unexpected { expected: R::NAME });
        };
        let mut record = R::default();
        let mut cursor = PickleArena::cursor(chain);
        while let Some(key) = self.next(&mut cursor)? {
            let Some(value) = self.arena.next(&mut cursor) else { break };
            record.set(self.word(key), NodeRef { dag: self, node: value }, build)?;
        }
        Ok(record.done(build)?)
    }

    fn word(&self, node: NodeId) -> Word {
        if let PickleNode::Text { word, .. } = self.arena.node(node) { word } else { Word::Other }
    }

    /// What `kept` has for a node that was converted before.
    fn known<T: Copy>(&self, node: NodeId, kept: &[T]) -> Option<T> {
        self.seen.get(node as usize).and_then(|&place| kept.get(place as usize)).copied()
    }

    /// Keeps what a node became. A node is of one kind, so that its number is one of one list.
    fn keep<T>(seen: &mut [u32], node: NodeId, kept: &mut Vec<T>, value: T) {
        if let (Some(place), Ok(next)) = (seen.get_mut(node as usize), u32::try_from(kept.len())) {
            *place = next;
            kept.push(value);
        }
    }

    fn frame(&mut self, node: NodeId, build: &mut Build) -> Result<(), SnapshotError> {
        let seen =
            matches!(self.arena.node(node), PickleNode::Dict(_)).then(|| self.known(node, &self.frames));
        if let Some(frame) = seen.flatten() {
            build.stack.push(frame);
            return Ok(());
        }
        self.fields::<FrameFields>(node, build)?;
        if let Some(&frame) = build.stack.last() {
            Self::keep(&mut self.seen, node, &mut self.frames, frame);
        }
        Ok(())
    }
}

/// A value of a pickle.
pub(super) struct NodeRef<'d> {
    dag: &'d mut Dag,
    node: NodeId,
}

impl RecordValue for NodeRef<'_> {
    type Error = SnapshotError;

    fn scalar(self) -> Result<ScalarValue, SnapshotError> {
        let arena = &self.dag.arena;
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

    fn text(self, build: &mut Build) -> Result<TextId, SnapshotError> {
        let dag = self.dag;
        let PickleNode::Text { at, length, .. } = dag.arena.node(self.node) else { return Ok(TextId::NONE) };
        if let Some(text) = dag.known(self.node, &dag.texts) {
            return Ok(text);
        }
        let text = build.sites.text(&String::from_utf8_lossy(dag.arena.bytes(at, length)));
        Dag::keep(&mut dag.seen, self.node, &mut dag.texts, text);
        Ok(text)
    }

    fn string(self) -> Result<Option<Box<str>>, SnapshotError> {
        let PickleNode::Text { at, length, .. } = self.dag.arena.node(self.node) else { return Ok(None) };
        Ok(Some(String::from_utf8_lossy(self.dag.arena.bytes(at, length)).into()))
    }

    fn site(self, build: &mut Build) -> Result<SiteId, SnapshotError> {
        let dag = self.dag;
        let (PickleNode::List(chain) | PickleNode::Tuple(chain)) = dag.arena.node(self.node) else {
            return Ok(SiteId::UNKNOWN);
        };
        if let Some(site) = dag.known(self.node, &dag.sites) {
            return Ok(site);
        }
        build.stack.clear();
        let mut cursor = PickleArena::cursor(chain);
        while let Some(frame) = dag.next(&mut cursor)? {
            dag.frame(frame, build)?;
        }
        let site = build.take_stack();
        Dag::keep(&mut dag.seen, self.node, &mut dag.sites, site);
        Ok(site)
    }

    fn record<R: SnapshotRecord>(self, build: &mut Build) -> Result<(), SnapshotError> {
        self.dag.fields::<R>(self.node, build)
    }

    fn records<R: SnapshotRecord>(self, build: &mut Build) -> Result<(), SnapshotError> {
        let mut cursor = PickleArena::cursor(self.dag.list(self.node, "a list of records")?);
        while let Some(record) = self.dag.next(&mut cursor)? {
            self.dag.fields::<R>(record, build)?;
        }
        Ok(())
    }

    fn traces<R: SnapshotRecord>(self, build: &mut Build) -> Result<(), SnapshotError> {
        let mut cursor = PickleArena::cursor(self.dag.list(self.node, "a list of events for each device")?);
        for device in 0.. {
            let Some(trace) = self.dag.next(&mut cursor)? else { break };
            build.begin_trace(device);
            self.dag.at(trace).records::<R>(build)?;
            build.end_trace()?;
        }
        Ok(())
    }

    fn skip(self) -> Result<(), SnapshotError> {
        Ok(())
    }
}
