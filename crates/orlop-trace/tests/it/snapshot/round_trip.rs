//! A history that is written and read again is equal, and Python reads the files.

use super::{GPT, MADE_UP, read, unpacked};
use orlop_trace::TraceError;
use orlop_trace::formats::snapshot::{write_json, write_pickle};
use orlop_trace::formats::text::Trace;
use orlop_trace::history::History;
use std::io::Write as _;
use std::process::{Command, Stdio};

fn pickled(history: &History) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_pickle(history, &mut bytes).expect("memory takes all");
    bytes
}

fn as_json(history: &History) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_json(history, &mut bytes).expect("memory takes all");
    bytes
}

#[test]
fn shipped_files_survive_both_forms() {
    for name in [GPT[2], MADE_UP] {
        let history = read(name);
        let again = History::parse(&pickled(&history)[..]).expect("it was written");
        assert!(history == again, "{name}: pickle");
        let again = History::parse(&as_json(&history)[..]).expect("it was written");
        assert!(history == again, "{name}: JSON");
    }
    let history = read(GPT[0]);
    let pickle = pickled(&history);
    assert!(History::parse(&pickle[..]).expect("it was written") == history);
    // Sites are written once.
    assert!(pickle.len() < unpacked(GPT[0]).len());
}

/// A file with all features that the shipped ones lack.
const RICH: &str = include_str!("../../data/snapshot/rich.json");

