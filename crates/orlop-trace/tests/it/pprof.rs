//! Profiles of pprof, decoded by an implementation of protocol buffers that is not orlop's.

use flate2::read::GzDecoder;
use orlop_trace::TraceError;
use orlop_trace::formats::pprof::{PprofFault, read_pprof, write_pprof};
use orlop_trace::history::{History, SegmentBlock};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

const TRACE: &str = "device,time_ns,action,address,bytes,stream,thread,kind,text,frames\n\
                     0,1,allocate,0x200,100,0,0,default,,step|train.py|7;main|train.py|2\n\
                     0,2,allocate,0x400,300,0,0,default,,step|train.py|7;main|train.py|2\n\
                     0,3,allocate,0x800,600,0,0,default,,load|data.py|3\n\
                     0,4,free_requested,0x800,600,0,0,default,,load|data.py|3\n\
                     1,5,allocate,0x200,64,0,0,default,tagged,\n";

fn decoded(history: &History) -> Profile {
    let mut bytes = Vec::new();
    write_pprof(history, &mut bytes).expect("a vector takes all");
    let mut plain = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut plain).expect("gzip");
    Profile::decode(&plain[..]).expect("a profile")
}

impl Profile {
    fn text(&self, index: i64) -> &str {
        &self.string_table[usize::try_from(index).expect("an index")]
    }

    /// Returns the frames of a sample, innermost first.
    fn frames(&self, sample: &Sample) -> Vec<String> {
        let function = |id| self.function.iter().find(|function| function.id == id).expect("a function");
        let frame = |id: &u64| {
            let location = self.location.iter().find(|location| location.id == *id).expect("a location");
            let line = location.line[0];
            let Function { name, filename, .. } = *function(line.function_id);
            format!("{}@{}:{}", self.text(name), self.text(filename), line.line)
        };
        sample.location_id.iter().map(frame).collect()
    }

    fn labels(&self, sample: &Sample) -> BTreeMap<&str, &str> {
        sample.label.iter().map(|label| (self.text(label.key), self.text(label.text))).collect()
    }
}

#[test]
fn another_decoder_finds_what_was_written() {
    let history = History::parse(TRACE.as_bytes()).unwrap();
    let profile = decoded(&history);
    let names: Vec<_> = profile.sample_type.iter().map(|one| profile.text(one.kind)).collect();
    assert_eq!(names[..4], ["allocations", "space", "end_allocations", "end_space"]);
    assert_eq!(profile.text(profile.sample_type[1].unit), "bytes");
    assert_eq!((profile.text(0), profile.text(profile.default_sample_type)), ("", "space"));
    let mut found: Vec<_> = profile
        .sample
        .iter()
        .map(|sample| (profile.frames(sample), sample.value.clone(), profile.labels(sample)))
        .collect();
    found.sort();
    let device = |name| BTreeMap::from([("device", name)]);
    let frames = |frames: &[&str]| frames.iter().map(|&frame| frame.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        found,
        [
            (vec![], vec![1, 64, 1, 64, 1, 64], BTreeMap::from([("device", "cuda:1"), ("tag", "tagged")])),
            (frames(&["load@data.py:3"]), vec![1, 600, 0, 0, 1, 600], device("cuda:0")),
            (frames(&["step@train.py:7", "main@train.py:2"]), vec![2, 400, 2, 400, 2, 400], device("cuda:0")),
        ]
    );
}

/// A profile as JAX writes it: two buffers of one call site, an executable, and unpacked numbers.
fn jax() -> Profile {
    let strings = [
        "",
        "allocations",
        "count",
        "space",
        "bytes",
        "kind",
        "buffer",
        "executable",
        "device",
        "TFRT_CPU_0",
    ];
    let label = |key, text| Label { key, text };
    Profile {
        sample_type: vec![ValueType { kind: 1, unit: 2 }, ValueType { kind: 3, unit: 4 }],
        sample: vec![
            Sample { location_id: vec![1], value: vec![2, 4097], label: vec![label(5, 6), label(8, 9)] },
            Sample { location_id: vec![], value: vec![1, 500], label: vec![label(5, 7)] },
        ],
        location: vec![Location { id: 1, line: vec![Line { function_id: 9, line: 12 }] }],
        function: vec![Function { id: 9, name: 10, system_name: 10, filename: 11 }],
        string_table: strings.iter().chain(&["step", "train.py"]).map(|&text| text.to_owned()).collect(),
        default_sample_type: 0,
    }
}

#[test]
fn profiles_become_blocks() {
    let history = History::parse(&jax().encode_to_vec()[..]).unwrap();
    let [device] = &history.devices[..] else { panic!("one device") };
    assert_eq!(device.device, 1 << 16);
    let blocks: Vec<_> = device
        .unplaced
        .iter()
        .map(|block| {
            let frame = history.sites.frames(block.site).next().expect("a frame");
            (block.bytes, history.sites.name(frame.function), history.sites.name(frame.file), frame.line)
        })
        .collect();
    let step = |bytes| (bytes, "step", "train.py", 12);
    assert_eq!(blocks, [step(2049), step(2048), (500, "executable", "", 0)]);
    // Written and read again, by call site.
    let again = decoded(&history);
    let total: i64 = again.sample.iter().map(|sample| sample.value[1]).sum();
    assert_eq!((total, again.sample.len()), (4597, 2));
}

