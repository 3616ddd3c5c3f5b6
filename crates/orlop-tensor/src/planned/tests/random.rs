//! Random programs of safe code against a model: a buffer has the value that was written through its handles
//! during its lifetime, and no handle works after that.

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// A handle that the program keeps, of a life of a part.
struct Handle {
    part: usize,
    life: u64,
    tensor: Tensor,
}

struct Program {
    random: Random,
    memory: PlannedMemory,
    parts: Vec<PlannedPart>,
    /// By part: the number of its present life, and its value if it was written.
    lives: Vec<(u64, Option<f32>)>,
    next: u64,
    handles: Vec<Handle>,
    blocks: Vec<MemoryBlock>,
    /// Tensors with memory of their own, and their value.
    own: Vec<(Tensor, f32)>,
    /// Accesses through handles that worked, and that were refused.
    outcomes: [usize; 2],
}

const BYTES: usize = 512;

fn random_parts(random: &mut Random) -> Vec<PlannedPart> {
    loop {
        let count = 1 + random.below(7);
        let parts: Vec<_> = (0..count)
            .map(|_| {
                let (offset, floats_of) = (64 * random.below(8), 1 + random.below(16));
                let start = random.below(6) as u64;
                let end = if random.below(8) == 0 { NEVER } else { start + 1 + random.below(4) as u64 };
                let first = floats(floats_of, start..end);
                let mut tensors = vec![first];
                if end != NEVER && random.below(3) == 0 {
                    tensors.push(floats(floats_of, end - 1..end + 2));
                }
                PlannedPart::new(offset, 4 * floats_of, tensors)
            })
            .collect();
        if check(&parts, BYTES, Alignment::PLANNED).is_ok() {
            return parts;
        }
    }
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let parts = random_parts(&mut random);
        let request = Request::new(BYTES).align(Alignment::PLANNED);
        let block = Context::new().allocate(Device::CPU, &request).unwrap();
        let memory = PlannedMemory::new(block, &parts).unwrap();
        let lives = (0..parts.len()).map(|part| (part as u64, None)).collect();
        let (handles, blocks, own, next) = (Vec::new(), Vec::new(), Vec::new(), parts.len() as u64);
        Self { random, memory, parts, lives, next, handles, blocks, own, outcomes: [0; 2] }
    }

    /// A part is in its life, and a handle is of it.
    fn is_valid(&self, part: usize, life: u64) -> bool {
        let lifetime = self.parts.get(part).map(PlannedPart::lifetime);
        lifetime.is_some_and(|lifetime| is_live(&lifetime, self.memory.now())) && self.lives[part].0 == life
    }

    /// Reads and writes through a tensor of this life of a part.
    fn access(&mut self, part: usize, life: u64, tensor: &Tensor) -> bool {
        let read = tensor.to_vec::<f32>();
        if let Ok(values) = &read {
            assert!(self.is_valid(part, life), "a handle works after the end");
            if let Some(value) = self.lives[part].1 {
                assert!(values.iter().all(|&read| read == value), "{values:?} instead of {value}");
            }
        }
        let value = self.random.below(1000) as f32;
        let written = match self.random.below(2) {
            0 => tensor.fill_(f64::from(value)),
            _ => tensor.as_mut_slice::<f32>().map(|mut slice| slice.fill(value)),
        };
        if written.is_ok() {
            assert!(self.is_valid(part, life), "a handle works after the end");
            self.lives[part].1 = Some(value);
        }
        read.is_ok() || written.is_ok()
    }

    /// Returns a tensor that is live, with its part.
    fn lent(&mut self) -> Option<(usize, Tensor)> {
        let slot = self.random.below(self.memory.len());
        let tensor = self.memory.tensor(slot).ok()?.clone();
        Some((self.memory.slots[slot].part, tensor))
    }

    fn act(&mut self) {
        match self.random.below(20) {
            0..6 => {
                if let Some((part, tensor)) = self.lent() {
                    self.access(part, self.lives[part].0, &tensor);
                }
            }
            6..9 => {
                if let Some((part, tensor)) = self.lent() {
                    let tensor = match self.random.below(6) {
                        0 => tensor.narrow(0, 0, tensor.numel()).unwrap(),
                        1 => tensor.unsqueeze(0).unwrap().view([tensor.numel()]).unwrap(),
                        2 => tensor.to_dtype(DType::F32).unwrap(),
                        3 => Tensor::new(
                            tensor.storage().unwrap().clone(),
                            tensor.layout().clone(),
                            DType::F32,
                        ),
                        4 => tensor.view([1, tensor.numel()]).unwrap().select(0, 0).unwrap(),
                        _ => tensor,
                    };
                    self.handles.push(Handle { part, life: self.lives[part].0, tensor });
                }
            }
            9..12 => {
                if !self.handles.is_empty() {
                    let index = self.random.below(self.handles.len());
                    let Handle { part, life, tensor } = self.handles.swap_remove(index);
                    let works = self.access(part, life, &tensor);
                    self.outcomes[usize::from(!works)] += 1;
                    if self.random.below(2) == 0 {
                        self.handles.push(Handle { part, life, tensor });
                    }
                }
            }
            12 => {
                if let Some((_, tensor)) = self.lent() {
                    let storage = tensor.storage().unwrap();
                    match self.random.below(7) {
                        0 => self.blocks.extend(storage.block()),
                        1 => drop(storage.as_mut_ptr()),
                        2 => storage.mark_immutable("a test"),
                        3 => storage.refuse_writes("a test"),
                        4 => storage.refuse_access("a test"),
                        5 => _ = tensor.as_slice::<f32>().map(std::mem::forget),
                        _ => storage.allow_access(),
                    }
                }
            }
            13 => {
                if let Some((_, tensor)) = self.lent()
                    && let (Ok(values), Ok(copy)) = (tensor.to_vec::<f32>(), tensor.lazy_clone())
                {
                    self.own.push((copy, values[0]));
                }
            }
            14 => self.bind(),
            15 => self.misuse(),
            _ => self.advance(),
        }
        let refused = self.own.iter().find(|(tensor, value)| tensor.to_vec::<f32>().unwrap()[0] != *value);
        assert!(refused.is_none(), "memory of its own was written");
    }

    /// A storage of the program gets the memory of a part.
    fn bind(&mut self) {
        let slot = self.random.below(self.memory.len());
        let part = self.memory.slots[slot].part;
        let layout = self.memory.slots[slot].tensor.layout().clone();
        let storage = Storage::unbound(&crate::TensorOptions::new()).unwrap();
        let tensor = Tensor::new(storage.clone(), layout, DType::F32);
        if self.memory.bind(slot, &storage).is_ok() {
            self.handles.push(Handle { part, life: self.lives[part].0, tensor });
        } else {
            assert!(storage.is_unbound());
        }
    }

    /// Everything that changes a storage is refused while it has planned memory, and works afterwards.
    fn misuse(&mut self) {
        let Some(Handle { part, life, tensor }) = self.handles.pop() else { return };
        let storage = tensor.storage().unwrap();
        let is_revoked = storage.is_unbound();
        let other = Storage::new(256, &crate::TensorOptions::new()).unwrap();
        let done = match self.random.below(6) {
            0 => storage.bind(256),
            1 => storage.resize(256),
            2 => storage.clear(),
            3 => storage.swap_data(&other),
            4 => storage.unbind().map(drop),
            _ => storage.slice(0..0).and_then(|slice| slice.unbind()).map(drop),
        };
        if !is_revoked {
            assert!(done.is_err());
            self.handles.push(Handle { part, life, tensor });
            return;
        }
        self.handles.retain(|handle| !handle.tensor.is_alias_of(&tensor));
        if tensor.fill_(1.0).is_ok() && !tensor.is_empty() {
            self.own.push((tensor, 1.0));
        }
    }

    /// Moves the clock, sometimes while a handle is read.
    fn advance(&mut self) {
        let before = self.memory.now();
        let reader = self.handles.pop();
        let slice = reader
            .as_ref()
            .filter(|_| before.is_multiple_of(2))
            .map(|reader| reader.tensor.as_slice::<f32>());
        let is_read = matches!(slice, Some(Ok(_)));
        let step = before + self.random.below(4) as u64;
        let (mut divided, mut is_restarted) = (None, false);
        let moved = match self.random.below(6) {
            0 => self.memory.restart().inspect(|()| is_restarted = true),
            1 => {
                let parts = random_parts(&mut self.random);
                let result = self.memory.divide(&parts);
                divided = Some(parts).filter(|_| result.is_ok());
                result
            }
            2 => {
                // A buffer that has ended may have bytes that were overwritten: no value is expected.
                self.memory.sanitize(before.is_multiple_of(2)).unwrap();
                Ok(())
            }
            _ => self.memory.advance(step),
        };
        let now = self.memory.now();
        match moved {
            Err(PlannedError::InUse { .. }) => {
                assert_eq!(now, before);
                assert!(is_read || !self.handles.is_empty() || !self.blocks.is_empty() || reader.is_some());
            }
            Err(error) => panic!("{error}"),
            Ok(()) => {}
        }
        drop(slice);
        self.handles.extend(reader);
        if self.random.below(8) == 0 {
            self.handles.clear();
            self.blocks.clear();
        }
        if let Some(parts) = divided {
            self.parts = parts;
            self.lives = vec![(0, None); self.parts.len()];
            for life in &mut self.lives {
                (life.0, self.next) = (self.next, self.next + 1);
            }
            return;
        }
        for (part, life) in self.parts.iter().zip(&mut self.lives) {
            let end = part.lifetime().end;
            if end != NEVER && (end <= now || is_restarted) {
                (*life, self.next) = ((self.next, None), self.next + 1);
            }
        }
    }
}

#[test]
fn random_programs_of_safe_code() {
    let (programs, actions) = if cfg!(miri) { (3, 120) } else { (400, 600) };
    let mut outcomes = [0; 2];
    for seed in 0..programs {
        let mut program = Program::new(seed);
        (0..actions).for_each(|_| program.act());
        (program.handles, program.blocks) = Default::default();
        program.memory.restart().unwrap();
        (0..2).for_each(|kind| outcomes[kind] += program.outcomes[kind]);
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}
