//! The pickle virtual machine, without the opcodes that run code.

mod event_template;
mod known_memos;
mod known_stacks;
mod whole_dicts;

use self::event_template::EventTemplate;
use self::known_stacks::KnownStacks;
use super::arena::{Chain, FALSE, NodeId, ODD, PickleNode, PickleValue, TRUE};
use super::code_opcodes::name_of_code;
use super::convert::NodeConverter;
use super::source::PickleSource;
use crate::formats::snapshot::build::SnapshotBuilder;
use crate::{Result, TraceError};
use std::io::Read;

/// The latest protocol.
const LAST_PROTOCOL: u8 = 5;

/// The maximum number of values on the stack, of marks, and of memos. A list may have all of its items on the
/// stack before they are appended.
pub(super) const MAX_VALUES: usize = if cfg!(test) { 1 << 16 } else { 1 << 26 };

/// A memo that was not stored.
const UNSET: NodeId = NodeId::MAX;

pub(super) struct PickleMachine<'b, R> {
    source: PickleSource<R>,
    values: NodeConverter,
    builder: &'b mut SnapshotBuilder,
    stack: Vec<PickleValue>,
    /// The heights of the stack at the marks.
    marks: Vec<usize>,
    memo: Vec<NodeId>,
    /// The stacks that were read.
    stacks: KnownStacks,
    /// The opcodes of events that were read.
    templates: Vec<EventTemplate>,
    line: Vec<u8>,
    /// The current opcode and its offset.
    opcode: u8,
    offset: u64,
}

impl<'b, R: Read> PickleMachine<'b, R> {
    pub(super) fn new(reader: R, builder: &'b mut SnapshotBuilder) -> Self {
        Self {
            source: PickleSource::new(reader),
            values: NodeConverter::new(),
            builder,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            stacks: KnownStacks::default(),
            templates: Vec::new(),
            line: Vec::new(),
            opcode: 0,
            offset: 0,
        }
    }

    /// Runs the pickle. Returns the values, and which of them is the result.
    pub(super) fn run(mut self) -> Result<(NodeConverter, NodeId)> {
        loop {
            self.push_known_memos();
            self.offset = self.source.offset();
            self.opcode = self.source.byte()?;
            if self.opcode == b'.' {
                let root = self.pop()?;
                self.values.set_bytes(self.source.offset());
                let root = self.values.arena.id(root, self.offset)?;
                return Ok((self.values, root));
            }
            self.step()?;
        }
    }

