//! Arrays of kernels, in the types that engines have.

use super::{ENTRY, Oracle, builder, full, tokens, window};
use orlop_kv::{AdmissionRequest, KvError, KvGeometry, KvPool, LayerGroup};

/// vLLM and FlashInfer read block tables, indices and lengths as `i32`, and -1 as the null id; slots as
/// `i64`.
#[test]
fn signed_arrays_have_the_same_entries() {
    let mut oracle = Oracle::new(builder(vec![full(16), window(48, 16)], 30));
    let at = oracle.admit(&tokens(1, 200), 9).unwrap();
    oracle.prefill(at).unwrap();
    let (pool, handle) = (&oracle.pool, &oracle.running[at].handle);
    for group in 0..2 {
        let (mut unsigned, mut signed) = ([7_u32; 15], [7_i32; 15]);
        assert_eq!(pool.write_block_table(handle, group, 0, u32::MAX, &mut unsigned).unwrap(), 13);
        assert_eq!(pool.write_block_table(handle, group, 0, -1, &mut signed).unwrap(), 13);
        assert_eq!(signed, unsigned.map(u32::cast_signed));
        assert_eq!(signed[14], -1);

        let (mut slots, mut unsigned_slots) = ([0_i64; 4], [0_u64; 4]);
        pool.write_slot_mapping(handle, group, 0, 196..200, &mut slots).unwrap();
        pool.write_slot_mapping(handle, group, 0, 196..200, &mut unsigned_slots).unwrap();
        assert_eq!(slots, unsigned_slots.map(u64::cast_signed));
        assert_eq!(slots[0], i64::from(signed[12]) * 16 + 4);

        let (mut indptr, mut indices, mut last) = ([0_i32; 3], [0_i32; 26], [0_i32; 2]);
        let batch = [handle, handle];
        let count = pool.write_flashinfer(&batch, group, 0, &mut indptr, &mut indices, &mut last).unwrap();
        let pages: Vec<i32> = signed.into_iter().filter(|&page| page >= 0).collect();
        assert_eq!(indices[..count], [&pages[..], &pages].concat());
        let half = i32::try_from(pages.len()).unwrap();
        assert_eq!((indptr, last), ([0, half, 2 * half], [8, 8]));
        let mut lengths = [0_i32; 3];
        pool.write_cumulative_lengths(&batch, &mut lengths).unwrap();
        assert_eq!(lengths, [0, 200, 400]);
    }
}

/// What the type cannot hold is an error, before anything is written.
#[test]
fn slots_beyond_the_type_are_refused() {
    let geometry = KvGeometry::new(vec![LayerGroup::full("full", 1, ENTRY).with_block_tokens(4096)]).unwrap();
    let mut pool = KvPool::builder(geometry).large_pages(1 << 20).build_detached().unwrap();
    let prompt = tokens(1, 100);
    let sequence = pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 1)).unwrap().sequence;
    pool.append(&sequence, 100).unwrap();
    let mut slots = [-1_i32; 4];
    let refused = pool.write_slot_mapping(&sequence, 0, 0, 0..4, &mut slots);
    assert!(matches!(refused, Err(KvError::OutOfRange { .. })), "{refused:?}");
    assert_eq!(slots, [-1; 4]);
    pool.write_slot_mapping(&sequence, 0, 0, 0..4, &mut [0_i64; 4]).unwrap();
    pool.write_slot_mapping(&sequence, 0, 0, 0..4, &mut [0_u32; 4]).unwrap();
}
