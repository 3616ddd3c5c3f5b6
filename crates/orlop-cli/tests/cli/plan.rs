//! `orlop plan`: graphs, problems and recordings in; offsets, verdicts and pages out.

use super::{Folder, complaint, orlop, shipped, stdout, testdata, unwrapped};
use orlop::lab::plan::PlanFile;
use serde_json::{Value, json};
use std::fs;

const MODELS: [&str; 4] = ["bert_base_s128", "mobilenet_v3_large_b1", "resnet50_b8", "vit_b16_b4"];

fn model(name: &str) -> String {
    testdata().join(format!("onnx/{name}.onnx.gz")).display().to_string()
}

fn problem(name: &str) -> String {
    testdata().join(format!("plan/{name}.csv.gz")).display().to_string()
}

fn planned(arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["plan", "--json"].iter().chain(arguments).copied().collect();
    serde_json::from_str(&stdout(&orlop(&all))).expect("an object")
}

/// A model of one node, whose values have the shape `[batch, 256]`, in ONNX's encoding.
fn symbolic() -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("less than 128 bytes");
        [&[number << 3 | 2, length][..], bytes].concat()
    }
    let float = [8, 1];
    let dims = [field(1, &field(2, b"batch")), field(1, &[8, 128, 2])].concat();
    let of = field(1, &[&float[..], &field(2, &dims)].concat());
    let value = |number, name: &[u8]| field(number, &[field(1, name), field(2, &of)].concat());
    let node = field(1, &[field(1, b"x"), field(2, b"y"), field(4, b"Conv")].concat());
    field(7, &[node, value(11, b"x"), value(12, b"y")].concat())
}

#[test]
fn shipped_models_are_planned_within_a_thousandth_of_the_bound() {
    for name in MODELS {
        let plan = planned(&[&model(name)]);
        let number = |field: &str| plan[field].as_u64().expect(field);
        assert!(number("peak") as f64 <= number("bound") as f64 * 1.001, "{name}: {}", plan["verdict"]);
        assert!(plan["gap"].as_f64().is_some_and(|gap| (0.0..=0.001).contains(&gap)), "{name}");
        assert!(plan["ms"].as_f64() >= plan["read_ms"].as_f64() && plan["read_ms"].is_f64(), "{name}");
        let without = &plan["without_plan"];
        assert!(without["sum"].as_u64() > Some(5 * number("peak")), "{name}: {without}");
        assert!(without["torch"].as_u64() >= Some(number("bound")), "{name}: {without}");
        assert_eq!(
            (&plan["source"], &plan["order"], &plan["given"]),
            (&json!("onnx"), &json!("given"), &Value::Null)
        );
        let file: PlanFile = serde_json::from_value(plan).expect(name);
        file.verify().expect(name);
    }
}

#[test]
fn a_capacity_fits_or_does_not() {
    let folder = Folder::with(&[("two.csv", "id,lower,upper,size\na,0,2,100\nb,1,3,50\n")]);
    let path = folder.path("two.csv");
    let verdict = |capacity: &str| planned(&[&path, "--capacity", capacity])["capacity"].clone();
    assert_eq!(verdict("1KiB"), json!({"bytes": 1024, "verdict": "fits"}));
    let infeasible = "infeasible: at least 22 bytes are missing";
    let witness = json!({"time": 1, "buffers": [0, 1], "bytes": 150});
    assert_eq!(verdict("128"), json!({"bytes": 128, "verdict": infeasible, "witness": witness}));
    let text = stdout(&orlop(&["plan", &path, "--capacity", "128"]));
    assert!(
        text.contains(&format!("In 128 B: {infeasible}.\nAt 1, 2 buffers are live that need 150 B:\n")),
        "{text}"
    );
    assert!(text.contains("  100 B a\n  50 B b\n"), "{text}");
    assert!(complaint(&orlop(&["plan", &path, "--capacity", "much"]), 2).contains("much"));
}