    /// Executes an opcode. Those of snapshots come first.
    fn step(&mut self) -> Result<()> {
        match self.opcode {
            // BINGET, LONG_BINGET, GET
            b'h' => {
                let index = self.source.byte()?;
                self.get(index.into())
            }
            b'j' => {
                let index = u32::from_le_bytes(self.source.array()?);
                self.get(index.into())
            }
            b'g' => {
                let index = self.decimal()?;
                self.get(index)
            }
            // MEMOIZE, BINPUT, LONG_BINPUT, PUT
            0x94 => self.put(self.memo.len() as u64),
            b'q' => {
                let index = self.source.byte()?;
                self.put(index.into())
            }
            b'r' => {
                let index = u32::from_le_bytes(self.source.array()?);
                self.put(index.into())
            }
            b'p' => {
                let index = self.decimal()?;
                self.put(index)
            }
            // MARK
            b'(' => {
                if self.marks.len() == MAX_VALUES {
                    return Err(self.too_many());
                }
                if self.append_stack()? {
                    return Ok(());
                }
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'}' | b']' | b')' | b'e' | b'u' | b'a' | b's' | b'l' | b'd' | b't' | 0x85..=0x87 => {
                self.container()
            }
            b'K' | b'M' | b'J' | 0x8a | 0x8b | b'I' | b'L' => self.number(),
            0x8c | b'X' | 0x8d | b'U' | b'T' | b'V' => self.text(),
            // NONE, NEWTRUE, NEWFALSE
            b'N' => self.push(PickleValue::Node(ODD)),
            0x88 => self.push(PickleValue::Node(TRUE)),
            0x89 => self.push(PickleValue::Node(FALSE)),
            // PROTO, FRAME
            0x80 => match self.source.byte()? {
                0..=LAST_PROTOCOL => Ok(()),
                version => Err(TraceError::Protocol { version }),
            },
            0x95 => self.source.array::<8>().map(|_| ()),
            b'G' | b'F' | b'C' | b'B' | 0x8e | 0x96 => self.unused(),
            // POP, POP_MARK, DUP
            b'0' => self.pop().map(|_| ()),
            b'1' => {
                let mark = self.mark()?;
                self.stack.truncate(mark);
                Ok(())
            }
            b'2' => {
                let top = self.top()?;
                self.push(top)
            }
            opcode => Err(match name_of_code(opcode) {
                Some(name) => TraceError::RunsCode { opcode: name, offset: self.offset },
                None => TraceError::Opcode { opcode, offset: self.offset },
            }),
        }
    }

    fn container(&mut self) -> Result<()> {
        match self.opcode {
            // EMPTY_DICT, EMPTY_LIST, EMPTY_TUPLE
            b'}' => match self.read_dict()? {
                true => Ok(()),
                false => self.push_node(PickleNode::Dict(Chain::EMPTY)),
            },
            b']' => self.push_node(PickleNode::List(Chain::EMPTY)),
            b')' => self.push_node(PickleNode::Tuple(Chain::EMPTY)),
            // APPENDS, SETITEMS
            b'e' | b'u' => {
                let mark = self.mark()?;
                self.append(mark)
            }
            // APPEND, SETITEM
            b'a' => self.append(self.stack.len().checked_sub(1).ok_or(self.operands())?),
            b's' => self.append(self.stack.len().checked_sub(2).ok_or(self.operands())?),
            // TUPLE1, TUPLE2, TUPLE3
            0x85..=0x87 => {
                let count = usize::from(self.opcode - 0x84);
                self.collect(self.stack.len().checked_sub(count).ok_or(self.operands())?)
            }
            // LIST, DICT, TUPLE
            _ => {
                let mark = self.mark()?;
                self.collect(mark)
            }
        }
    }

    /// Moves the items above `from` into the list or dict below them.
    fn append(&mut self, from: usize) -> Result<()> {
        let dict = matches!(self.opcode, b'u' | b's');
        let (Some(&target), Some(items)) =
            (from.checked_sub(1).and_then(|at| self.stack.get(at)), self.stack.get(from..))
        else {
            return Err(self.operands());
        };
        let pairs = !dict || items.len() % 2 == 0;
        self.values.set_bytes(self.source.offset());
        let is_event = self.opcode == b'u' && pairs && self.values.store_event(target, items, self.builder);
        if !is_event && (!pairs || !self.values.arena.extend(target, dict, items, self.offset)?) {
            return Err(self.operands());
        }
        self.stack.truncate(from);
        Ok(())
    }

    /// Replaces the items above `from` by a list, dict or tuple of them.
    fn collect(&mut self, from: usize) -> Result<()> {
        let Some(items) = self.stack.get(from..) else { return Err(self.operands()) };
        if self.opcode == b'd' && items.len() % 2 != 0 {
            return Err(self.operands());
        }
        let chain = self.values.arena.append(Chain::EMPTY, items, self.offset)?;
        self.stack.truncate(from);
        self.push_node(match self.opcode {
            b'l' => PickleNode::List(chain),
            b'd' => PickleNode::Dict(chain),
            _ => PickleNode::Tuple(chain),
        })
    }

    fn number(&mut self) -> Result<()> {
        let number = match self.opcode {
            // BININT1, BININT2, BININT
            b'K' => {
                let byte = self.source.byte()?;
                Some(byte.into())
            }
            b'M' => Some(u16::from_le_bytes(self.source.array()?).into()),
            b'J' => u64::try_from(i32::from_le_bytes(self.source.array()?)).ok(),
            // LONG1, LONG4
            0x8a => {
                let length = self.source.byte()?;
                self.long(length.into())?
            }
            0x8b => {
                let length = i32::from_le_bytes(self.source.array()?);
                self.long(u64::try_from(length).map_err(|_| self.literal())?)?
            }
            // INT, LONG
            _ => {
                self.source.line(&mut self.line)?;
                match (self.opcode, self.line.as_slice()) {
                    (b'I', b"00") => return self.push(PickleValue::Node(FALSE)),
                    (b'I', b"01") => return self.push(PickleValue::Node(TRUE)),
                    (_, line) => {
                        let digits = line.strip_suffix(b"L").unwrap_or(line);
                        str::from_utf8(digits).ok().and_then(|digits| digits.trim().parse().ok())
                    }
                }
            }
        };
        self.push(number.map_or(PickleValue::Node(ODD), PickleValue::Number))
    }

    /// Reads a little-endian number of `length` bytes in two's complement.
    fn long(&mut self, length: u64) -> Result<Option<u64>> {
        let mut low = [0; 8];
        let mut at = 0;
        // Whether all bytes after the eighth are zero, and the last one.
        let (mut fits, mut last) = (true, 0);
        self.source.read_parts(length, |part| {
            for &byte in part {
                match low.get_mut(at) {
                    Some(digit) => *digit = byte,
                    None => fits &= byte == 0,
                }
                last = byte;
                at += 1;
            }
            Ok(())
        })?;
        Ok((fits && last < 0x80).then(|| u64::from_le_bytes(low)))
    }

    fn text(&mut self) -> Result<()> {
        let length = match self.opcode {
            // SHORT_BINUNICODE, SHORT_BINSTRING
            0x8c | b'U' => self.source.byte()?.into(),
            // BINUNICODE, BINSTRING
            b'X' | b'T' => u32::from_le_bytes(self.source.array()?).into(),
            // BINUNICODE8
            0x8d => u64::from_le_bytes(self.source.array()?),
            // UNICODE. Its escapes are not decoded: no word has any.
            _ => {
                self.source.line(&mut self.line)?;
                let arena = &mut self.values.arena;
                let at = arena.texts().len();
                arena.texts().extend_from_slice(&self.line);
                let id = arena.text_from(at, self.offset)?;
                return self.push(PickleValue::Node(id));
            }
        };
        let texts = self.values.arena.texts();
        let at = texts.len();
        let limit = u64::from(u32::MAX);
        let offset = self.offset;
        self.source.read_parts(length, |part| {
            texts.extend_from_slice(part);
            if texts.len() as u64 > limit { Err(TraceError::TooManyValues { offset, limit }) } else { Ok(()) }
        })?;
        let id = self.values.arena.text_from(at, self.offset)?;
        self.push(PickleValue::Node(id))
    }

    /// Skips values that snapshots do not use.
    fn unused(&mut self) -> Result<()> {
        let length = match self.opcode {
            // BINFLOAT
            b'G' => 8,
            // SHORT_BINBYTES, BINBYTES, BINBYTES8 and BYTEARRAY8
            b'C' => self.source.byte()?.into(),
            b'B' => u32::from_le_bytes(self.source.array()?).into(),
            0x8e | 0x96 => u64::from_le_bytes(self.source.array()?),
            // FLOAT
            _ => {
                self.source.line(&mut self.line)?;
                0
            }
        };
        self.source.read_parts(length, |_| Ok(()))?;
        self.push(PickleValue::Node(ODD))
    }

    fn get(&mut self, index: u64) -> Result<()> {
        let node = usize::try_from(index).ok().and_then(|index| self.memo.get(index));
        match node {
            Some(&node) if node != UNSET => self.push(PickleValue::Node(node)),
            _ => Err(TraceError::Memo { index, offset: self.offset }),
        }
    }

    fn put(&mut self, index: u64) -> Result<()> {
        // Each put takes a byte: a larger index is invalid, and would cost memory.
        if index > self.offset {
            return Err(TraceError::Memo { index, offset: self.offset });
        }
        let Ok(index) = usize::try_from(index) else {
            return Err(TraceError::Memo { index, offset: self.offset });
        };
        if index >= MAX_VALUES {
            return Err(self.too_many());
        }
        let top = self.stack.pop().ok_or(self.operands())?;
        let node = self.values.arena.id(top, self.offset)?;
        self.stack.push(PickleValue::Node(node));
        if index >= self.memo.len() {
            self.memo.resize(index + 1, UNSET);
        }
        let before = std::mem::replace(&mut self.memo[index], node);
        if before != UNSET && before != node {
            (self.stacks, self.templates) = (KnownStacks::default(), Vec::new());
        }
        Ok(())
    }

    fn decimal(&mut self) -> Result<u64> {
        self.source.line(&mut self.line)?;
        let number = str::from_utf8(&self.line).ok().and_then(|digits| digits.trim().parse().ok());
        number.ok_or(self.literal())
    }

    #[inline]
    fn push(&mut self, value: PickleValue) -> Result<()> {
        if self.stack.len() == MAX_VALUES {
            return Err(self.too_many());
        }
        self.stack.push(value);
        Ok(())
    }

    fn push_node(&mut self, node: PickleNode) -> Result<()> {
        let id = self.values.arena.push(node, self.offset)?;
        self.push(PickleValue::Node(id))
    }

    fn pop(&mut self) -> Result<PickleValue> {
        self.stack.pop().ok_or(self.operands())
    }

    fn top(&self) -> Result<PickleValue> {
        self.stack.last().copied().ok_or(self.operands())
    }

    fn mark(&mut self) -> Result<usize> {
        self.marks.pop().ok_or(self.operands())
    }

    fn operands(&self) -> TraceError {
        TraceError::Operands { opcode: self.opcode, offset: self.offset }
    }

    #[cold]
    fn too_many(&self) -> TraceError {
        TraceError::TooManyValues { offset: self.offset, limit: MAX_VALUES as u64 }
    }

    fn literal(&self) -> TraceError {
        TraceError::Literal { offset: self.offset }
    }
}
