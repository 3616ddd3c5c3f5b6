//! Archives: round trips, errors, and the devices of loaded tensors.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use crate::cases::{TensorCase, cases, damages, elements, in_little_memory};
use crate::mock_device::{FAR, with_device};
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::interchange::NamedTensors;
use orlop_tensor::interchange::archive::{self, ArchiveError};
use orlop_tensor::{Error, Storage, Tensor, TensorOptions};
use proptest::prelude::*;
use std::ops::Range;

fn archive_error(error: Error) -> ArchiveError {
    match error {
        Error::Archive(error) => error,
        error => panic!("{error}"),
    }
}

fn refusal<T>(result: orlop_tensor::Result<T>) -> ArchiveError {
    archive_error(result.err().unwrap())
}

fn numbers(count: u8) -> Tensor {
    Tensor::from_slice(&(0..count).map(f32::from).collect::<Vec<_>>()).unwrap()
}

fn back_again<'a>(tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> NamedTensors {
    archive::from_bytes(&archive::to_bytes(tensors).unwrap()).unwrap()
}

#[test]
fn views_survive() {
    let base = numbers(12).view([3, 4]).unwrap();
    let (transposed, column) = (base.t().unwrap(), base.select(1, 2).unwrap());
    let wide = base.select(0, 0).unwrap().expand([5, 4]).unwrap();
    let loaded = back_again([("t", &transposed), ("column", &column), ("wide", &wide)]);
    assert_eq!(loaded.names().collect::<Vec<_>>(), ["t", "column", "wide"]);
    for (tensor, name) in [(&transposed, "t"), (&column, "column"), (&wide, "wide")] {
        let again = loaded.get(name).unwrap();
        assert_eq!(again.layout(), tensor.layout());
        assert_eq!(elements(again), elements(tensor));
        assert!(again.is_alias_of(loaded.get("t").unwrap()));
    }
    // The base is not among them, and its storage is loaded completely.
    let base = loaded.get("column").unwrap().storage().unwrap();
    assert_eq!(base.nbytes(), 48);
    loaded.get("t").unwrap().fill_(7.0).unwrap();
    assert_eq!(loaded.get("column").unwrap().to_vec::<f32>().unwrap(), [7.0; 3]);
    assert_eq!(base.use_count(), 3);
}

#[test]
fn a_shared_storage_is_written_once() {
    let base = Tensor::zeros([100_000], DType::U8).unwrap();
    let one = archive::to_bytes([("a", &base)]).unwrap().len();
    let halves = [("a", base.narrow(0, 0, 50_000).unwrap()), ("b", base.narrow(0, 50_000, 50_000).unwrap())];
    assert!(archive::to_bytes(halves).unwrap().len() < one + 1000);
    // A tensor over another storage gets its own.
    let copies = [("a", base.clone()), ("b", base.lazy_clone().unwrap())];
    let loaded = archive::from_bytes(&archive::to_bytes(copies).unwrap()).unwrap();
    assert!(!loaded.get("a").unwrap().is_alias_of(loaded.get("b").unwrap()));
}

#[test]
fn a_tensor_from_a_pool_leaves_the_pool_behind() {
    let pool = Storage::new(1 << 20, &TensorOptions::new().zeroed()).unwrap();
    let bind = |offset, count: usize| Tensor::bind(&pool, offset, [count], DType::F64).unwrap();
    let (first, inside, apart) = (bind(40_000, 100), bind(40_200, 10), bind(200, 3));
    inside.fill_(1.5).unwrap();
    let bytes = archive::to_bytes([("first", &first), ("inside", &inside), ("apart", &apart)]).unwrap();
    assert!(bytes.len() < 3000);
    let loaded = archive::from_bytes(&bytes).unwrap();
    let get = |name| loaded.get(name).unwrap();
    assert!(get("first").is_alias_of(get("inside")) && !get("first").is_alias_of(get("apart")));
    get("first").fill_(2.5).unwrap();
    assert_eq!(get("inside").to_vec::<f64>().unwrap(), [2.5; 10]);
    assert_eq!(get("apart").as_slice::<f64>().unwrap()[..], [0.0; 3]);
    assert_eq!(get("inside").storage().unwrap().nbytes(), 80);
}

