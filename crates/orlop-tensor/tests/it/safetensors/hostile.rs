//! Arbitrary bytes: no reader panics, none allocates out of proportion, and orlop's agrees with the
//! `safetensors` crate.

use super::heap::peak_of;
use orlop_context::Context;
use orlop_core::{DType, Device};
use orlop_tensor::interchange::safetensors::{
    Flaw, Metadata, SafeTensors, SafetensorsError, ShardIndex, to_bytes,
};
use orlop_tensor::{Error, Tensor};
use proptest::prelude::*;
use std::sync::LazyLock;

/// More than tensors of such small files need.
const ROOM: usize = 1 << 20;

/// The allowed heap for each byte of input, because names, shapes and tensors are larger in memory than in a
/// file; and a constant, because the allocator's own tables grow now and then.
const HEAP: (usize, usize) = (32, 128 << 10);

static SMALL: LazyLock<Context> =
    LazyLock::new(|| Context::with(Device::CPU, orlop_context::AllocatorConfig::new().limit(ROOM)));

/// The function that a fuzzer calls for files.
fn fuzz_one(data: &[u8]) {
    let (ours, peak) = SMALL.scope(|| peak_of(|| SafeTensors::from_bytes(data)));
    assert!(peak <= HEAP.0 * data.len() + HEAP.1, "{peak} bytes of the heap for {}", data.len());
    // Its sums overflow on some malformed files.
    let theirs = std::panic::catch_unwind(|| safetensors::SafeTensors::deserialize(data));
    let theirs = theirs.ok().and_then(Result::ok);
    match ours {
        Ok(file) => {
            for (name, tensor) in file.iter() {
                let bytes = tensor.storage().unwrap().read().unwrap().to_vec();
                assert_eq!(bytes.len(), tensor.nbytes());
                if let Some(theirs) = &theirs {
                    let same = theirs.tensor(name).unwrap();
                    assert_eq!((same.shape(), same.data()), (tensor.sizes(), &bytes[..]));
                }
            }
            assert!(
                theirs.is_some() || file.iter().any(|(_, tensor)| wraps(tensor.sizes())),
                "the safetensors crate rejected it"
            );
            let again = to_bytes(file.iter(), file.metadata()).unwrap();
            assert_eq!(SafeTensors::from_bytes(&again).unwrap().len(), file.len());
        }
        Err(Error::Safetensors(SafetensorsError::Malformed { flaw, .. })) => {
            assert!(!flaw.to_string().is_empty());
            let stricter = matches!(*flaw, Flaw::Duplicate { .. } | Flaw::DType { .. } | Flaw::Shape { .. });
            assert!(stricter || theirs.is_none(), "the safetensors crate accepted it: {flaw}");
        }
        Err(error) => panic!("{error}"),
    }
}

/// The same bytes in a file, mapped and read: the result must be that of [`fuzz_one`].
#[cfg(not(miri))]
fn fuzz_file(data: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, data).unwrap();
    // SAFETY: nothing else uses the file.
    let mapped = unsafe { SafeTensors::map(&path) };
    match (SafeTensors::from_bytes(data), SafeTensors::read(&path), mapped) {
        (Ok(bytes), Ok(read), Ok(mapped)) => {
            let contents = |file: &SafeTensors| to_bytes(file.iter(), file.metadata()).unwrap();
            assert_eq!(contents(&read), contents(&bytes));
            assert_eq!(contents(&mapped), contents(&bytes));
        }
        (Err(bytes), Err(read), Err(mapped)) => {
            assert_eq!(read.to_string(), format!("{}: {bytes}", path.display()));
            assert_eq!(mapped.to_string(), read.to_string());
        }
        _ => panic!("one reader accepts what another rejects"),
    }
}

/// Returns `true` if sizes overflow before a zero makes the product zero, which the safetensors crate
/// rejects.
fn wraps(sizes: &[usize]) -> bool {
    sizes.iter().try_fold(8, |product: usize, &size| product.checked_mul(size)).is_none()
}

/// The function that a fuzzer calls for indices.
fn fuzz_index(data: &[u8]) {
    let (index, peak) = peak_of(|| ShardIndex::from_bytes(data));
    assert!(peak <= HEAP.0 * data.len() + HEAP.1, "{peak} bytes of the heap for {}", data.len());
    for (_, file) in index.iter().flat_map(ShardIndex::iter) {
        let down = |part| matches!(part, std::path::Component::Normal(_));
        assert!(file.is_relative() && file.components().all(down) && !file.as_os_str().is_empty());
    }
}

/// Returns a valid file.
fn valid() -> Vec<u8> {
    let tensor = |sizes: &[i64], dtype| Tensor::ones(sizes, dtype).unwrap();
    let tensors = [
        ("a", tensor(&[2, 3], DType::F32)),
        ("b", tensor(&[5], DType::U8)),
        ("c", tensor(&[], DType::I64)),
        ("d", tensor(&[0, 4], DType::BF16)),
    ];
    to_bytes(tensors, &Metadata::from([("k".to_owned(), "v".to_owned())])).unwrap()
}

