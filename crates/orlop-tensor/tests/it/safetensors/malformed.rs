//! Malformed files, one flaw at a time, and their errors.

use super::{file, flaw};
use orlop_tensor::interchange::safetensors::{Flaw, SafeTensors};

/// Returns the flaw of a file with this header and `data` bytes of data.
fn flaw_of(json: &str, data: usize) -> Flaw {
    let bytes = file(json, &vec![0; data]);
    let flaw = flaw(SafeTensors::from_bytes(&bytes));
    #[cfg(not(miri))]
    same_from_files(&bytes, &flaw);
    flaw
}

/// Mapping and reading the file give the same error.
#[cfg(not(miri))]
fn same_from_files(bytes: &[u8], flaw: &Flaw) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lie");
    std::fs::write(&path, bytes).unwrap();
    let error = format!("{}: {flaw}", path.display());
    assert_eq!(SafeTensors::read(&path).unwrap_err().to_string(), error);
    // SAFETY: nothing else uses the file.
    assert_eq!(unsafe { SafeTensors::map(&path) }.unwrap_err().to_string(), error);
}

fn entry(name: &str, dtype: &str, shape: &str, begin: usize, end: usize) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

#[test]
fn lengths_of_headers() {
    let error = |bytes: &[u8]| flaw(SafeTensors::from_bytes(bytes));
    for bytes in 0..8 {
        assert!(matches!(error(&[0; 8][..bytes]), Flaw::TooShort { bytes: error } if error == bytes as u64));
    }
    let beyond = error(&[9, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']);
    assert!(matches!(beyond, Flaw::HeaderTruncated { header_bytes: 9, file_bytes: 10 }));
    for length in [100_000_001, 1 << 40, u64::MAX - 8, u64::MAX - 7, u64::MAX] {
        let huge = error(&[&length.to_le_bytes()[..], b"{}"].concat());
        assert!(matches!(huge, Flaw::HeaderTooLarge { bytes, limit: 100_000_000 } if bytes == length));
    }
    let large = error(&[&100_000_000_u64.to_le_bytes()[..], b"{}"].concat());
    assert!(matches!(large, Flaw::HeaderTruncated { header_bytes: 100_000_000, file_bytes: 10 }));
}

#[test]
fn headers_that_are_none() {
    let a = entry("a", "U8", "[1]", 0, 1);
    let not_closed = format!("{{{a}");
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    for json in [
        "",
        " ",
        "[]",
        "7",
        "null",
        "{]",
        "{} x",
        &not_closed,
        &deep,
        "{\"a\":1}",
        r#"{"a":{"dtype":"U8","shape":[1]}}"#,
        r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}"#,
        r#"{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}"#,
        r#"{"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}}"#,
        r#"{"a":{"dtype":"U8","shape":"[1]","data_offsets":[0,1]}}"#,
        r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}"#,
        r#"{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}"#,
        r#"{"__metadata__":{"a":1}}"#,
        r#"{"__metadata__":7}"#,
    ] {
        let flaw = flaw_of(json, 1);
        assert!(matches!(flaw, Flaw::Json { .. }), "{json}: {flaw}");
    }
    let bytes = [&3_u64.to_le_bytes()[..], b"{\"\xff"].concat();
    assert!(matches!(flaw(SafeTensors::from_bytes(&bytes)), Flaw::Json { .. }));
    assert!(matches!(flaw_of("{}", 1), Flaw::Trailing { end: 0, data_bytes: 1 }));
}

#[test]
fn headers_that_are_some() {
    // Null for no metadata, unknown fields, surrounding spaces.
    let a = r#""a":{"dtype":"U8","later":[{}],"shape":[1],"data_offsets":[0,1]}"#;
    for json in [&format!("{{{a}}}"), &format!("  {{{a},\"__metadata__\":null}}  ")] {
        assert!(SafeTensors::from_bytes(&file(json, &[1])).is_ok(), "{json}");
    }
}

