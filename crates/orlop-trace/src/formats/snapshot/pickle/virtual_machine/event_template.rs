//! The opcodes of an event without its action, its numbers and its stack. Nearly all events of a snapshot
//! have the others in common: they are compared in a few pieces, and the event is stored without its dict.

use super::PickleMachine;
use super::whole_dicts::{known_list, memo_of, number_of};
use crate::formats::snapshot::pickle::arena::{Chain, NodeId, PickleNode, PickleValue};
use crate::formats::snapshot::records::EventFields;
use crate::formats::snapshot::words::Word;
use std::io::Read;

/// The maximum number of templates: events with and without stacks.
const MAX_TEMPLATES: usize = 4;

pub(super) struct EventTemplate {
    /// The common opcodes, in parts that end where something else follows.
    parts: Vec<(CommonCode, EventSlot)>,
    /// The common fields.
    fields: EventFields,
    /// The number of keys.
    keys: u64,
}

/// Common opcodes. Most parts are a key, which is compared as one number.
struct CommonCode {
    code: Box<[u8]>,
    /// The first eight bytes, and a mask of those that there are.
    head: u64,
    mask: u64,
}

impl CommonCode {
    fn new(code: &[u8]) -> Self {
        let (mut head, mut mask) = ([0; 8], [0; 8]);
        for (index, &opcode) in code.iter().take(8).enumerate() {
            (head[index], mask[index]) = (opcode, u8::MAX);
        }
        Self { code: code.into(), head: u64::from_le_bytes(head), mask: u64::from_le_bytes(mask) }
    }

    /// Returns what follows these opcodes, at least some bytes.
    #[inline]
    fn strip<'c>(&self, code: &'c [u8]) -> Option<&'c [u8]> {
        let head = u64::from_le_bytes(*code.first_chunk()?);
        if head & self.mask != self.head {
            return None;
        }
        if self.code.len() <= size_of::<u64>() {
            code.get(self.code.len()..)
        } else {
            code.strip_prefix(&*self.code)
        }
    }
}

/// What follows a part of the common opcodes.
enum EventSlot {
    Action,
    Number(Word),
    Stack,
    /// Nothing: the part ends with a new text that equals this one.
    Text(NodeId),
    End,
}

impl<R: Read> PickleMachine<'_, R> {
    /// After EMPTY_DICT, stores the buffered event if it has the opcodes of a template. Returns `false`
    /// otherwise; nodes and memos may then have been added.
    pub(super) fn read_event(&mut self, template: usize) -> bool {
        self.match_event(template).is_some_and(|(dict, fields, keys, length)| {
            self.values.set_bytes(self.source.offset() + length as u64);
            let is_stored = self.values.store_fields(dict, fields, keys);
            if is_stored {
                self.source.skip(length);
            }
            is_stored
        })
    }

    /// Returns the dict of an event, its fields, their number, and the length of its opcodes.
    fn match_event(&mut self, template: usize) -> Option<(PickleValue, EventFields, u64, usize)> {
        let EventTemplate { parts, fields, keys } = self.templates.get(template)?;
        let (mut fields, bytes) = (*fields, self.source.buffered());
        let (arena, memo, mut code) = (&mut self.values.arena, &mut self.memo, bytes);
        // The offset of an error does not matter here.
        let dict = arena.push(PickleNode::Dict(Chain::EMPTY), 0).ok()?;
        memo.push(dict);
        for (part, slot) in parts {
            code = part.strip(code)?;
            match *slot {
                EventSlot::Action => {
                    let (action, rest) = memo_of(memo, code)?;
                    fields.set_action(arena.word(PickleValue::Node(action)));
                    code = rest;
                }
                EventSlot::Number(key) => {
                    let (number, rest) = number_of(code)?;
                    fields.set_number(key, Some(number));
                    code = rest;
                }
                EventSlot::Stack => {
                    let run;
                    (run, code) = match code.strip_prefix(b"]\x94(") {
                        Some(stack) => known_list(&mut self.stacks, arena, memo, stack)
                            .map(|(_, run, rest)| (run, rest))?,
                        None => {
                            let (list, rest) = memo_of(memo, code)?;
                            (arena.run_of(PickleValue::Node(list))?, rest)
                        }
                    };
                    fields.set_site(self.values.shared_sites.get(&run).copied()?);
                }
                EventSlot::Text(text) => {
                    let text = arena.push(arena.node(text), 0).ok()?;
                    memo.push(text);
                }
                EventSlot::End => {}
            }
        }
        Some((PickleValue::Node(dict), fields, *keys, bytes.len() - code.len()))
    }

    /// Adds the template of the next `length` buffered opcodes, of an event whose keys and values, from
    /// `first_item` on the stack, have these `ends`. Returns `None` if it has values of other kinds.
    pub(super) fn add_template(&mut self, length: usize, ends: &[usize], first_item: usize) -> Option<()> {
        let (code, items) = (self.source.buffered().get(..length)?, self.stack.get(first_item..)?);
        let (mut parts, mut fields) = (Vec::new(), EventFields::default());
        let (mut begin, mut key_begin) = (0, b"\x94(".len());
        for (pair, ends) in items.chunks_exact(2).zip(ends.chunks_exact(2)) {
            if !matches!(code.get(key_begin), Some(b'h' | b'j')) {
                return None;
            }
            let PickleNode::Text { word: key, .. } = self.values.arena.of(pair[0]) else { return None };
            self.builder.releases.key(key);
            let slot = match key {
                Word::Action => Some(EventSlot::Action),
                Word::Addr | Word::DeviceFree | Word::Size | Word::Stream | Word::TimeUs => {
                    Some(EventSlot::Number(key))
                }
                Word::Frames => Some(EventSlot::Stack),
                _ => {
                    self.values.set_field(&mut fields, key, pair[1], self.builder).ok()?;
                    match (self.values.arena.of(pair[1]), pair[1], code.get(ends[0])) {
                        (PickleNode::Text { .. }, PickleValue::Node(text), Some(0x8c)) => {
                            parts.push((CommonCode::new(code.get(begin..ends[1])?), EventSlot::Text(text)));
                            begin = ends[1];
                            None
                        }
                        (PickleNode::Text { .. } | PickleNode::Odd, _, Some(b'h' | b'j' | b'N')) => None,
                        // A list can change.
                        _ => return None,
                    }
                }
            };
            if let Some(slot) = slot {
                parts.push((CommonCode::new(code.get(begin..ends[0])?), slot));
                begin = ends[1];
            }
            key_begin = ends[1];
        }
        parts.push((CommonCode::new(code.get(begin..)?), EventSlot::End));
        self.templates.truncate(MAX_TEMPLATES - 1);
        self.templates.push(EventTemplate { parts, fields, keys: items.len() as u64 / 2 });
        Some(())
    }
}
