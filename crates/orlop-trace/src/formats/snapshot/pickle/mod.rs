//! Reading pickles of plain data.
//!
//! A pickle is a program for a virtual machine with a stack and a memo. Most opcodes create data; some import
//! a module and call its functions. Snapshots need only the first kind, and this machine has no others: a
//! file cannot execute code, and the error has the offset of the attempt ([`TraceError::RunsCode`]).
//!
//! The resulting values are not a tree. They are shared through the memo (as all frames of a snapshot are),
//! and a hostile file shares them so that a few bytes represent 2^64 records. Therefore values are nodes of a
//! [`PickleArena`](arena::PickleArena), referred to by id: sharing copies nothing, creating and dropping does
//! not recurse, and every byte of the file takes a few dozen bytes of memory at most, up to the limits for
//! nodes, items, and values on the stack. When the nodes are converted to a history, each stack, frame and
//! text is converted once, and all other work is counted and limited by the length of the file. Events are
//! converted as soon as they are complete, and take 76 bytes of memory each.
//!
//! | part | what |
//! |---|---|
//! | `source` | buffered bytes |
//! | `virtual_machine` | opcodes |
//! | `code_opcodes` | those that run code |
//! | `arena` | the values |
//! | `convert` | converting values to records |
//! | `stored_events` | the events that were converted |
//!
//! Reference for the opcodes: `Lib/pickletools.py` of CPython.

mod arena;
mod code_opcodes;
mod convert;
mod source;
mod stored_events;
mod virtual_machine;

use self::virtual_machine::PickleMachine;
use super::build::{ReadSegment, SnapshotBuilder};
use super::records::SnapshotFields;
use super::value::RecordValue as _;
use crate::Result;
use crate::history::History;
use std::io::Read;

/// Reads a snapshot.
pub(crate) fn read(reader: impl Read) -> Result<History> {
    let mut builder = SnapshotBuilder::default();
    let (mut converter, root) = PickleMachine::new(reader, &mut builder).run()?;
    if converter.is_list(root) {
        // As `torch.cuda.memory_snapshot()` returns it: the segments alone.
        converter.at(root).records::<ReadSegment>(&mut builder)?;
    } else {
        converter.at(root).record::<SnapshotFields>(&mut builder)?;
    }
    drop(converter);
    Ok(builder.finish())
}

#[cfg(test)]
mod tests {
    use super::virtual_machine::MAX_VALUES;
    use crate::TraceError;
    use crate::history::History;

    #[test]
    fn the_stack_the_marks_and_the_memos_are_limited() {
        // NONE; MARK; a value with MEMOIZE.
        for (values, opcode) in [(0, b'N'), (0, b'('), (1, 0x94)] {
            let head = [&b"\x80\x04"[..], &b"N"[..values]].concat();
            let limited = [&head[..], &[opcode].repeat(MAX_VALUES), b"\xff"].concat();
            let error = History::parse(&limited[..]).unwrap_err();
            assert!(matches!(error, TraceError::Opcode { opcode: 0xff, .. }), "{error}");
            let more = [&head[..], &[opcode].repeat(MAX_VALUES + 1), b"\xff"].concat();
            let error = History::parse(&more[..]).unwrap_err();
            let at = (head.len() + MAX_VALUES) as u64;
            assert!(matches!(error, TraceError::TooManyValues { offset, .. } if offset == at), "{error}");
        }
    }

    #[test]
    fn memos_are_pushed_up_to_the_limit_and_only_if_they_were_stored() {
        // NONE, MEMOIZE; BINGET and LONG_BINGET.
        let head = &b"\x80\x04N\x94"[..];
        for get in [&b"h\0"[..], b"j\0\0\0\0"] {
            let full = [head, &get.repeat(MAX_VALUES - 1)].concat();
            let error = History::parse(&[&full[..], b"\xff"].concat()[..]).unwrap_err();
            assert!(matches!(error, TraceError::Opcode { opcode: 0xff, .. }), "{error}");
            let error = History::parse(&[&full[..], get, b"\xff"].concat()[..]).unwrap_err();
            let at = full.len() as u64;
            assert!(matches!(error, TraceError::TooManyValues { offset, .. } if offset == at), "{error}");
        }
        for (get, index) in [(&b"h\x01"[..], 1), (&b"j\0\x01\0\0"[..], 256)] {
            let error = History::parse(&[head, b"h\0", get, b"."].concat()[..]).unwrap_err();
            assert!(
                matches!(error, TraceError::Memo { index: found, offset: 6 } if found == index),
                "{error}"
            );
        }
    }

    #[test]
    fn a_stack_that_is_recognized_by_its_opcodes_has_the_frames_of_its_memos() {
        let text = |text: &str| [&[0x8c, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        // A frame that only a memo has: BINPUT, POP.
        let frame = |memo: u8, name: &str| {
            let (key, name) = (text("name"), text(name));
            [b"}(", &*key, &name, b"uq", &[memo], b"0"].concat()
        };
        let event = |address: u8, frames: &[u8]| {
            let [action, alloc, at, size, key] = ["action", "alloc", "addr", "size", "frames"].map(text);
            let number = [b'K', address];
            [b"}(", &*action, &alloc, &at, &number, &size, &number, &key, frames, b"u"].concat()
        };
        let stack = b"](h\0h\x01e";
        let traces = text("device_traces");
        let file = [
            b"\x80\x04",
            &*frame(0, "f"),
            &frame(1, "g"),
            b"}(",
            &traces,
            b"](](",
            &event(1, stack),
            &event(2, stack),
            &frame(1, "h"),
            &event(3, stack),
            &event(4, b"](h\0e"),
            &event(5, stack),
            // A list that grows after its stack is known.
            &event(6, b"](h\0h\x01e(h\0e"),
            &event(7, stack),
            b"eeu.",
        ];
        let history = History::parse(&file.concat()[..]).unwrap();
        let names = history.devices[0].events.iter().map(|event| {
            let frames = history.sites.frames(event.site);
            frames.map(|frame| history.sites.name(frame.function)).collect::<String>()
        });
        assert_eq!(names.collect::<Vec<_>>(), ["fg", "fg", "fh", "f", "fh", "fhf", "fh"]);
    }
}