#[test]
fn gaps_and_blocks_of_limited_size_are_planned_and_checked() {
    let table = "id,lower,upper,size,gaps\na,0,9,100,2-6\nb,3,5,100,\nc,0,9,100,\n";
    let folder = Folder::with(&[("gaps.csv", table)]);
    let (path, written) = (folder.path("gaps.csv"), folder.path("plan.json"));
    let plan = planned(&[&path]);
    assert_eq!((&plan["peak"], &plan["verdict"]), (&json!(200), &json!("optimal")));
    assert_eq!(plan["buffers"][0]["gaps"], json!([{"start": 2, "end": 6}]));
    let text = stdout(&orlop(&["plan", &path, "--block-limit", "150", "-o", &written]));
    assert!(text.contains("In 2 blocks of at most 150 B: 100 B, 100 B.\n"), "{text}");
    assert!(stdout(&orlop(&["plan", "--verify", &written])).contains("a valid plan of 3 buffers in 250 B"));
    // Without the gap, two buffers share bytes.
    let text = fs::read_to_string(&written).expect("a plan");
    fs::write(&written, text.replace("\"end\": 6", "\"end\": 4")).expect("a folder to write to");
    assert!(complaint(&orlop(&["plan", "--verify", &written]), 1).contains("share the bytes"));
    let too_small = complaint(&orlop(&["plan", &path, "--block-limit", "99"]), 1);
    assert!(too_small.contains("not in one block of 99 bytes"), "{too_small}");
}

/// Blocks without buffers take no memory and no time, however many there are below a fixed buffer.
#[test]
fn blocks_below_a_high_offset_are_not_listed() {
    for offset in [1 << 40, 9_223_372_036_854_775_800_u64] {
        let table = format!("lower,upper,size,offset\n0,1,1,{offset}\n0,1,1,\n");
        let folder = Folder::with(&[("high.csv", &table)]);
        let text = stdout(&orlop(&["plan", &folder.path("high.csv"), "--block-limit", "1"]));
        assert!(text.contains("In 2 blocks of at most 1 B: 1 B, 1 B.\n"), "{text}");
    }
    let many = format!("lower,upper,size\n{}", "0,1,1\n".repeat(10));
    let folder = Folder::with(&[("many.csv", &many)]);
    let text = unwrapped(&orlop(&["plan", &folder.path("many.csv"), "--block-limit", "1"]));
    let sizes = "1 B, ".repeat(8);
    assert!(text.contains(&format!("In 10 blocks of at most 1 B: {sizes}and 2 others.\n")), "{text}");
}

#[test]
fn buffers_are_divided_among_memories() {
    let table = "id,lower,upper,size,accesses,spaces\na,0,2,60,,\nb,1,3,50,2,\nc,2,4,40,,dram\n";
    let folder = Folder::with(&[("spaces.csv", table)]);
    let (path, written) = (folder.path("spaces.csv"), folder.path("plan.json"));
    let memories = ["plan", &path, "--space", "sram=100", "--space", "dram=1MiB@10"];
    let plan: Value =
        serde_json::from_str(&stdout(&orlop(&[&memories[..], &["--json"]].concat()))).expect("JSON");
    assert_eq!((&plan["cost"], &plan["verdict"]), (&json!(60 * 10 + 40 * 10), &json!("optimal")));
    assert_eq!(plan["spaces"][0]["indices"], json!([1]));
    let text = stdout(&orlop(&[&memories[..], &["-o", &written]].concat()));
    assert!(text.contains("The cost is 1000: optimal.\n") && text.contains("3 offsets, verified"), "{text}");
    let changed = fs::read_to_string(&written).expect("a plan").replace("\"cost\": 1000", "\"cost\": 999");
    fs::write(&written, changed).expect("a folder to write to");
    let wrong = complaint(&orlop(&["plan", "--verify", &written]), 1);
    assert!(wrong.contains("the cost is 1000"), "{wrong}");
    assert!(complaint(&orlop(&["plan", &path]), 2).contains("--space"));
    assert!(complaint(&orlop(&["plan", &path, "--space", "sram=100"]), 1).contains("\"dram\""));
    assert!(complaint(&orlop(&[&memories[..], &["--capacity", "1"]].concat()), 2).contains("one memory"));
}

