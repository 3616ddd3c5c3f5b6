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

    /// A snapshot whose events have all that templates distinguish. Without templates, times are decimals.
    fn varied_events(templates: bool) -> Vec<u8> {
        const TEXTS: [&str; 13] = [
            "action",
            "addr",
            "size",
            "stream",
            "time_us",
            "frames",
            "user_metadata",
            "compile_context",
            "alloc",
            "free_requested",
            "free_completed",
            "device_free",
            "oom",
        ];
        let text = |text: &str| [&[0x8c, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let frame = |name: &str| [b"}(", &*text("name"), &text(name), b"u"].concat();
        let key = |name: &str| {
            vec![b'h', u8::try_from(TEXTS.iter().position(|text| *text == name).unwrap()).unwrap()]
        };
        let mut file = b"\x80\x04".to_vec();
        for value in TEXTS.iter().map(|name| text(name)).chain(["f", "g"].map(frame)) {
            file.extend([&value[..], b"\x94", b"0"].concat());
        }
        file.extend([b"}(", &*text("device_traces"), b"](]("].concat());
        let mut memos = 15_u32;
        let (mut last_list, mut last_text) = (0, 0);
        for index in 0..200_u16 {
            let mut part = b"}\x94(".to_vec();
            memos += 1;
            let action =
                ["alloc", "free_requested", "free_completed", "oom", "frames"][usize::from(index % 5)];
            part.extend([key("action"), key(action)].concat());
            let address = match index % 4 {
                0 => vec![b'K', 7],
                1 => [&b"M"[..], &(index + 512).to_le_bytes()].concat(),
                2 => [&b"J"[..], &(1_i32 << 20).to_le_bytes()].concat(),
                _ => {
                    [&b"\x8a\x06"[..], &(0x7f00_0000_0200_u64 + u64::from(index)).to_le_bytes()[..6]].concat()
                }
            };
            part.extend([key(if index % 5 == 3 { "device_free" } else { "addr" }), address].concat());
            part.extend(
                [key("size"), vec![b'K', 200], key("stream"), vec![b'K', (index % 3) as u8]].concat(),
            );
            let time = if templates {
                [&b"M"[..], &index.to_le_bytes()].concat()
            } else {
                format!("I{index}\n").into()
            };
            part.extend([key("time_us"), time].concat());
            let memo = |index: u32| [&b"j"[..], &index.to_le_bytes()].concat();
            if index % 11 > 0 {
                part.extend(key("user_metadata"));
                part.extend(match index % 11 {
                    1..6 => {
                        (last_text, memos) = (memos, memos + 1);
                        [text(if index % 2 == 0 { "a" } else { "b" }), b"\x94".to_vec()].concat()
                    }
                    6..8 if last_text > 0 => memo(last_text),
                    _ => b"N".to_vec(),
                });
            }
            if index % 13 > 0 {
                part.extend(key("frames"));
                part.extend(match index % 13 {
                    1..4 if last_list > 0 => memo(last_list),
                    other => {
                        (last_list, memos) = (memos, memos + 1);
                        let frames: &[u8] = if other % 2 == 0 { b"h\x0dh\x0e" } else { b"h\x0e" };
                        [b"]\x94(", frames, b"e"].concat()
                    }
                });
            }
            part.push(b'u');
            if index == 90 && last_list > 0 {
                // A known list grows; memos of an action, a key and a frame become others.
                part.extend([memo(last_list), b"(h\x0de0".to_vec()].concat());
                part.extend(
                    [
                        text("free_completed"),
                        b"q\x080".to_vec(),
                        text("other"),
                        b"q\x060".to_vec(),
                        frame("h"),
                        b"q\x0d0".to_vec(),
                    ]
                    .concat(),
                );
            }
            file.extend(part);
        }
        file.extend(b"eeu.");
        file
    }

    #[test]
    fn events_of_templates_are_those_that_their_opcodes_make() {
        let [whole, single] =
            [true, false].map(|templates| History::parse(&varied_events(templates)[..]).unwrap());
        assert_eq!(whole.devices[0].events.len(), 160);
        assert_eq!(whole, single);
        assert_eq!(whole.warnings, single.warnings);
        let texts = whole.devices[0].events.iter().map(|event| whole.sites.name(event.text).len());
        assert!((40..55).contains(&texts.sum::<usize>()));
    }
}
