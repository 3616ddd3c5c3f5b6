//! The values of a pickle: nodes that refer to each other by id.
//!
//! Lists and dicts grow in batches, interleaved with others. Each is a chain of runs in one array of ids; a
//! run at the end of the array grows in place. Equal stacks share a run: most events have the stack of
//! another event.

use crate::formats::snapshot::words::Word;
use crate::{Result, TraceError};
use foldhash::HashMap;

/// The id of a node.
pub(super) type NodeId = u32;

/// The maximum number of nodes, and of items in lists and dicts. A snapshot has about one node in 25 bytes.
/// With these limits and those of the [machine](super::virtual_machine), no file takes more than a few
/// gigabytes of memory.
const MAX_NODES: usize = 1 << 27;
const MAX_ITEMS: usize = 1 << 29;

/// No run.
const NONE: u32 = u32::MAX;

/// Nodes that every arena has: none, the booleans, and the numbers of one byte from [`BYTES`] on.
pub(super) const ODD: NodeId = 0;
pub(super) const FALSE: NodeId = 1;
pub(super) const TRUE: NodeId = 2;
const BYTES: NodeId = 3;

#[derive(Debug, Clone, Copy)]
pub(super) enum PickleNode {
    /// None, a float, a negative or very large number, bytes: unused in snapshots.
    Odd,
    Flag(bool),
    Number(u64),
    /// A range of the arena's texts.
    Text {
        at: u32,
        length: u32,
        word: Word,
    },
    List(Chain),
    Dict(Chain),
    Tuple(Chain),
    /// A dict that was an event, by its index in [`StoredEvents`](super::stored_events::StoredEvents).
    Event(u32),
}

/// A value on the stack. Numbers become nodes only if something refers to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PickleValue {
    Node(NodeId),
    Number(u64),
}

/// The first and the last run of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    first: u32,
    last: u32,
}

impl Chain {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };
}

/// A run of adjacent items.
#[derive(Debug, Clone, Copy)]
struct ItemRun {
    at: u32,
    length: u32,
    next: u32,
    /// Whether several lists can have it: then it does not change.
    is_shared: bool,
}

#[derive(Default)]
pub(super) struct PickleArena {
    nodes: Vec<PickleNode>,
    items: Vec<NodeId>,
    runs: Vec<ItemRun>,
    texts: Vec<u8>,
    /// The shared runs by their items.
    shared: HashMap<Box<[NodeId]>, u32>,
    /// The items of the stack that is being added.
    stack: Vec<NodeId>,
}

/// A position in a chain of runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemCursor {
    run: u32,
    at: u32,
}

impl PickleArena {
    pub(super) fn new() -> Self {
        let mut nodes = vec![PickleNode::Odd, PickleNode::Flag(false), PickleNode::Flag(true)];
        nodes.extend((0..=u8::MAX).map(|byte| PickleNode::Number(byte.into())));
        Self { nodes, ..Self::default() }
    }

    /// Returns the node of a value.
    pub(super) fn id(&mut self, value: PickleValue, offset: u64) -> Result<NodeId> {
        match value {
            PickleValue::Node(id) => Ok(id),
            PickleValue::Number(number) => match u8::try_from(number) {
                Ok(byte) => Ok(BYTES + NodeId::from(byte)),
                Err(_) => self.push(PickleNode::Number(number), offset),
            },
        }
    }

    /// Returns what a value is.
    #[inline]
    pub(super) fn of(&self, value: PickleValue) -> PickleNode {
        match value {
            PickleValue::Node(id) => self.node(id),
            PickleValue::Number(number) => PickleNode::Number(number),
        }
    }

    /// Returns `true` if the value is a dict without items.
    pub(super) fn is_empty_dict(&self, value: PickleValue) -> bool {
        matches!(self.of(value), PickleNode::Dict(chain) if chain.first == NONE)
    }

    /// Replaces the node of a dict by an event.
    pub(super) fn set_event(&mut self, value: PickleValue, event: u32) {
        if let PickleValue::Node(id) = value
            && let Some(node) = self.nodes.get_mut(id as usize)
        {
            *node = PickleNode::Event(event);
        }
    }

    /// Returns the word of a text.
    #[inline]
    pub(super) fn word(&self, value: PickleValue) -> Word {
        if let PickleNode::Text { word, .. } = self.of(value) { word } else { Word::Other }
    }

    #[inline]
    pub(super) fn node(&self, id: NodeId) -> PickleNode {
        self.nodes.get(id as usize).copied().unwrap_or(PickleNode::Odd)
    }

    pub(super) fn push(&mut self, node: PickleNode, offset: u64) -> Result<NodeId> {
        let limit = MAX_NODES;
        let id = u32::try_from(self.nodes.len()).ok().filter(|_| self.nodes.len() < limit);
        let id = id.ok_or(TraceError::TooManyValues { offset, limit: limit as u64 })?;
        self.nodes.push(node);
        Ok(id)
    }