#[test]
fn solutions_of_minimalloc_are_written_and_read() {
    let folder =
        Folder::with(&[("two.csv", "id,lower,upper,size,offset,hint\na,0,2,100,32,\nb,1,3,50,,200\n")]);
    let (path, solution) = (folder.path("two.csv"), folder.path("solution.csv"));
    let text = stdout(&orlop(&["plan", &path, "-o", &solution]));
    assert!(text.contains("2 offsets"), "{text}");
    let written = fs::read_to_string(&solution).expect("a solution");
    assert_eq!(written, "id,lower,upper,size,offset\na,0,2,100,32\nb,1,3,50,132\n");
    // All offsets are fixed there.
    let plan = planned(&[&solution]);
    assert_eq!((&plan["offsets"], &plan["verdict"]), (&json!([32, 132]), &json!("optimal")));
    assert_eq!(plan["buffers"][0]["fixed"], true);
    let written = folder.path("plan.json");
    assert!(stdout(&orlop(&["plan", &solution, "-o", &written])).contains("verified"));
}

#[test]
fn columns_that_are_not_understood_are_refused() {
    let folder = Folder::with(&[("pool.csv", "id,lower,upper,size,pool\na,0,2,100,1\n")]);
    let message = complaint(&orlop(&["plan", &folder.path("pool.csv")]), 1);
    assert!(message.contains("\"pool\" is unknown"), "{message}");
}

#[test]
fn the_fields_of_the_json_are_stable() {
    let folder = Folder::with(&[("two.csv", "id,lower,upper,size,alignment\na,0,2,100,64\nb,1,3,50,64\n")]);
    let mut plan = planned(&[&folder.path("two.csv")]);
    for time in ["ms", "read_ms"] {
        assert!(plan[time].take().is_f64());
    }
    assert!(plan["file"].take().is_string());
    let expected = json!({
        "file": null, "source": "csv", "order": "given", "peak": 164, "bound": 164, "gap": 0.0,
        "verdict": "optimal", "offsets": [64, 0], "ms": null, "read_ms": null, "given": null,
        "weights": null, "graph": null,
        "buffers": [
            {"name": "a", "start": 0, "end": 2, "size": 100, "alignment": 64},
            {"name": "b", "start": 1, "end": 3, "size": 50, "alignment": 64},
        ],
        "without_plan": {"sum": 150, "torch": 2097152},
    });
    assert_eq!(plan, expected);
}

#[test]
fn an_order_with_a_small_peak_is_never_worse() {
    for name in MODELS {
        let plan = planned(&[&model(name), "--order", "min-peak"]);
        let number = |value: &Value| value.as_u64().expect("a number");
        let given = number(&plan["given"]["peak"]);
        assert_eq!(given, number(&planned(&[&model(name)])["peak"]), "{name}");
        assert_eq!(given - number(&plan["peak"]), number(&plan["given"]["saved"]), "{name}");
        assert!(plan["given"]["exact"].is_boolean(), "{name}");
        let text = stdout(&orlop(&["plan", &model(name), "--order", "min-peak"]));
        let gain = if plan["order"] == "given" { "No order was found" } else { "The order min-peak saves" };
        assert!(text.contains("plan, given order") && text.contains("plan, order min-peak"), "{text}");
        assert!(text.contains(gain), "{text}");
    }
}