#[test]
fn kinds_undefined_and_nothing() {
    let options = TensorOptions::from(DType::BF16).kind(MemoryKind::Persistent);
    let (weights, scalar) =
        (Tensor::ones([3], options).unwrap(), Tensor::full([0usize; 0], 7, DType::I64).unwrap());
    let empty = Tensor::empty([4, 0, 2], DType::C128).unwrap();
    let nothing = Tensor::undefined();
    let loaded = back_again([("", &nothing), ("weights", &weights), ("scalar", &scalar), ("empty", &empty)]);
    assert!(!loaded.get("").unwrap().is_defined());
    let weights = loaded.get("weights").unwrap();
    assert_eq!((weights.memory_kind(), weights.dtype()), (MemoryKind::Persistent, DType::BF16));
    assert_eq!(loaded.get("scalar").unwrap().item::<i64>().unwrap(), 7);
    assert_eq!(loaded.get("empty").unwrap().sizes(), [4, 0, 2]);
    assert!(back_again([]).is_empty());
}

#[test]
fn files_are_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tensors.orlop");
    let tensor = numbers(6);
    archive::save(&path, [("a", &tensor)]).unwrap();
    let refused = refusal(archive::save(&path, [("b", &tensor); 2]));
    assert!(matches!(refused, ArchiveError::DuplicateName { name } if *name == *"b"));
    {
        let _writing = tensor.as_mut_slice::<f32>().unwrap();
        assert!(matches!(archive::save(&path, [("b", &tensor)]), Err(Error::Borrowed { .. })));
    }
    let mut outside = tensor.clone();
    outside.set_shape([7]).unwrap();
    let refused = refusal(archive::save(&path, [("a", &tensor), ("b", &outside)]));
    assert!(matches!(refused, ArchiveError::View { name, .. } if *name == *"b"));
    assert_eq!(archive::load(&path).unwrap().get("a").unwrap().to_vec::<f32>().unwrap()[5], 5.0);
    let error = archive::load(&path).unwrap().tensor("alpha").map(drop).unwrap_err().to_string();
    assert_eq!(error, format!("{} has no tensor `alpha`", path.display()));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert!(matches!(refusal(archive::load(folder.path().join("none"))), ArchiveError::Io { .. }));
}

/// More than the size of the host buffer.
#[test]
fn devices_are_kept() {
    let here = Tensor::arange(0.0, 5_000_000.0, 1.0, DType::F32).unwrap();
    let mut bytes = Vec::new();
    with_device(|_| {
        let there = here.to_device(FAR).unwrap();
        let cut = there.narrow(0, 10, 3).unwrap();
        bytes = archive::to_bytes([("there", &there), ("cut", &cut), ("here", &here)]).unwrap();
        let loaded = archive::from_bytes(&bytes).unwrap();
        let (there, cut) = (loaded.get("there").unwrap(), loaded.get("cut").unwrap());
        assert_eq!((there.device(), loaded.get("here").unwrap().device()), (FAR, Device::CPU));
        assert!(there.is_alias_of(cut));
        assert_eq!(cut.to_vec::<f32>().unwrap(), [10.0, 11.0, 12.0]);
        assert!(there.to_vec::<f32>().unwrap() == here.to_vec::<f32>().unwrap());
    });
    let refused = refusal(archive::from_bytes(&bytes));
    assert!(refused.to_string().contains("map_device"), "{refused}");
    assert!(matches!(refused, ArchiveError::NoAllocator { device: FAR, kind: MemoryKind::Default }));
    let loaded = archive::from_bytes_with(&bytes, |_| Device::CPU).unwrap();
    assert!(loaded.iter().all(|(_, tensor)| tensor.device().is_cpu()));
    assert_eq!(loaded.get("cut").unwrap().to_vec::<f32>().unwrap(), [10.0, 11.0, 12.0]);
}

#[test]
fn host_kinds_stay_on_the_host() {
    let pinned = TensorOptions::from(DType::U8).kind(MemoryKind::HostPinned);
    let bytes = archive::to_bytes([("a", Tensor::ones([4], pinned).unwrap())]).unwrap();
    assert_eq!(archive::from_bytes(&bytes).unwrap().get("a").unwrap().memory_kind(), MemoryKind::HostPinned);
    with_device(|_| {
        let there = archive::from_bytes_with(&bytes, |_| FAR).unwrap();
        let there = there.get("a").unwrap();
        assert_eq!((there.device(), there.memory_kind()), (FAR, MemoryKind::Default));
        assert_eq!(there.to_vec::<u8>().unwrap(), [1; 4]);
    });
    let changed = with_header(&bytes, |header| header.replace("\"cpu\"", "\"cuda:0\""));
    let refused = archive::from_bytes(&changed).err().unwrap();
    assert!(matches!(refused, Error::Layout(orlop_core::Error::HostKindOnDevice { .. })), "{refused}");
}

