//! Memos that are read in runs: most opcodes of a snapshot are the frames of stacks.

use super::known_stacks::StackCode;
use super::whole_dicts::memo_of;
use super::{MAX_VALUES, PickleMachine};
use crate::Result;
use crate::formats::snapshot::pickle::arena::PickleValue;
use std::io::Read;

impl<R: Read> PickleMachine<'_, R> {
    /// Executes the buffered BINGET and LONG_BINGET that come next, up to the first that fails.
    pub(super) fn push_known_memos(&mut self) {
        let bytes = self.source.buffered();
        let mut code = bytes;
        while self.stack.len() < MAX_VALUES
            && let Some((node, rest)) = memo_of(&self.memo, code)
        {
            self.stack.push(PickleValue::Node(node));
            code = rest;
        }
        self.source.skip(bytes.len() - code.len());
    }

    /// After MARK, appends the buffered memos that come next to the empty list below them, if APPENDS
    /// follows: most lists are stacks that were read before. Returns `false` without effect if it does not.
    pub(super) fn append_stack(&mut self) -> Result<bool> {
        let Some(&list) = self.stack.last() else { return Ok(false) };
        if !self.values.arena.is_empty_list(list) {
            return Ok(false);
        }
        let code: Box<[u8]> = match self.stacks.find(self.source.buffered()) {
            None => return Ok(false),
            Some(StackCode::Known(length, run)) => {
                self.values.arena.share(list, run);
                self.source.skip(length + 1);
                return Ok(true);
            }
            Some(StackCode::New(code)) => code.into(),
        };
        let mark = self.stack.len();
        self.push_known_memos();
        if self.source.buffered().first() != Some(&b'e') {
            // A memo that was not stored, or one too many: an error, which its opcode has.
            self.marks.push(mark);
            return Ok(true);
        }
        (self.opcode, self.offset) = (b'e', self.source.offset());
        self.source.skip(1);
        self.append(mark)?;
        if let Some(run) = self.values.arena.run_of(list) {
            self.stacks.insert(&code, run);
        }
        Ok(true)
    }
}
