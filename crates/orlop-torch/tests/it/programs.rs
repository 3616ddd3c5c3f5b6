//! Random programs of several threads and streams, checked for races.

use crate::machine::Machine;
use orlop_cuda::DeviceStream;
use orlop_testkit::device::Random;
use orlop_torch::orlop_torch_trim;
use std::sync::Mutex;

/// A block, with the place of the stream that it was requested for and of the one that used it last.
#[derive(Debug, Clone, Copy)]
struct UsedBlock {
    address: usize,
    bytes: usize,
    own: usize,
    last: usize,
}

struct Program<'a> {
    machine: &'a Machine,
    streams: &'a [DeviceStream],
    blocks: Mutex<Vec<UsedBlock>>,
    records: bool,
}

impl Program<'_> {
    fn run(&self, seed: u64, operations: u64) {
        let mut random = Random::new(seed);
        for _ in 0..operations {
            let place = random.below(self.streams.len());
            let taken = {
                let mut blocks = self.blocks.lock().unwrap();
                let next = random.below(blocks.len());
                (!blocks.is_empty()).then(|| blocks.swap_remove(next))
            };
            match (random.below(100), taken) {
                (0..30, Some(block)) => self.machine.free(block.address, &self.streams[block.own]),
                (30..60, Some(mut block)) => {
                    self.use_on(&mut block, place);
                    self.keep(block);
                }
                (60, taken) => {
                    taken.into_iter().for_each(|block| self.keep(block));
                    orlop_torch_trim(self.machine.number);
                }
                (_, taken) => {
                    taken.into_iter().for_each(|block| self.keep(block));
                    self.allocate(&mut random, place);
                }
            }
        }
    }

    fn keep(&self, block: UsedBlock) {
        self.blocks.lock().unwrap().push(block);
    }

    fn allocate(&self, random: &mut Random, place: usize) {
        let most = if random.one_in(4) { 6 << 20 } else { 1 << 16 };
        let bytes = 1 + random.below(most);
        let address = self.machine.malloc(bytes, &self.streams[place]);
        if address == 0 {
            let all = std::mem::take(&mut *self.blocks.lock().unwrap());
            all.iter().for_each(|block| self.machine.free(block.address, &self.streams[block.own]));
            return;
        }
        self.machine.write(&self.streams[place], address, bytes);
        self.keep(UsedBlock { address, bytes, own: place, last: place });
    }

    /// Uses a block on another stream, as PyTorch programs do: the stream waits, and is recorded.
    fn use_on(&self, block: &mut UsedBlock, place: usize) {
        if place != block.last {
            self.streams[place].wait_for(self.streams[block.last].id()).unwrap();
            block.last = place;
        }
        if place != block.own && self.records {
            self.machine.record(block.address, &self.streams[place]);
        }
        self.machine.write(&self.streams[place], block.address, block.bytes);
    }
}

fn races(machine: &Machine, seed: u64, threads: u64, records: bool) -> u64 {
    let streams: Vec<DeviceStream> = (0..6).map(|_| machine.device.create_stream().unwrap()).collect();
    let program = Program { machine, streams: &streams, blocks: Mutex::default(), records };
    let before = machine.driver.counts().races;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let program = &program;
            scope.spawn(move || program.run(seed * 100 + thread, 1500 / threads));
        }
    });
    for block in program.blocks.lock().unwrap().drain(..) {
        machine.free(block.address, &streams[block.own]);
    }
    assert_eq!(machine.stat("allocation.all.current"), 0);
    orlop_torch_trim(machine.number);
    // A race can be an access to memory that was released: the device fails then, and releases nothing more.
    if records {
        assert_eq!(machine.stat("reserved_bytes.all.current"), 0, "seed {seed}, {threads} threads");
    }
    machine.driver.counts().races - before
}

#[test]
fn random_programs_have_no_race() {
    let machine = Machine::new(10);
    for threads in [1, 4] {
        for seed in 0..4 {
            assert_eq!(races(&machine, seed, threads, true), 0, "seed {seed}, {threads} threads");
        }
    }
}

#[test]
fn without_recorded_streams_the_same_programs_race() {
    // Each on a device of its own, since a device may fail.
    let on_device = |(seed, device)| races(&Machine::new(device), seed, 1, false);
    let found: u64 = (0..4).zip([11, 18, 19, 20]).map(on_device).sum();
    assert!(found > 10, "{found} races");
}
