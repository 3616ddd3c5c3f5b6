//! Stacks of frames that were read: most stacks are those of other events, and most events are followed by
//! those that followed them before. Such a stack is recognized by its opcodes, without executing them.

use foldhash::HashMap;
use std::rc::Rc;

#[derive(Default)]
pub(super) struct KnownStacks {
    by_code: HashMap<Rc<[u8]>, usize>,
    stacks: Vec<KnownStack>,
    /// The index of the stack that was found last.
    last: usize,
}

struct KnownStack {
    /// The opcodes that push its frames.
    code: Rc<[u8]>,
    /// Its run of items in the arena.
    run: u32,
    /// The index of the stack that followed it.
    next: usize,
}

/// The length of the opcodes at the beginning of `bytes` that push memos, if APPENDS follows them.
fn code_length(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        match bytes.get(length) {
            Some(b'h') => length += 2,
            Some(b'j') => length += 5,
            Some(b'e') if length > 0 => return Some(length),
            _ => return None,
        }
    }
}

/// A list that consists of memos, by its opcodes.
pub(super) enum StackCode<'c> {
    /// They are those of a known stack: their length, and its run.
    Known(usize, u32),
    New(&'c [u8]),
}

impl KnownStacks {
    /// Returns the stack at the beginning of `bytes`, which APPENDS follows; `None` if other opcodes do.
    pub(super) fn find<'c>(&mut self, bytes: &'c [u8]) -> Option<StackCode<'c>> {
        let is_next = |stack: &KnownStack| {
            bytes.strip_prefix(&*stack.code).is_some_and(|rest| rest.first() == Some(&b'e'))
        };
        let guess = self.stacks.get(self.last).map_or(0, |last| last.next);
        let found = match self.stacks.get(guess).filter(|stack| is_next(stack)) {
            Some(_) => guess,
            None => {
                let code = bytes.get(..code_length(bytes)?)?;
                let Some(&found) = self.by_code.get(code) else { return Some(StackCode::New(code)) };
                found
            }
        };
        let stack = self.stacks.get(found)?;
        let known = StackCode::Known(stack.code.len(), stack.run);
        self.follow(found);
        Some(known)
    }

    /// Adds a stack.
    pub(super) fn insert(&mut self, code: &[u8], run: u32) {
        let code = Rc::from(code);
        let new = self.stacks.len();
        self.by_code.insert(Rc::clone(&code), new);
        self.stacks.push(KnownStack { code, run, next: 0 });
        self.follow(new);
    }

    fn follow(&mut self, found: usize) {
        if let Some(last) = self.stacks.get_mut(self.last) {
            last.next = found;
        }
        self.last = found;
    }
}
