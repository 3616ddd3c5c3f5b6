//! An engine that keeps its own arrays of keys and values, one of each for every layer, and takes only the
//! page ids from the pool.
//!
//! ```text
//! cargo run -p orlop --example kv_own_arenas
//! ```
//!
//! The pool is built without memory. A page id is an index into every array: page `p` has the tokens
//! `p * BLOCK_TOKENS ..` of each. The arrays can be tensors of any framework.

use orlop::kv::{AdmissionRequest, ChainFields, KvGeometry, KvPool, LayerGroup, Sequence, Tenant};
use orlop::prelude::*;
use std::error::Error;

const LAYERS: u32 = 2;
const WIDTH: usize = 8;
const BLOCK_TOKENS: usize = 4;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The keys and the values of a layer: `[pages, BLOCK_TOKENS, WIDTH]`.
struct LayerArrays([Tensor; 2]);

impl LayerArrays {
    fn new(context: &Context, pages: usize) -> Result<Self> {
        let options = TensorOptions::new().context(context).kind(MemoryKind::KvCache);
        let array = || Tensor::zeros([pages, BLOCK_TOKENS, WIDTH], options);
        Ok(Self([array()?, array()?]))
    }

    /// Writes the key and the value of the token at a slot.
    fn write(&self, slot: usize, value: f32) -> Result<()> {
        for array in &self.0 {
            array.as_mut_slice::<f32>()?[slot * WIDTH..][..WIDTH].fill(value);
        }
        Ok(())
    }

    fn copy(&self, from: usize, to: usize, tokens: usize) -> Result<()> {
        for array in &self.0 {
            let page = BLOCK_TOKENS * WIDTH;
            array.as_mut_slice::<f32>()?.copy_within(from * page..from * page + tokens * WIDTH, to * page);
        }
        Ok(())
    }
}

/// Appends tokens to a sequence, whose keys and values are `value`, in every layer.
fn append(
    pool: &mut KvPool,
    layers: &[LayerArrays],
    sequence: &Sequence,
    tokens: u32,
    value: f32,
) -> Result<()> {
    let (start, _) = pool.len(sequence)?;
    pool.append(sequence, tokens)?;
    let mut slots = vec![0; tokens as usize];
    pool.write_slot_mapping(sequence, 0, 0, start..start + tokens, &mut slots)?;
    for layer in layers {
        // A block that others share is copied before it is written.
        for copy in pool.copies() {
            layer.copy(copy.from as usize, copy.to as usize, copy.tokens as usize)?;
        }
        for &slot in &slots {
            layer.write(usize::try_from(slot)?, value)?;
        }
    }
    let step = pool.close_step();
    pool.settle(step)?;
    Ok(())
}

/// Returns the first element of the key of each token.
fn read(pool: &KvPool, layer: &LayerArrays, sequence: &Sequence) -> Result<Vec<f32>> {
    let (len, _) = pool.len(sequence)?;
    let mut slots = vec![0; len as usize];
    pool.write_slot_mapping(sequence, 0, 0, 0..len, &mut slots)?;
    let keys = layer.0[0].as_slice::<f32>()?;
    slots.iter().map(|&slot| Ok(keys[usize::try_from(slot)? * WIDTH])).collect()
}

pub(crate) fn main() -> Result<()> {
    let context = Context::new();
    let entry = (2 * WIDTH * size_of::<f32>()) as u64;
    let group = LayerGroup::full("full", LAYERS, entry).with_block_tokens(u32::try_from(BLOCK_TOKENS)?);
    let mut pool = KvPool::builder(KvGeometry::new(vec![group])?).bytes(64 << 10).build_detached()?;
    // Blocks of a single group are one page each, so the arrays have what the pool counts.
    let pages = pool.page_ids(0) as usize;
    let layers: Vec<LayerArrays> =
        (0..LAYERS).map(|_| LayerArrays::new(&context, pages)).collect::<Result<_>>()?;
    let arrays = context.stats(Device::CPU).kind(MemoryKind::KvCache).live_bytes;
    println!("{pages} pages: {arrays} B in arrays, {} B in the pool's books", pool.stats().total_bytes);

    let prompt = [7; 6];
    let fields = ChainFields::new(Tenant::Shared, "weights r1", "f32");
    let first = pool.admit(&AdmissionRequest::new(fields, &prompt, 8))?.sequence;
    append(&mut pool, &layers, &first, 6, 1.0)?;
    let second = pool.fork(&first, 14)?;
    append(&mut pool, &layers, &first, 1, 2.0)?;
    append(&mut pool, &layers, &second, 1, 3.0)?;
    for (name, sequence) in [("first", &first), ("second", &second)] {
        let keys = layers.iter().map(|layer| read(&pool, layer, sequence)).collect::<Result<Vec<_>>>()?;
        println!("{name}: {:?}, the same in every layer: {}", keys[0], keys[0] == keys[1]);
    }
    Ok(())
}
