//! PyTorch's own answers: every address, and every figure in the end.

use crate::device::{Ask, DeviceBlock, Engine, NullDevice, Policy, TorchConf};
use flate2::read::GzDecoder;
use orlop_core::{Device, StreamId};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

fn text(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/torch-golden").join(name);
    let mut text = String::new();
    GzDecoder::new(File::open(path).expect("as shipped")).read_to_string(&mut text).expect("as shipped");
    text
}

fn check(name: &str) {
    let (operations, expected) = (text(&format!("{name}.ops.gz")), text(&format!("{name}.expected.gz")));
    let mut lines = operations.lines();
    let head = lines.next().expect("as shipped").strip_prefix("# settings=").expect("as shipped");
    let (settings, memory) = head.split_once(" mem=").expect("as shipped");
    let conf: TorchConf = if settings == "-" { "" } else { settings }.parse().expect("as shipped");
    let memory: u64 = memory.parse().expect("as shipped");
    let mut engine = Engine::new(NullDevice::new(Device::cuda(0), memory), Policy::torch(&conf));
    let mut blocks: HashMap<u64, DeviceBlock> = HashMap::new();
    let mut answers = expected.lines();
    for (number, line) in lines.enumerate() {
        let mut words = line.split(' ');
        let operation = words.next().expect("as shipped");
        let mut next = || words.next().expect("as shipped").parse::<u64>().expect("as shipped");
        match operation {
            "a" => {
                let (id, bytes, stream) = (next(), next(), next());
                let ask = Ask::new(usize::try_from(bytes).expect("as shipped"), StreamId::new(stream));
                let answer = match engine.allocate(ask) {
                    Ok(block) => {
                        blocks.insert(id, block);
                        format!("{id} {}", engine.address(block) - NullDevice::FIRST_ADDRESS)
                    }
                    Err(_) => format!("{id} OOM"),
                };
                assert_eq!(Some(&*answer), answers.next(), "{name}, operation {number}: {line}");
            }
            "f" => {
                if let Some(block) = blocks.remove(&next()) {
                    engine.free(block).expect("as shipped");
                }
            }
            "r" => {
                let (id, stream) = (next(), next());
                if let Some(&block) = blocks.get(&id) {
                    engine.record_stream(block, StreamId::new(stream)).expect("as shipped");
                }
            }
            "q" => engine.backing().set_events_done(next() == 1),
            "e" => engine.empty_cache(),
            "m" => engine.set_memory_fraction(line[2..].parse().expect("as shipped")),
            _ => panic!("{line}"),
        }
        if number % 500 == 0 {
            engine.verify().expect("as shipped");
        }
    }
    engine.verify().expect("as shipped");
    let figures = engine.stats().to_string();
    let rest: Vec<&str> = answers.collect();
    assert_eq!(figures.lines().collect::<Vec<_>>(), rest, "{name}");
}

macro_rules! golden {
    ($($test:ident: $name:literal,)*) => {$(
        #[test]
        fn $test() {
            check($name);
        }
    )*};
}

golden! {
    torch_default: "default",
    torch_expandable: "expandable",
    torch_expandable_tight: "expandable-tight",
    torch_fraction: "fraction",
    torch_gc_threshold: "gc-threshold",
    torch_max_split: "max-split",
    torch_record_stream: "record-stream",
    torch_roundup_4: "roundup-4",
    torch_roundup_table: "roundup-table",
    torch_small_sizes: "small-sizes",
    torch_tight_memory: "tight-memory",
    torch_tight_record: "tight-record",
}
