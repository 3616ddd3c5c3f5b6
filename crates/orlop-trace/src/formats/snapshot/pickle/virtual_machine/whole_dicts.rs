//! Dicts that are executed as a whole. Nearly all of a snapshot are the dicts of events: numbers, memos,
//! texts and a stack that was read before.

use super::known_stacks::{KnownStacks, StackCode};
use super::{MAX_VALUES, PickleMachine, UNSET};
use crate::Result;
use crate::formats::snapshot::pickle::arena::{Chain, NodeId, ODD, PickleArena, PickleNode, PickleValue};
use std::io::Read;

/// The maximum number of keys and values of a dict that is executed as a whole.
const MAX_ITEMS: usize = 64;

/// Returns the memo that the next opcode pushes, and the opcodes after it.
#[inline]
pub(super) fn memo_of<'c>(memo: &[NodeId], code: &'c [u8]) -> Option<(NodeId, &'c [u8])> {
    let (index, rest) = match *code {
        [b'h', index, ref rest @ ..] => (index.into(), rest),
        [b'j', a, b, c, d, ref rest @ ..] => (u32::from_le_bytes([a, b, c, d]) as usize, rest),
        _ => return None,
    };
    memo.get(index).filter(|&&node| node != UNSET).map(|&node| (node, rest))
}

/// Adds the list that EMPTY_LIST, MEMOIZE, MARK and the next opcodes make, if it is a known stack. Returns it
/// with its run, and the opcodes after it.
#[inline]
pub(super) fn known_list<'c>(
    stacks: &mut KnownStacks,
    arena: &mut PickleArena,
    memo: &mut Vec<NodeId>,
    code: &'c [u8],
) -> Option<(NodeId, u32, &'c [u8])> {
    let Some(StackCode::Known(length, run)) = stacks.find(code) else { return None };
    // The offset of an error does not matter here.
    let list = arena.push(PickleNode::List(Chain::EMPTY), 0).ok()?;
    memo.push(list);
    arena.share(PickleValue::Node(list), run);
    Some((list, run, code.get(length + 1..)?))
}

/// Returns the number that the next opcode pushes, which is not negative, and the opcodes after it.
#[inline]
pub(super) fn number_of(code: &[u8]) -> Option<(u64, &[u8])> {
    Some(match *code {
        // BININT1, BININT2, BININT, LONG1
        [b'K', byte, ref rest @ ..] => (byte.into(), rest),
        [b'M', a, b, ref rest @ ..] => (u16::from_le_bytes([a, b]).into(), rest),
        [b'J', a, b, c, d, ref rest @ ..] => (i32::from_le_bytes([a, b, c, d]).try_into().ok()?, rest),
        [0x8a, length @ 1..=8, ref rest @ ..] => {
            let unused = u64::BITS - 8 * u32::from(length);
            let number = i64::from_le_bytes(*rest.first_chunk()?) << unused >> unused;
            (number.try_into().ok()?, rest.get(usize::from(length)..)?)
        }
        _ => return None,
    })
}

impl<R: Read> PickleMachine<'_, R> {
    /// After EMPTY_DICT, executes all opcodes of the dict up to SETITEMS, if they are buffered and none of
    /// them is rare or fails. Returns `false` without effect otherwise: the opcodes are then executed one by
    /// one.
    pub(super) fn read_dict(&mut self) -> Result<bool> {
        let fullest = self.stack.len().max(self.memo.len()).max(self.marks.len());
        if fullest >= MAX_VALUES - 2 * MAX_ITEMS {
            return Ok(false);
        }
        let (stack, memo, arena) = (self.stack.len(), self.memo.len(), self.values.arena.extent());
        for template in 0..self.templates.len() {
            if self.read_event(template) {
                return self.push(PickleValue::Node(self.memo[memo])).map(|()| true);
            }
            self.memo.truncate(memo);
            self.values.arena.truncate(arena);
        }
        let mut ends = [0; MAX_ITEMS];
        let Some(length) = self.push_items(&mut ends) else {
            self.stack.truncate(stack);
            self.memo.truncate(memo);
            self.values.arena.truncate(arena);
            return Ok(false);
        };
        if self.values.has_action(&self.stack[stack + 1..]) {
            // Without a template, the next event is executed as this one is.
            let _ = self.add_template(length, &ends, stack + 1);
        }
        self.source.skip(length);
        (self.opcode, self.offset) = (b'u', self.source.offset() - 1);
        self.append(stack + 1)?;
        Ok(true)
    }

    /// Pushes the dict, its keys and its values, and sets the ends of their opcodes, which begin after
    /// EMPTY_DICT. Returns the length of all opcodes up to SETITEMS.
    fn push_items(&mut self, ends: &mut [usize; MAX_ITEMS]) -> Option<usize> {
        let bytes = self.source.buffered();
        let (arena, memo, stack) = (&mut self.values.arena, &mut self.memo, &mut self.stack);
        // The offset of an error does not matter here.
        let dict = arena.push(PickleNode::Dict(Chain::EMPTY), 0).ok()?;
        memo.push(dict);
        stack.push(PickleValue::Node(dict));
        let mut code = bytes.strip_prefix(b"\x94(")?;
        for end in ends {
            let value;
            (value, code) = match *code {
                [b'h' | b'j', ..] => {
                    memo_of(memo, code).map(|(node, rest)| (PickleValue::Node(node), rest))?
                }
                [b'K' | b'M' | b'J' | 0x8a, ..] => {
                    number_of(code).map(|(number, rest)| (PickleValue::Number(number), rest))?
                }
                // NONE
                [b'N', ref rest @ ..] => (PickleValue::Node(ODD), rest),
                // SHORT_BINUNICODE and MEMOIZE
                [0x8c, length, ref rest @ ..] => {
                    let (text, rest) = rest.split_at_checked(length.into())?;
                    let at = arena.texts().len();
                    arena.texts().extend_from_slice(text);
                    let text = arena.text_from(at, 0).ok()?;
                    memo.push(text);
                    (PickleValue::Node(text), rest.strip_prefix(b"\x94")?)
                }
                // EMPTY_LIST, MEMOIZE, MARK and APPENDS
                [b']', 0x94, b'(', ref rest @ ..] => known_list(&mut self.stacks, arena, memo, rest)
                    .map(|(list, _, rest)| (PickleValue::Node(list), rest))?,
                // SETITEMS
                [b'u', ref rest @ ..] => return Some(bytes.len() - rest.len()),
                _ => return None,
            };
            stack.push(value);
            *end = bytes.len() - code.len();
        }
        None
    }
}
