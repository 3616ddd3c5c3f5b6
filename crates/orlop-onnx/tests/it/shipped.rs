//! The models in `testdata/onnx`, whole and damaged.

use super::testdata;
use orlop_onnx::{OnnxError, OnnxReader};
use orlop_plan::{MinPeak, Planner, SearchBudget, verify};
use proptest::prelude::*;

const NAMES: [&str; 4] = ["bert_base_s128", "mobilenet_v3_large_b1", "resnet50_b8", "vit_b16_b4"];

fn file(name: &str) -> Vec<u8> {
    testdata(&format!("onnx/{name}.onnx"))
}

#[test]
fn shipped_models_have_plans() {
    // Nodes, bytes of the weights, and the peak of the live bytes.
    let expected = [
        (368, 435_256_388, 2_424_832),
        (140, 21_805_120, 4_014_080),
        (122, 102_015_680, 57_802_752),
        (476, 346_088_676, 17_134_272),
    ];
    for (name, (nodes, weights, peak)) in NAMES.into_iter().zip(expected) {
        let model = OnnxReader::new().read(&file(name)).expect(name);
        assert_eq!((model.graph.node_count(), model.weight_bytes), (nodes, weights), "{name}");
        let given = model.graph.lifetimes(&model.graph.given_order()).expect(name);
        assert_eq!(given.problem().lower_bound(), peak, "{name}");
        let plan = Planner::new().budget(SearchBudget::iterations(100)).plan(given.problem());
        verify(given.problem(), &plan).expect(name);
        assert!(plan.ratio() <= 1.0001, "{name}: {}", plan.verdict());
        assert!(model.value_bytes > 5 * peak, "{name}");
        let order = MinPeak::new().order(&model.graph);
        assert!(model.graph.lifetimes(&order).expect(name).problem().lower_bound() <= peak, "{name}");
    }
}

#[test]
fn a_cut_file_is_refused() {
    for name in NAMES {
        let file = file(name);
        for end in [0, 1, 10, file.len() / 2, file.len() - 1] {
            assert!(OnnxReader::new().read(&file[..end]).is_err(), "{name}, {end} bytes");
        }
    }
    assert_eq!(OnnxReader::new().read(b"").unwrap_err(), OnnxError::NoGraph);
}

proptest! {
    #[test]
    fn damaged_files_do_no_harm(
        name in 0..NAMES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut file = file(NAMES[name]);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok(model) = OnnxReader::new().read(&file)
            && let Ok(lifetimes) = model.graph.lifetimes(&model.graph.given_order())
        {
            let plan = Planner::new().plan(lifetimes.problem());
            prop_assert!(verify(lifetimes.problem(), &plan).is_ok());
        }
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _read = OnnxReader::new().read(&bytes);
    }
}