    /// Returns the numbers of nodes and of bytes of texts.
    pub(super) fn extent(&self) -> (usize, usize) {
        (self.nodes.len(), self.texts.len())
    }

    /// Removes the nodes and texts that were added since, which nothing refers to.
    pub(super) fn truncate(&mut self, (nodes, texts): (usize, usize)) {
        self.nodes.truncate(nodes);
        self.texts.truncate(texts);
    }

    /// Returns `true` if the value is a list without items.
    pub(super) fn is_empty_list(&self, value: PickleValue) -> bool {
        matches!(self.of(value), PickleNode::List(chain) if chain.first == NONE)
    }

    /// Makes an empty list one of the items of a shared run.
    pub(super) fn share(&mut self, list: PickleValue, run: u32) {
        if let PickleValue::Node(id) = list
            && let Some(node) = self.nodes.get_mut(id as usize)
        {
            *node = PickleNode::List(Chain { first: run, last: run });
        }
    }

    /// Appends items to a list or dict. Returns `false` if the node is neither.
    pub(super) fn extend(
        &mut self,
        target: PickleValue,
        dict: bool,
        items: &[PickleValue],
        offset: u64,
    ) -> Result<bool> {
        let PickleValue::Node(id) = target else { return Ok(false) };
        let chain = match self.nodes.get(id as usize) {
            Some(&PickleNode::List(chain)) if !dict => chain,
            Some(&PickleNode::Dict(chain)) if dict => chain,
            _ => return Ok(false),
        };
        let chain = match chain.first {
            NONE if !dict => self.list(items, offset)?,
            _ => self.append(chain, items, offset)?,
        };
        self.nodes[id as usize] = if dict { PickleNode::Dict(chain) } else { PickleNode::List(chain) };
        Ok(true)
    }

    /// Returns the chain of a new list, which is shared if all items are dicts, as the frames of a stack are.
    /// Empty dicts can still become events, which are no frames.
    fn list(&mut self, items: &[PickleValue], offset: u64) -> Result<Chain> {
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        stack.extend(items.iter().map_while(|&item| match item {
            PickleValue::Node(id) if self.is_filled_dict(id) => Some(id),
            _ => None,
        }));
        let is_stack = stack.len() == items.len() && !stack.is_empty();
        let chain = match self.shared.get(&*stack).filter(|_| is_stack) {
            Some(&run) => Chain { first: run, last: run },
            None => self.append(Chain::EMPTY, items, offset)?,
        };
        if let Some(run) = self.runs.get_mut(chain.first as usize).filter(|run| is_stack && !run.is_shared) {
            run.is_shared = true;
            self.shared.insert(stack.as_slice().into(), chain.first);
        }
        self.stack = stack;
        Ok(chain)
    }

    fn is_filled_dict(&self, id: NodeId) -> bool {
        matches!(self.node(id), PickleNode::Dict(chain) if chain.first != NONE)
    }

    /// Returns the run that a list shares with equal ones.
    pub(super) fn run_of(&self, list: PickleValue) -> Option<u32> {
        if let PickleNode::List(chain) = self.of(list) { self.shared_run(chain) } else { None }
    }

    /// Returns the run that a list shares with equal ones.
    pub(super) fn shared_run(&self, chain: Chain) -> Option<u32> {
        self.runs.get(chain.first as usize).is_some_and(|run| run.is_shared).then_some(chain.first)
    }

    /// Appends items to a chain.
    pub(super) fn append(&mut self, chain: Chain, items: &[PickleValue], offset: u64) -> Result<Chain> {
        let too_many = TraceError::TooManyValues { offset, limit: MAX_ITEMS as u64 };
        if items.is_empty() {
            return Ok(chain);
        }
        let own = self.runs.get(chain.last as usize).filter(|run| run.is_shared).copied();
        let own = own.map_or(0..0, |run| run.at as usize..(run.at + run.length) as usize);
        if own.len() + items.len() > MAX_ITEMS - self.items.len() {
            return Err(too_many);
        }
        if !own.is_empty() {
            // A copy that can grow: a shared run is the only one of its chain.
            let copy: Vec<PickleValue> =
                self.items[own].iter().map(|&item| PickleValue::Node(item)).collect();
            let chain = self.append(Chain::EMPTY, &copy, offset)?;
            return self.append(chain, items, offset);
        }
        let (Ok(at), Ok(length)) = (u32::try_from(self.items.len()), u32::try_from(items.len())) else {
            return Err(too_many);
        };
        for &item in items {
            let id = self.id(item, offset)?;
            self.items.push(id);
        }
        let next = u32::try_from(self.runs.len()).unwrap_or(NONE);
        if let Some(last) = self.runs.get_mut(chain.last as usize) {
            if last.at + last.length == at {
                last.length += length;
                return Ok(chain);
            }
            last.next = next;
        }
        self.runs.push(ItemRun { at, length, next: NONE, is_shared: false });
        let first = if chain.first == NONE { next } else { chain.first };
        Ok(Chain { first, last: next })
    }