#[test]
fn profiles_of_other_things_are_refused() {
    let fault = |profile: &Profile| match read_pprof(&profile.encode_to_vec()[..]) {
        Err(TraceError::Pprof { fault }) => fault,
        other => panic!("{other:?}"),
    };
    let mut time = jax();
    time.string_table[4] = "nanoseconds".to_owned();
    assert_eq!(fault(&time), PprofFault::NoBytes);
    let mut negative = jax();
    negative.sample[0].value[1] = -1;
    assert_eq!(fault(&negative), PprofFault::Negative);
    let mut large = jax();
    large.sample = (0..3).map(|_| Sample { value: vec![1, i64::MAX], ..Sample::default() }).collect();
    assert_eq!(fault(&large), PprofFault::Overflow);
    let bytes = jax().encode_to_vec();
    for end in 1..bytes.len() {
        // No panic, and no blocks that are not in the file.
        if let Ok(history) = read_pprof(&bytes[..end]) {
            assert!(history.devices.iter().all(|device| device.unplaced.len() <= 3));
        }
    }
}

#[test]
fn a_short_profile_has_few_blocks_and_frames() {
    let mut many = jax();
    many.sample[0].value = vec![i64::MAX, i64::MAX];
    many.sample[1].value = vec![1000, 1001];
    let history = read_pprof(&many.encode_to_vec()[..]).unwrap();
    let bytes: Vec<u64> = history.devices[0].unplaced.iter().map(|block| block.bytes).collect();
    assert_eq!((bytes.len(), bytes[0], bytes[1], bytes[1000]), (1001, i64::MAX as u64, 2, 1));
    let mut deep = jax();
    deep.location[0].line = vec![Line { function_id: 9, line: 12 }; 2000];
    deep.sample[0].location_id = vec![1; 2000];
    let error = read_pprof(&deep.encode_to_vec()[..]).unwrap_err();
    assert!(matches!(error, TraceError::ExcessiveSharing { .. }), "{error}");
}

#[test]
fn a_block_takes_a_part_of_a_profile() {
    // A long string adds nothing: the blocks of the first sample are more than one for each 64 bytes.
    let mut many = jax();
    many.string_table.push("x".repeat(1 << 20));
    many.sample[0].value = vec![100_000, 200_000];
    let history = read_pprof(&many.encode_to_vec()[..]).unwrap();
    assert_eq!(history.devices[0].unplaced.len(), 2);
}

#[test]
fn a_profile_has_a_maximum_of_strings_and_bytes() {
    let limit = 1 << 24;
    let fault = |bytes: &[u8]| match read_pprof(bytes) {
        Err(TraceError::Pprof { fault }) => fault,
        other => panic!("{:?}", other.map(|history| history.devices.len())),
    };
    // An empty string is two bytes, an empty number of a sample one.
    let strings = [&jax().encode_to_vec()[..], &b"\x32\0".repeat(limit)].concat();
    let entries = "strings, functions, locations and lines";
    assert_eq!(fault(&strings), PprofFault::TooMany { entries, limit });
    let mut lines = vec![0x22];
    prost::encode_length_delimiter(2 * limit + 2, &mut lines).expect("memory takes all");
    lines.extend(b"\x22\0".repeat(limit + 1));
    assert_eq!(fault(&lines), PprofFault::TooMany { entries, limit });
    let mut sample = jax();
    sample.sample[0].value = vec![0; limit];
    let entries = "bytes in a sample";
    assert_eq!(fault(&sample.encode_to_vec()), PprofFault::TooMany { entries, limit });
}

#[test]
fn a_long_name_is_read_once_for_all_its_lines() {
    let mut long = jax();
    long.string_table[10] = "n".repeat(8 << 20);
    // Each line is a frame, and each function has the name.
    let ids = 9..10_009;
    long.function = ids.clone().map(|id| Function { id, ..long.function[0] }).collect();
    long.location[0].line = ids.map(|id| Line { function_id: id, line: id.cast_signed() }).collect();
    let history = read_pprof(&long.encode_to_vec()[..]).unwrap();
    let frames: Vec<_> = history.sites.frames(history.devices[0].unplaced[0].site).collect();
    let functions: BTreeSet<usize> = frames.iter().map(|frame| frame.function.index()).collect();
    assert_eq!((frames.len(), functions.len(), frames[9_999].line), (10_000, 1, 10_008));
    assert_eq!(history.sites.name(frames[0].function).len(), 1 << 16);
}

/// A program's profile; its contents as Python's implementation of protocol buffers decodes it.
#[test]
fn what_jax_wrote_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/jax-device-memory.pb.gz");
    let history = History::read(path).unwrap();
    let [device] = &history.devices[..] else { panic!("one device") };
    assert_eq!((device.device, device.events.len()), (1 << 16, 0));
    let lines = |block: &SegmentBlock| -> Vec<(String, u32)> {
        let name = |text| history.sites.name(text).to_owned();
        let frames = history.sites.frames(block.site).filter(|frame| name(frame.file) == "train.py");
        frames.map(|frame| (name(frame.function), frame.line)).collect()
    };
    let mut found: Vec<_> = device.unplaced.iter().map(|block| (lines(block).len(), block.bytes)).collect();
    found.sort_unstable();
    let expected = [(1, 2048), (1, 16384), (1, 16384), (1, 16384), (3, 16384), (3, 16384), (3, 16384)];
    assert_eq!(found, expected);
    let innermost = lines(device.unplaced.iter().max_by_key(|block| lines(block).len()).unwrap());
    assert_eq!((innermost[0].0.as_str(), innermost[2].0.as_str()), ("<listcomp>", "<module>"));
}