/// Generates sizes and offsets: mostly small, some at the edges of the number range.
fn number() -> impl Strategy<Value = u64> {
    const EDGES: [u64; 10] =
        [0, 1, 1 << 31, 1 << 32, 1 << 40, 1 << 61, (1 << 63) - 1, 1 << 63, u64::MAX - 8, u64::MAX];
    prop_oneof![20 => 0_u64..5, 1 => proptest::sample::select(&EDGES[..])]
}

/// The description of a tensor in a header: name, dtype, shape, and offsets, or `None` for the right ones.
type HeaderClaim = (String, &'static str, Vec<u64>, Option<(u64, u64)>);

fn claim() -> impl Strategy<Value = HeaderClaim> {
    let name = prop_oneof![30 => "[a-z]{1,2}", 1 => Just("__metadata__".to_owned())];
    let dtype = proptest::sample::select(&["U8", "BOOL", "F16", "F32", "C64", "I64", "F4", "X"][..]);
    let shape = proptest::collection::vec(number(), 0..4);
    (name, dtype, shape, proptest::option::weighted(0.1, (number(), number())))
}

/// Returns a file with this header, and as many bytes as it needs plus `more`.
fn said(claims: &[HeaderClaim], more: i64) -> Vec<u8> {
    let mut begin = 0_u64;
    let mut entries = Vec::new();
    for (name, dtype, shape, offsets) in claims {
        let size = match *dtype {
            "F16" => 2,
            "F32" => 4,
            "C64" | "I64" => 8,
            _ => 1,
        };
        let bytes = shape.iter().fold(size, |bytes: u64, &size| bytes.wrapping_mul(size));
        let (begin_said, end_said) = offsets.unwrap_or((begin, begin.wrapping_add(bytes)));
        begin = begin.wrapping_add(bytes);
        entries.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin_said},{end_said}]}}"#
        ));
    }
    let data = begin.min(2000).saturating_add_signed(more);
    super::file(&format!("{{{}}}", entries.join(",")), &vec![1; usize::try_from(data).unwrap()])
}

#[test]
fn a_header_of_nothing_but_shapes_stays_in_proportion() {
    let shape = "0,".repeat(20_000) + "0";
    let json = format!(r#"{{"a":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,0]}}}}"#);
    fuzz_one(&super::file(&json, &[]));
    let many = (0..2000)
        .map(|name| format!(r#""{name}":{{"dtype":"U8","shape":[],"data_offsets":[{name},{}]}}"#, name + 1));
    let json = format!("{{{}}}", many.collect::<Vec<_>>().join(","));
    fuzz_one(&super::file(&json, &[0; 2000]));
}

#[test]
fn every_cut_and_every_byte_of_a_file() {
    let valid = valid();
    fuzz_one(&valid);
    for at in 0..valid.len() {
        fuzz_one(&valid[..at]);
        for flip in [1, 0x20, 0x80, 0xff] {
            let mut damaged = valid.clone();
            damaged[at] ^= flip;
            fuzz_one(&damaged);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz_one(&data);
        fuzz_index(&data);
        let json = [&(data.len() as u64).to_le_bytes()[..], &data].concat();
        fuzz_one(&json);
    }

    #[test]
    fn damaged_files(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        end in proptest::option::weighted(0.3, any::<proptest::sample::Index>()),
        more in proptest::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut data = valid();
        for (at, byte) in changes {
            let at = at.index(data.len());
            data[at] = byte;
        }
        if let Some(end) = end {
            data.truncate(end.index(data.len()));
        }
        data.extend(more);
        fuzz_one(&data);
        #[cfg(not(miri))]
        fuzz_file(&data);
    }

    #[test]
    fn headers_that_say_anything(claims in proptest::collection::vec(claim(), 0..5), more in -1_i64..=1) {
        fuzz_one(&said(&claims, more));
    }

    #[test]
    fn true_headers(mut claims in proptest::collection::vec(claim(), 0..5)) {
        claims.iter_mut().for_each(|claim| claim.3 = None);
        fuzz_one(&said(&claims, 0));
        #[cfg(not(miri))]
        fuzz_file(&said(&claims, 0));
    }

    #[test]
    fn indices_that_say_anything(
        files in proptest::collection::vec(("[a-c]", "([.]{1,2}|[a-z]|/|\\\\){0,6}"), 0..5),
        size in "[0-9]{0,21}|null|-1|1e9|\"x\"",
    ) {
        let files: Vec<_> = files.iter().map(|(name, file)| format!("\"{name}\":{file:?}")).collect();
        let json = format!(r#"{{"metadata":{{"total_size":{size}}},"weight_map":{{{}}}}}"#, files.join(","));
        fuzz_index(json.as_bytes());
    }
}