#[test]
fn the_table_has_the_plan_beside_what_it_replaces() {
    let text = unwrapped(&orlop(&["plan", &model("resnet50_b8")]));
    for expected in [
        "an ONNX graph, 122 nodes, 56 buffers; 97.3 MiB of weights are not planned",
        "55.1 MiB",
        "this order",
        "optimal",
        "no plan: PyTorch's",
        "no plan: nothing",
        "of the plan",
    ] {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
}

#[test]
fn symbols_need_numbers() {
    let folder = Folder::with(&[]);
    let path = folder.path("symbolic.onnx");
    fs::write(&path, symbolic()).expect("room");
    let message = complaint(&orlop(&["plan", &path]), 1);
    assert!(
        message.contains("sizes of inputs are missing") && message.contains("--bind batch=N"),
        "{message}"
    );
    assert_eq!(planned(&[&path, "--bind", "batch=8"])["peak"], json!(8 * 256 * 4));
    let unused = orlop(&["plan", &path, "--bind", "batch=8", "--bind", "tokens=3"]);
    assert!(complaint(&unused, 0).contains("nothing has the name \"tokens\""));
    assert!(complaint(&orlop(&["plan", &path, "--bind", "batch"]), 2).contains("batch=8"));
}

#[test]
fn problems_and_recordings_are_planned() {
    let plan = planned(&[&problem("minimalloc/A.1048576")]);
    assert_eq!((&plan["source"], &plan["verdict"]), (&json!("csv"), &json!("optimal")));
    // A search with a clock.
    let plan = planned(&[&problem("minimalloc/C.1048576"), "--budget", "10s"]);
    assert_eq!(plan["verdict"], "optimal");

    let trace = shipped("vit_b16_infer_b4");
    let plan = planned(&[&trace]);
    assert_eq!(plan["source"], "recording");
    let snapshot =
        testdata().join("torch-snapshots/gpt-medium_256_inference.pickle.gz").display().to_string();
    let text = stdout(&orlop(&["plan", &snapshot]));
    assert!(text.contains("a recording, 1,503 allocations"), "{text}");

    let folder = Folder::with(&[("trace.csv", "a,0,1000\na,1,500\nf,0\na,2,700\n")]);
    let plan = planned(&[&folder.path("trace.csv")]);
    let times: Vec<_> =
        (0..3).map(|at| [&plan["buffers"][at]["start"], &plan["buffers"][at]["end"]]).collect();
    // A free is two events; what is never freed is live to the end.
    assert_eq!(json!(times), json!([[1, 3], [2, 6], [5, 6]]));
    assert_eq!(plan["without_plan"]["sum"], 2200);
}

#[test]
fn written_plans_are_verified() {
    let folder = Folder::with(&[]);
    let (plan, page) = (folder.path("plan.json"), folder.path("plan.html"));
    let text = stdout(&orlop(&["plan", &model("vit_b16_b4"), "-o", &plan, "--report", &page]));
    assert!(text.contains("234 offsets, verified") && text.contains("open it in a browser"), "{text}");
    assert!(fs::read_to_string(&page).expect("a page").starts_with("<!doctype html>"));
    assert!(stdout(&orlop(&["plan", "--verify", &plan])).contains("a valid plan of 234 buffers"));

    let mut wrong: Value = serde_json::from_str(&fs::read_to_string(&plan).expect("a plan")).expect("JSON");
    wrong["offsets"][1] = wrong["offsets"][0].clone();
    fs::write(&plan, wrong.to_string()).expect("room");
    let message = complaint(&orlop(&["plan", "--verify", &plan]), 1);
    assert!(message.contains("not a valid plan") && message.contains("share the bytes"), "{message}");
    assert!(complaint(&orlop(&["plan", "--verify", &page]), 1).contains("not a plan"));
}

#[test]
fn what_cannot_be_planned_is_said_in_one_line() {
    let folder =
        Folder::with(&[("empty.onnx", ""), ("noise.onnx", "hello"), ("empty.csv", "lower,upper,size\n")]);
    let whole = fs::read(model("bert_base_s128")).expect("it is shipped");
    fs::write(folder.path("cut.onnx.gz"), &whole[..whole.len() / 2]).expect("room");
    fs::write(folder.path("bad.csv"), "lower,upper,size\n5,5,1\n").expect("room");
    for (name, expected) in [
        ("empty.onnx", "the model has no graph"),
        ("noise.onnx", "this is no ONNX model"),
        ("cut.onnx.gz", "cannot be read"),
        ("empty.csv", "this problem has no buffers"),
        ("bad.csv", "line 2"),
        ("missing.onnx", "cannot be opened"),
        ("", "no recording is in it"),
    ] {
        let message = complaint(&orlop(&["plan", &folder.path(name)]), 1);
        assert!(message.contains(expected) && message.lines().count() == 1, "{name}: {message}");
    }
    let trace = shipped("vit_b16_infer_b4");
    let device = complaint(&orlop(&["plan", &trace, "--device", "9"]), 1);
    assert!(device.contains("nothing was recorded on device 9"), "{device}");
    for wrong in [&["--order", "min-peak"][..], &["--bind", "batch=8"]] {
        let arguments: Vec<&str> = ["plan", &*trace].iter().chain(wrong).copied().collect();
        assert!(complaint(&orlop(&arguments), 2).contains("are for ONNX models"));
    }
    assert!(
        complaint(&orlop(&["plan", &model("resnet50_b8"), "--device", "0"]), 2).contains("for recordings")
    );
    assert!(complaint(&orlop(&["plan", &trace, "--budget", "soon"]), 2).contains("50ms"));
}