#[test]
fn every_field_survives() {
    let history = History::parse(RICH.as_bytes()).expect("it is a snapshot");
    assert_eq!(history.warnings, []);
    let [device] = &history.devices[..] else { panic!("one device") };
    assert_eq!((device.device, device.events.len(), device.details.len(), device.start.len()), (2, 7, 1, 0));
    assert_eq!(history.sites.name(device.events[5].text), "here");
    assert_eq!((device.events[3].address, device.events[3].bytes), (77, 1 << 63));
    assert_eq!(device.end[0].pool, (3, u64::MAX));
    assert_eq!(device.end[0].blocks[1].address, (1 << 40) + 512);
    for bytes in [pickled(&history), as_json(&history)] {
        let again = History::parse(&bytes[..]).expect("it was written");
        assert!(history == again, "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn pickles_by_python_equal_the_json() {
    let parse = |bytes: &[u8]| History::parse(bytes).expect("Python wrote it");
    let small = parse(include_bytes!("../../data/snapshot/small.json"));
    assert!(parse(include_bytes!("../../data/snapshot/small.pickle")) == small);
    assert!(parse(include_bytes!("../../data/snapshot/small2.pickle")) == small, "protocol 2");
    assert!(parse(include_bytes!("../../data/snapshot/rich.pickle")) == parse(RICH.as_bytes()));
}

#[test]
fn histories_that_differ_are_not_equal() {
    let whole = History::parse(RICH.as_bytes()).expect("it is a snapshot");
    for (from, to) in [
        ("\"epoch 3\"", "\"epoch 4\""),
        ("\"0/1\"", "\"0/2\""),
        ("\"line\": 2", "\"line\": 3"),
        ("\"line\": 1", "\"line\": 3"),
        ("\"name\": \"step\"", "\"name\": \"pets\""),
        ("\"stage\": \"START\"", "\"stage\": \"END\""),
        ("\"time_us\": 2", "\"time_us\": 3"),
        ("expandable_segments:True", "expandable_segments:False"),
        ("\"is_expandable\": true", "\"is_expandable\": false"),
        ("\"requested_size\": 1,", "\"requested_size\": 2,"),
        ("active_pending_free", "inactive"),
    ] {
        assert!(RICH.contains(from), "{from}");
        let other = History::parse(RICH.replace(from, to).as_bytes()).expect("it is a snapshot");
        assert!(whole != other, "{from}");
    }
}

#[test]
fn traces_of_lines_become_snapshots() {
    let trace = Trace::parse("a,0,100\na,1,700,5\nf,0\na,0,1\n".as_bytes()).expect("it is a trace");
    let history = History::from(&trace);
    let events = &history.devices[0].events;
    let addresses: Vec<u64> = events.iter().map(|event| event.address).collect();
    assert_eq!(addresses, [512, 1024, 512, 512, 2048]);
    let again = History::parse(&pickled(&history)[..]).expect("it was written");
    assert_eq!(again.devices[0].events.len(), events.len());
    assert_eq!(again.devices[0].events[1].stream.raw(), 5);
    assert!(
        History::parse("a,0,100\nf,0\n".as_bytes()).is_ok_and(|history| history.devices[0].events.len() == 3)
    );
}

/// A snapshot has a list for every number: a recording's CPU is written after the GPUs, and not after four
/// billion lists.
#[test]
fn devices_with_other_numbers_come_last() {
    let mut history = History::parse(RICH.as_bytes()).expect("it is a snapshot");
    let mut far = history.devices[0].clone();
    far.device = u32::MAX;
    history.devices.push(far);
    let again = History::parse(&pickled(&history)[..]).expect("it was written");
    let last = history.devices[history.devices.len() - 2].device;
    let numbers: Vec<u32> = again.devices.iter().map(|device| device.device).collect();
    assert_eq!(numbers.last(), Some(&(last + 1)), "{numbers:?}");
    assert_eq!(again.devices.last().map(|device| device.events.len()), Some(history.devices[0].events.len()));
    let first = history.devices[0].clone();
    let numbered = |device| {
        let mut again = first.clone();
        again.device = device;
        again
    };
    // There is room for all numbers, but not for one more.
    history.devices = [7, 4095, 1 << 16].map(numbered).into();
    let again = History::parse(&pickled(&history)[..]).expect("it was written");
    let numbers: Vec<u32> = again.devices.iter().map(|device| device.device).collect();
    assert_eq!(numbers, [0, 7, 4095]);
    history.devices = (4000..8097).map(numbered).collect();
    let error = write_pickle(&history, Vec::new()).unwrap_err();
    assert!(matches!(error, TraceError::DeviceNumber { limit: 4096, .. }), "{error}");
}

/// An annotation of a device without events is not assigned to the CPU, whatever number that gets.
#[test]
fn annotations_keep_their_device() {
    let mut history = History::parse(RICH.as_bytes()).expect("it is a snapshot");
    let cpu = 1 << 16;
    history.devices[0].device = cpu;
    let annotations = [Some(cpu), Some(0), None, Some(3)].map(|device| {
        let mut annotation = history.annotations[0];
        annotation.device = device;
        annotation
    });
    history.annotations = annotations.into();
    let again = History::parse(&pickled(&history)[..]).expect("it was written");
    assert_eq!(again.devices.iter().map(|device| device.device).collect::<Vec<_>>(), [4]);
    let devices: Vec<_> = again.annotations.iter().map(|annotation| annotation.device).collect();
    assert_eq!(devices, [Some(4), Some(0), None, Some(3)]);
}

/// Profilers and RMM record blocks without segments, and none are invented for them.
#[test]
fn recordings_without_regions_become_snapshots_without_segments() {
    let memory = |time: u64, address: u64, bytes: i64| {
        format!(
            r#"{{"ph":"i","name":"[memory]","ts":{time},"tid":7,"args":
                            {{"Addr":{address},"Bytes":{bytes},"Device Type":1,"Device Id":0}}}}"#
        )
    };
    // A block that was live at the start, one that is freed, and one that remains.
    let events = [memory(1, 4096, 512), memory(2, 512, -512), memory(3, 4096, -512), memory(4, 8192, 1024)];
    let chrome = format!(r#"{{"schemaVersion": 1, "traceEvents": [{}]}}"#, events.join(","));
    let rmm = "Thread,Time,Action,Pointer,Size,Stream\n\
               1,14:21:19:998533,allocate,0x1000,512,0x0\n\
               1,14:21:20:998533,free,0x1000,512,0x0\n\
               1,14:21:21:998533,allocate,0x2000,1024,0x0\n";
    for recording in [&chrome, rmm] {
        let history = History::parse(recording.as_bytes()).expect("it is a recording");
        assert_eq!(history.warnings, []);
        for bytes in [pickled(&history), as_json(&history)] {
            let again = History::parse(&bytes[..]).expect("it was written");
            assert_eq!(again.warnings, []);
            let [device] = &again.devices[..] else { panic!("one device") };
            assert_eq!((device.start.len(), device.end.len()), (0, 0));
            assert_eq!(device.events.len(), history.devices[0].events.len());
        }
    }
}

#[test]
fn a_full_writer_is_reported() {
    let full = write_json(&read(GPT[2]), &mut [0_u8; 100][..]).unwrap_err();
    assert!(matches!(full, TraceError::Write { .. }), "{full}");
}

/// Loads a snapshot and prints its contents.
const READER: &str = r#"
import json, pickle, pickletools, sys
data = sys.stdin.buffer.read()
# The opcodes that the viewer's own reader knows.
known = """APPEND APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINPUT BINUNICODE DICT EMPTY_DICT EMPTY_LIST
EMPTY_TUPLE FRAME LIST LONG1 LONG_BINGET LONG_BINPUT MARK MEMOIZE NEWFALSE NEWTRUE NONE PROTO SETITEM
SETITEMS SHORT_BINUNICODE STOP TUPLE
TUPLE1 TUPLE2 TUPLE3""".split()
assert data[:1] == b"{" or all(op.name in known for op, _, _ in pickletools.genops(data))
snapshot = json.loads(data) if data[:1] == b"{" else pickle.loads(data)
blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
live = sum(b["requested_size"] for b in blocks if b["state"] == "active_allocated")
assert live == sum(s["requested_size"] for s in snapshot["segments"])
assert all(s["total_size"] == sum(b["size"] for b in s["blocks"]) for s in snapshot["segments"])
events = snapshot["device_traces"][0]
assert all(("device_free" if e["action"] == "oom" else "addr") in e and "stream" in e for e in events)
frames = sum(len(e["frames"]) for e in events)
settings = snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"]
print(len(snapshot["segments"]), len(events), frames, live, settings)
"#;

#[test]
fn python_reads_what_is_written() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: no python3");
        return;
    }
    let python = |bytes: &[u8]| {
        let mut child = Command::new("python3")
            .args(["-c", READER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        child.stdin.take().expect("it is piped").write_all(bytes).expect("python3 reads");
        let output = child.wait_with_output().expect("python3 ends");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("it prints text")
    };
    let name = GPT[2];
    let history = read(name);
    let original = python(&unpacked(name));
    assert!(original.starts_with("101 3840 "), "{original}");
    assert_eq!(python(&pickled(&history)), original);
    assert_eq!(python(&as_json(&history)), original);
}