/// Returns the header, and everything after it.
fn split(bytes: &[u8]) -> (String, &[u8]) {
    let length = usize::try_from(u64::from_le_bytes(bytes[16..24].try_into().unwrap())).unwrap();
    let header = String::from_utf8(bytes[24..24 + length].to_vec()).unwrap();
    (header, &bytes[(24 + length).next_multiple_of(64)..])
}

/// Replaces the header of an archive, with the right checksum and length.
fn with_header(bytes: &[u8], change: impl FnOnce(String) -> String) -> Vec<u8> {
    let (header, data) = split(bytes);
    join(change(header).as_bytes(), data)
}

fn join(header: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = [b"\x89orlop\r\n\x01\0\0\0", &crc32fast::hash(header).to_le_bytes()[..]].concat();
    bytes.extend(u64::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header);
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    bytes.extend(data);
    bytes
}

#[test]
fn malformed_headers_are_errors() {
    let pool = Storage::new(100, &TensorOptions::new().zeroed()).unwrap();
    let part = Tensor::bind(&pool.slice(0..40).unwrap(), 0, [2, 5], DType::F32).unwrap();
    let whole = Tensor::from_storage(pool, part.layout().clone(), DType::F32).unwrap();
    let bytes = archive::to_bytes([("part", &part), ("whole", &whole)]).unwrap();
    let changed = |from: &str, to: &str| {
        let changed = with_header(&bytes, |header| {
            assert!(header.contains(from), "{header}");
            header.replacen(from, to, 1)
        });
        refusal(archive::from_bytes(&changed))
    };
    let view = |error: ArchiveError| matches!(error, ArchiveError::View { name, .. } if *name == *"part");
    assert!(view(changed("[2,5]", "[3,5]")));
    assert!(view(changed("[2,5]", "[2,5,1]")));
    assert!(view(changed("[5,1]", "[6,1]")));
    assert!(view(changed("[2,5]", "[4294967296,4294967296]")));
    assert!(view(changed("[0,40]", "[40,0]")));
    assert!(view(changed("[0,40]", "[61,101]")));
    assert!(view(changed("\"float32\"", "\"float64\"")));
    assert!(matches!(changed("\"float32\"", "\"decimal\""), ArchiveError::Header { .. }));
    assert!(matches!(changed("\"cpu\"", "\"cpu:7\""), ArchiveError::Header { .. }));
    assert!(matches!(changed("\"little\"", "\"big\""), ArchiveError::ByteOrder));
    assert!(matches!(
        changed("\"storage\":0", "\"storage\":1"),
        ArchiveError::NoStorage { storage: 1, storages: 1, .. }
    ));
    assert!(matches!(changed("\"part\"", "\"whole\""), ArchiveError::DuplicateName { .. }));
    assert!(matches!(changed("\"bytes\":100", "\"bytes\":10000"), ArchiveError::Truncated { .. }));
    assert!(matches!(
        changed("\"bytes\":100", "\"bytes\":18446744073709551615"),
        ArchiveError::Misplaced { .. }
    ));
    assert!(matches!(changed("\"bytes\":100", "\"bytes\":1"), ArchiveError::TrailingBytes { .. }));
    assert!(matches!(changed("\"bytes\":100", "\"bytes\":-1"), ArchiveError::Header { .. }));
    assert!(matches!(
        changed("\"offset\":0}]", "\"offset\":64}]"),
        ArchiveError::Misplaced { storage: 0, actual: 64 }
    ));
    assert!(matches!(changed("{\"byte_order\"", "{\"more\":0,\"byte_order\""), ArchiveError::Header { .. }));
}

#[test]
fn damage() {
    let bytes = archive::to_bytes([("a", &numbers(40))]).unwrap();
    let with = |place: usize| {
        let mut bytes = bytes.clone();
        bytes[place] ^= 0x10;
        refusal(archive::from_bytes(&bytes))
    };
    assert!(matches!(with(0), ArchiveError::NotAnArchive));
    assert!(matches!(with(8), ArchiveError::UnknownVersion { found: 17, known: 1 }));
    assert!(matches!(with(12), ArchiveError::HeaderChecksum));
    assert!(matches!(with(23), ArchiveError::Truncated { .. }));
    assert!(matches!(with(30), ArchiveError::HeaderChecksum));
    assert!(matches!(with(bytes.len() - 197), ArchiveError::Padding));
    assert!(matches!(with(bytes.len() - 196), ArchiveError::Checksum { storage: 0 }));
    assert!(matches!(with(bytes.len() - 5), ArchiveError::Padding));
    assert!(matches!(with(bytes.len() - 1), ArchiveError::Checksum { storage: 0 }));
    // Every byte matters.
    (0..bytes.len()).for_each(|place| drop(with(place)));
    for length in 0..bytes.len() {
        let refused = refusal(archive::from_bytes(&bytes[..length]));
        assert!(
            matches!(refused, ArchiveError::NotAnArchive | ArchiveError::Truncated { .. }),
            "{length}: {refused}"
        );
    }
    let longer = [&bytes[..], b"\0"].concat();
    assert!(matches!(refusal(archive::from_bytes(&longer)), ArchiveError::TrailingBytes { .. }));
}