    /// Returns the buffer of texts. A text that is appended to it becomes a node by
    /// [`PickleArena::text_from`].
    pub(super) fn texts(&mut self) -> &mut Vec<u8> {
        &mut self.texts
    }

    /// Creates a node for the text from `at` to the end of [`PickleArena::texts`].
    pub(super) fn text_from(&mut self, at: usize, offset: u64) -> Result<NodeId> {
        let word = str::from_utf8(self.texts.get(at..).unwrap_or_default()).map_or(Word::Other, Word::of);
        let (Ok(start), Ok(length)) = (u32::try_from(at), u32::try_from(self.texts.len() - at)) else {
            return Err(TraceError::TooManyValues { offset, limit: u32::MAX.into() });
        };
        self.push(PickleNode::Text { at: start, length, word }, offset)
    }

    pub(super) fn bytes(&self, at: u32, length: u32) -> &[u8] {
        self.texts.get(at as usize..).and_then(|texts| texts.get(..length as usize)).unwrap_or_default()
    }

    pub(super) fn cursor(chain: Chain) -> ItemCursor {
        ItemCursor { run: chain.first, at: 0 }
    }

    /// Returns the item at a cursor and advances it.
    #[inline]
    pub(super) fn next(&self, cursor: &mut ItemCursor) -> Option<NodeId> {
        loop {
            let run = self.runs.get(cursor.run as usize)?;
            if cursor.at < run.length {
                let item = self.items.get((run.at + cursor.at) as usize).copied();
                cursor.at += 1;
                return item;
            }
            *cursor = ItemCursor { run: run.next, at: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PickleValue::Node;
    use super::*;

    fn all(arena: &PickleArena, id: NodeId) -> Vec<NodeId> {
        let (PickleNode::List(chain) | PickleNode::Dict(chain) | PickleNode::Tuple(chain)) = arena.node(id)
        else {
            return vec![];
        };
        let mut cursor = PickleArena::cursor(chain);
        std::iter::from_fn(|| arena.next(&mut cursor)).collect()
    }

    #[test]
    fn lists_grow_by_turns() {
        let mut arena = PickleArena::new();
        let one = arena.push(PickleNode::List(Chain::EMPTY), 0).unwrap();
        let two = arena.push(PickleNode::List(Chain::EMPTY), 0).unwrap();
        for (list, items) in
            [(one, &[5, 6][..]), (one, &[7]), (two, &[8]), (one, &[9]), (two, &[]), (two, &[1])]
        {
            let items: Vec<PickleValue> = items.iter().map(|&item| Node(item)).collect();
            assert!(arena.extend(Node(list), false, &items, 0).unwrap());
        }
        assert_eq!((all(&arena, one), all(&arena, two)), (vec![5, 6, 7, 9], vec![8, 1]));
        assert!(!arena.extend(Node(one), true, &[Node(1), Node(2)], 0).unwrap());
        assert!(!arena.extend(Node(ODD), false, &[Node(1)], 0).unwrap());
        assert!(!arena.extend(PickleValue::Number(3), false, &[Node(1)], 0).unwrap());
        assert_eq!(size_of::<PickleNode>(), 16);
    }

    #[test]
    fn equal_stacks_share_their_items_until_one_grows() {
        let mut arena = PickleArena::new();
        let frames = [0; 3].map(|_| Node(arena.push(PickleNode::Dict(Chain::EMPTY), 0).unwrap()));
        for &frame in &frames {
            assert!(arena.extend(frame, true, &[Node(TRUE), Node(FALSE)], 0).unwrap());
        }
        let before = arena.items.len();
        let lists = [0; 3].map(|_| arena.push(PickleNode::List(Chain::EMPTY), 0).unwrap());
        for list in lists {
            assert!(arena.extend(Node(list), false, &frames[..2], 0).unwrap());
        }
        assert_eq!(arena.items.len(), before + 2);
        assert!(arena.extend(Node(lists[1]), false, &frames[2..], 0).unwrap());
        let ids: Vec<NodeId> = frames.iter().map(|&frame| arena.id(frame, 0).unwrap()).collect();
        let found = lists.map(|list| all(&arena, list));
        assert_eq!(found, [ids[..2].to_vec(), ids.clone(), ids[..2].to_vec()]);
        let shared = lists.map(|list| match arena.node(list) {
            PickleNode::List(chain) => arena.shared_run(chain),
            _ => None,
        });
        assert!(shared[0].is_some() && shared[0] == shared[2] && shared[1].is_none());
    }

    #[test]
    fn a_list_may_contain_itself() {
        let mut arena = PickleArena::new();
        let list = arena.push(PickleNode::List(Chain::EMPTY), 0).unwrap();
        assert!(arena.extend(Node(list), false, &[Node(list), Node(list)], 0).unwrap());
        assert_eq!(all(&arena, list), [list, list]);
    }
}
