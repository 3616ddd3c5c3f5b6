//! Promotion and casts against PyTorch.

use bytemuck::{bytes_of, checked::pod_read_unaligned};
use orlop_core::{DType, Element, cast, dispatch, promote};
use serde_json::Value;

use crate::golden::{array, integers, json};

fn dtype(value: &Value, key: &str) -> DType {
    value[key].as_str().unwrap().parse().unwrap()
}

#[test]
fn promotion_of_all_pairs() {
    let golden = json("dtypes.json.gz");
    let pairs = golden["promote"].as_object().unwrap();
    assert_eq!(pairs.len(), DType::ALL.len().pow(2));
    for (pair, promoted) in pairs {
        let (a, b) = pair.split_once(',').unwrap();
        let ours = promote(a.parse().unwrap(), b.parse().unwrap());
        let ours = ours.map_or("error", DType::name);
        assert_eq!(ours, promoted.as_str().unwrap(), "{pair}");
    }
}

#[test]
fn casts_bit_for_bit() {
    let golden = json("dtypes.json.gz");
    let tables = array(&golden, "casts");
    assert_eq!(tables.len(), 24);
    let mut checked = 0;
    for table in tables {
        let (src, dst) = (dtype(table, "src"), dtype(table, "dst"));
        checked += dispatch!(src, S => dispatch!(dst, D => if table.get("src_bits").is_some() {
            check_bits::<S, D>(table)
        } else {
            check_values::<S, D>(table)
        }));
    }
    assert_eq!(checked, 12 * 432 + 5 * 65 + 7 * 64);
}

/// Checks a table of bit patterns, between float types.
fn check_bits<S: Element, D: Element>(table: &Value) -> usize {
    let (sources, expected) = (integers(table, "src_bits"), integers(table, "dst_bits"));
    assert_eq!(sources.len(), expected.len());
    for (&source, &expected) in sources.iter().zip(&expected) {
        let value: S = from_bits(source);
        let ours: D = cast(value);
        let theirs: D = from_bits(expected);
        // A NaN is unequal to itself, and its payload is not compared.
        #[expect(clippy::eq_op, reason = "a test for NaN that works for every float type")]
        let both_nan = ours != ours && theirs != theirs;
        assert!(
            both_nan || bytes_of(&ours) == bytes_of(&theirs),
            "{value:?} as {}: {ours:?}, PyTorch {theirs:?}",
            D::DTYPE
        );
    }
    sources.len()
}

/// Returns the element whose bits are the low bits of `bits`.
fn from_bits<T: Element>(bits: i64) -> T {
    pod_read_unaligned(&bits.to_le_bytes()[..size_of::<T>()])
}

/// Checks a table of values, with an integer type or bool on one side or both.
fn check_values<S: Element, D: Element>(table: &Value) -> usize {
    let (sources, expected) = (array(table, "src_values"), array(table, "dst_values"));
    assert_eq!(sources.len(), expected.len());
    for (source, expected) in sources.iter().zip(expected) {
        let ours: D = cast(from_json::<S>(source));
        let theirs: D = from_json(expected);
        assert_eq!(
            bytes_of(&ours),
            bytes_of(&theirs),
            "{source} as {}: {ours:?}, PyTorch {expected}",
            D::DTYPE
        );
    }
    sources.len()
}

/// Returns the element with this value, which is exactly representable.
fn from_json<T: Element>(value: &Value) -> T {
    match value {
        Value::Bool(value) => cast(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => cast(integer),
            None => cast(number.as_f64().unwrap()),
        },
        Value::String(text) => cast(text.parse::<f64>().unwrap()),
        _ => panic!("{value} is not a number"),
    }
}