/// Generates tensors over three storages, or parts of them.
fn shared() -> impl Strategy<Value = Vec<(TensorCase, usize, Option<usize>)>> {
    let part = prop::option::of(prop_oneof![0usize..64, 0usize..PART]);
    prop::collection::vec((cases(&DType::ALL), 0usize..3, part), 0..6)
}

/// The bytes of a part: enough for any of the cases.
const PART: usize = 20_000;

fn build(shared: &[(TensorCase, usize, Option<usize>)]) -> Vec<(String, Tensor, Range<usize>)> {
    let pools: Vec<Storage> = (1..4u8)
        .map(|step| {
            let pool = Storage::new(2 * PART, &TensorOptions::new()).unwrap();
            let mut byte = 0u8;
            pool.write().unwrap().fill_with(|| {
                byte = byte.wrapping_mul(5).wrapping_add(step);
                byte
            });
            pool
        })
        .collect();
    let tensor = |(index, (case, pool, start)): (usize, &(TensorCase, usize, Option<usize>))| {
        let range = start.map_or(0..2 * PART, |start| start..start + PART);
        let storage = match start {
            Some(_) => pools[*pool].slice(range.clone()).unwrap(),
            None => pools[*pool].clone(),
        };
        (format!("{index}"), Tensor::from_storage(storage, case.layout(), case.dtype()).unwrap(), range)
    };
    shared.iter().enumerate().map(tensor).collect()
}

fn named(tensors: &[(String, Tensor, Range<usize>)]) -> impl Iterator<Item = (&str, &Tensor)> {
    tensors.iter().map(|(name, tensor, _)| (&**name, tensor))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn round_trip(shared in shared()) {
        let tensors = build(&shared);
        let bytes = archive::to_bytes(named(&tensors)).unwrap();
        let loaded = archive::from_bytes(&bytes).unwrap();
        prop_assert_eq!(loaded.len(), tensors.len());
        let address = |tensor: &Tensor| tensor.storage().unwrap().as_ptr().unwrap().addr();
        for ((name, tensor, range), (name_again, again)) in tensors.iter().zip(&loaded) {
            prop_assert_eq!(&**name, name_again);
            prop_assert_eq!((again.dtype(), again.layout()), (tensor.dtype(), tensor.layout()));
            let (bytes, bytes_again) = (tensor.storage().unwrap().read(), again.storage().unwrap().read());
            prop_assert!(*bytes.unwrap() == *bytes_again.unwrap());
            prop_assert!(address(again) % 64 == 0 || address(again) % 64 == address(tensor) % 64);
            for ((_, other, other_range), (_, other_again)) in tensors.iter().zip(&loaded) {
                let overlap = range.start < other_range.end && other_range.start < range.end;
                if tensor.is_alias_of(other) && overlap {
                    prop_assert!(again.is_alias_of(other_again));
                    let distance = address(other).wrapping_sub(address(tensor));
                    prop_assert_eq!(address(other_again).wrapping_sub(address(again)), distance);
                }
                prop_assert!(tensor.is_alias_of(other) || !again.is_alias_of(other_again));
            }
        }
        prop_assert_eq!(archive::to_bytes(&loaded).unwrap(), bytes);
    }

    #[test]
    fn damaged_files_are_refused_or_read(shared in shared(), damage in damages()) {
        let bytes = damage.of(&archive::to_bytes(named(&build(&shared))).unwrap());
        let _ = in_little_memory(|| archive::from_bytes(&bytes));
    }

    #[test]
    fn whatever_headers_say_tensors_are_inside(shared in shared(), damage in damages()) {
        let bytes = archive::to_bytes(named(&build(&shared))).unwrap();
        let (header, data) = split(&bytes);
        let changed = join(&damage.of(header.as_bytes()), data);
        if let Ok(loaded) = in_little_memory(|| archive::from_bytes(&changed)) {
            for (_, tensor) in loaded.iter().filter(|(_, tensor)| tensor.is_defined()) {
                let storage = tensor.storage().unwrap();
                prop_assert!(tensor.layout().check_within(storage.nbytes(), tensor.itemsize()).is_ok());
            }
        }
    }
}