#[test]
fn names_twice() {
    let a = entry("a", "U8", "[1]", 0, 1);
    let again = flaw_of(&format!("{{{a},{a}}}"), 1);
    assert!(matches!(again, Flaw::Duplicate { name } if &*name == "a"));
    // The same name with an escape.
    let escaped = flaw_of(&format!("{{{a},{}}}", entry("\\u0061", "U8", "[1]", 1, 2)), 2);
    assert!(matches!(escaped, Flaw::Duplicate { name } if &*name == "a"));
    let metadata = flaw_of(r#"{"__metadata__":{"a":"b"},"__metadata__":{}}"#, 0);
    assert!(matches!(metadata, Flaw::Duplicate { name } if &*name == "__metadata__"));
    let text = flaw_of(r#"{"__metadata__":{"a":"b","a":"b"}}"#, 0);
    assert!(matches!(text, Flaw::Duplicate { name } if &*name == "a"));
}

#[test]
fn dtypes_that_are_not_here() {
    for name in ["F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F128", "f32", ""] {
        let error = flaw_of(&format!("{{{}}}", entry("a", name, "[8]", 0, 4)), 4);
        assert!(matches!(error, Flaw::DType { tensor, dtype } if &*tensor == "a" && &*dtype == name));
    }
}

#[test]
fn shapes_against_bytes() {
    let error = flaw_of(&format!("{{{}}}", entry("a", "F32", "[2,3]", 0, 20)), 20);
    assert!(matches!(error, Flaw::Length { expected: 24, actual: 20, .. }));
    let error = flaw_of(&format!("{{{}}}", entry("a", "F32", "[0]", 0, 20)), 20);
    assert!(matches!(error, Flaw::Length { expected: 0, actual: 20, .. }));
    let error = flaw_of(&format!("{{{}}}", entry("a", "F32", "[]", 0, 0)), 0);
    assert!(matches!(error, Flaw::Length { expected: 4, actual: 0, .. }));
    for shape in [
        "[4294967296,4294967296]",
        "[9223372036854775808]",
        "[18446744073709551615,2]",
        "[2305843009213693952]",
    ] {
        let error = flaw_of(&format!("{{{}}}", entry("a", "F64", shape, 0, 8)), 8);
        assert!(matches!(error, Flaw::Shape { .. }), "{error}");
    }
    let error = flaw_of(&format!("{{{}}}", entry("a", "U8", "[4]", 4, 0)), 4);
    assert!(matches!(error, Flaw::Reversed { begin: 4, end: 0, .. }));
}

#[test]
fn offsets_against_each_other() {
    let of = |entries: &[String], data| flaw_of(&format!("{{{}}}", entries.join(",")), data);
    let (a, b) = (entry("a", "U8", "[4]", 0, 4), |begin| entry("b", "U8", "[4]", begin, begin + 4));
    let error = of(&[a.clone(), b(3)], 7);
    let text = "tensor `b` begins at byte 3, before `a` ends at byte 4";
    assert_eq!((matches!(error, Flaw::Overlap { .. }), error.to_string().as_str()), (true, text));
    assert!(matches!(of(&[a.clone(), b(0)], 4), Flaw::Overlap { begin: 0, previous_end: 4, .. }));
    assert!(matches!(of(&[a.clone(), b(5)], 9), Flaw::Hole { hole: 4, begin: 5, .. }));
    assert!(matches!(of(&[b(5), a.clone()], 9), Flaw::Hole { hole: 4, begin: 5, .. }));
    assert!(matches!(of(&[b(1)], 5), Flaw::Hole { hole: 0, begin: 1, .. }));
    assert!(matches!(of(std::slice::from_ref(&a), 3), Flaw::Truncated { end: 4, data_bytes: 3, .. }));
    assert!(matches!(of(std::slice::from_ref(&a), 5), Flaw::Trailing { end: 4, data_bytes: 5 }));
    // An empty tensor in the middle of another.
    let nothing = entry("n", "U8", "[0]", 2, 2);
    assert!(matches!(of(&[a.clone(), nothing], 4), Flaw::Overlap { begin: 2, .. }));
    let nothing =
        [entry("n", "U8", "[0]", 4, 4), entry("m", "F64", "[0,9]", 4, 4), a, entry("l", "U8", "[0]", 0, 0)];
    assert!(SafeTensors::from_bytes(&file(&format!("{{{}}}", nothing.join(",")), &[0; 4])).is_ok());
}

#[test]
fn sums_of_offsets_do_not_wrap() {
    // Four quarters of the number range: the end of the last is the start of the first.
    let quarter = 1_u64 << 62;
    let whole = [0, quarter, 2 * quarter, 3 * quarter].map(|begin| {
        let end = begin.wrapping_add(quarter);
        format!(r#""{begin}":{{"dtype":"U8","shape":[{quarter}],"data_offsets":[{begin},{end}]}}"#)
    });
    assert!(matches!(flaw_of(&format!("{{{}}}", whole.join(",")), 0), Flaw::Reversed { .. }));
    let end = u64::MAX;
    let last = format!(r#""z":{{"dtype":"U8","shape":[1],"data_offsets":[{},{end}]}}"#, end - 1);
    assert!(matches!(flaw_of(&format!("{{{},{last}}}", whole[..3].join(",")), 0), Flaw::Truncated { .. }));
}
