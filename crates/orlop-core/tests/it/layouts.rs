//! Predicates and strides of layouts against PyTorch.

use orlop_core::{Layout, MemoryFormat, Overlap, Result, Shape, Strides};
use serde_json::Value;

use crate::golden::{array, integers, json, text};

pub(crate) fn layout(value: &Value) -> Result<Layout> {
    let shape = Shape::new(&integers(value, "sizes"))?;
    let strides = Strides::for_shape(&shape, &integers(value, "strides"))?;
    Layout::new(shape, strides, value["offset"].as_u64().unwrap().try_into().unwrap())
}

fn strides(value: &Value, key: &str) -> Strides {
    Strides::new(&integers(value, key)).unwrap()
}

#[test]
fn predicates_of_every_view() {
    let programs = text("views.jsonl.gz");
    let mut views = 0;
    for line in programs.lines() {
        let program: Value = serde_json::from_str(line).unwrap();
        for out in array(&program, "ops").iter().filter_map(|op| op.get("out")) {
            let layout = layout(out).unwrap();
            let ours = [
                layout.is_contiguous(),
                layout.is_contiguous_in(MemoryFormat::ChannelsLast),
                layout.is_contiguous_in(MemoryFormat::ChannelsLast3d),
                layout.is_non_overlapping_and_dense(),
            ];
            let theirs = ["contiguous", "channels_last", "channels_last_3d", "dense"]
                .map(|predicate| out[predicate].as_bool().unwrap());
            assert_eq!(ours, theirs, "{out}");
            assert_ne!(layout.internal_overlap(), Overlap::TooHard, "{out}");
            views += 1;
        }
    }
    assert_eq!(views, 17057);
}

/// `contiguous(format)` gives the format's strides, and keeps a layout that has them already.
#[test]
fn strides_of_formats() {
    let programs = text("views.jsonl.gz");
    let mut conversions = 0;
    for line in programs.lines() {
        let program: Value = serde_json::from_str(line).unwrap();
        let mut input = Layout::contiguous(Shape::new(&integers(&program, "shape")).unwrap());
        for op in array(&program, "ops") {
            let Some(out) = op.get("out") else { continue };
            let output = layout(out).unwrap();
            if op["op"] == "contiguous" {
                let format = op["args"].get(0).map_or("contiguous", |name| name.as_str().unwrap());
                let format: MemoryFormat = format.parse().unwrap();
                if input.is_contiguous_in(format) {
                    assert_eq!(output, input, "{op}");
                } else {
                    assert_eq!(output.strides(), &input.strides_in(format).unwrap(), "{op}");
                }
                conversions += 1;
            }
            input = output;
        }
    }
    assert_eq!(conversions, 629 + 440 + 114 + 79);
}

#[test]
fn preserved_strides() {
    let golden = json("preserve.json.gz");
    let rows = golden.as_array().unwrap();
    assert_eq!(rows.len(), 400);
    for row in rows {
        let input = layout(row).unwrap();
        let preserved = input.preserved_strides();
        assert_eq!(preserved, strides(row, "empty_like"), "{row}");
        assert_eq!(preserved, strides(row, "clone"), "{row}");
        let contiguous =
            if input.is_contiguous() { input.strides().clone() } else { Strides::contiguous(input.shape()) };
        assert_eq!(contiguous, strides(row, "contiguous"), "{row}");
    }
}
