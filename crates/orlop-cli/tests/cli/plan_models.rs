//! `orlop plan` of models as packages ship them: sizes of inputs, several plans, files.

use super::{Folder, complaint, orlop, stdout, testdata};
use serde_json::{Value, json};
use std::fs;

/// The models of `testdata/onnx-wild`, with what their users know about the inputs.
const MODELS: [(&str, &[&str]); 10] = [
    ("basic_pitch__nmp", &["--bind", "unk__749=1"]),
    ("ddddocr__common_det", &[]),
    ("magika__model", &["--input", "bytes=1x2048"]),
    ("onnx_asr__nemo80_conv", &["--bind", "batch_size=2", "--bind", "N=32000"]),
    ("onnx_asr__resample_24_16", &["--input", "2x32000"]),
    ("onnx_asr__whisper80", &["--input", "waveforms=2x32000", "--input", "waveforms_lens=2"]),
    ("rapidocr_onnxruntime__ch_PP-OCRv4_det_infer", &["--input", "x=1x3x736x736"]),
    (
        "rapidocr_onnxruntime__ch_ppocr_mobile_v2.0_cls_infer",
        &["--bind", "x:0=1", "--bind", "x:2=48", "--bind", "x:3=192"],
    ),
    ("silero_vad__silero_vad_16k_op15", &["--input", "input=1x512", "--value", "sr=16000"]),
    ("silero_vad__silero_vad_op18_ifless", &["--bind", "batch=1", "--bind", "sequence=512"]),
];

fn model(name: &str) -> String {
    testdata().join(format!("onnx-wild/{name}.onnx.gz")).display().to_string()
}

fn planned(arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["plan", "--json"].iter().chain(arguments).copied().collect();
    serde_json::from_str(&stdout(&orlop(&all))).expect("an object")
}

#[test]
fn all_models_have_plans_that_fit_them() {
    let folder = Folder::with(&[]);
    let plan = folder.path("plan.json");
    let schema = schema();
    for (name, inputs) in MODELS {
        let path = model(name);
        let arguments: Vec<&str> = ["plan", &path, "-o", &plan].iter().chain(inputs).copied().collect();
        assert!(stdout(&orlop(&arguments)).contains("offsets, verified"), "{name}");
        let written: Value = serde_json::from_str(&fs::read_to_string(&plan).expect("a plan")).expect("JSON");
        assert_eq!(conforms(&written, &schema, &schema), Ok(()), "{name}");
        assert!(written["gap"].as_f64() < Some(0.02), "{name}: {}", written["verdict"]);
        let verified = stdout(&orlop(&["plan", "--verify", &plan, &path]));
        assert!(verified.contains("a valid plan") && verified.contains("it is one of"), "{verified}");
    }
    // The last plan is none of another model, and a changed one is none of its own.
    let other = complaint(&orlop(&["plan", "--verify", &plan, &model("magika__model")]), 1);
    assert!(other.contains("not a valid plan"), "{other}");
    let own = model(MODELS[9].0);
    let mut wrong: Value = serde_json::from_str(&fs::read_to_string(&plan).expect("a plan")).expect("JSON");
    let mut refused = |change: &dyn Fn(&mut Value)| {
        let good = wrong.clone();
        change(&mut wrong);
        fs::write(&plan, wrong.to_string()).expect("room");
        wrong = good;
        complaint(&orlop(&["plan", "--verify", &plan, &own]), 1)
    };
    let verdict = refused(&|plan| plan["verdict"] = json!("within 0.01 %"));
    assert!(verdict.contains("the verdict is \"optimal\""), "{verdict}");
    let buffer = refused(&|plan| plan["graph"]["nodes"][0]["outputs"] = json!([]));
    assert!(buffer.contains("is not that of the model"), "{buffer}");
    let lifetime = refused(&|plan| plan["buffers"][0]["end"] = json!(1_000_000));
    assert!(lifetime.contains("not a valid plan"), "{lifetime}");
}

#[test]
fn what_is_missing_is_asked_for_with_the_line_to_type() {
    for (name, expected) in [
        ("rapidocr_onnxruntime__ch_ppocr_mobile_v2.0_cls_infer", "give them numbers: --input x=Nx3xNxN\n"),
        ("onnx_asr__whisper80", "give them numbers: --bind batch_size=N --bind N=N\n"),
        ("basic_pitch__nmp", "give them numbers: --bind unk__749=N\n"),
    ] {
        let message = complaint(&orlop(&["plan", &model(name)]), 1);
        assert!(message.ends_with(expected), "{message}");
    }
    let pooling = model("rapidocr_onnxruntime__ch_ppocr_mobile_v2.0_cls_infer");
    let part = complaint(&orlop(&["plan", &pooling, "--bind", "x:0=2", "--bind", "batch=1"]), 1);
    assert!(part.contains("nothing has the name \"batch\""), "{part}");
    assert!(part.ends_with("\"x\" [?, 3, ?, ?]; give them numbers: --input x=2x3xNxN\n"), "{part}");
    let detector = model("rapidocr_onnxruntime__ch_PP-OCRv4_det_infer");
    let odd = complaint(&orlop(&["plan", &detector, "--input", "x=1x3x40x40"]), 1);
    assert!(odd.ends_with("cannot be broadcast to each other; give others: --input x=Nx3xNxN\n"), "{odd}");
    let path = model("onnx_asr__whisper80");
    let rest = complaint(&orlop(&["plan", &path, "--bind", "batch_size=1"]), 1);
    assert!(rest.ends_with("give them numbers: --bind N=N\n"), "{rest}");
    let unknown = complaint(&orlop(&["plan", &path, "--input", "waves=1x2"]), 1);
    assert!(unknown.contains("has no input \"waves\": its inputs are \"waveforms\""), "{unknown}");
    let wrong = complaint(&orlop(&["plan", &model("magika__model"), "--input", "1x7"]), 1);
    assert!(wrong.contains("has the size 2048 in dimension 1, not 7"), "{wrong}");
    assert!(complaint(&orlop(&["plan", &path, "--input", "waveforms=1xN"]), 2).contains("expected sizes"));
}

/// Executes a command of the verdict as a shell does, in the folder.
#[cfg(unix)]
fn pasted(folder: &Folder, verdict: &str, effect: &str) -> String {
    let at = verdict.find("\norlop ").expect("a command") + 1;
    let line = &verdict[at..at + verdict[at..].find(effect).expect("what it does")];
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_orlop")).parent().expect("a folder");
    let mut shell = std::process::Command::new("sh");
    let path = std::env::join_paths([program, "/usr/bin".as_ref(), "/bin".as_ref()]).expect("paths");
    stdout(
        &shell
            .args(["-c", line.trim_end()])
            .current_dir(folder.all())
            .env("PATH", path)
            .output()
            .expect("sh"),
    )
}

#[cfg(unix)]
#[test]
fn the_command_of_the_verdict_works_as_it_is_printed() {
    let folder = Folder::with(&[]);
    let whisper = folder.path("it's a model.onnx.gz");
    fs::copy(model("onnx_asr__whisper80"), &whisper).expect("a model");
    let inputs = ["--input", "waveforms=2x32000", "--input", "waveforms_lens=2", "--budget", "5ms"];
    for more in [&[][..], &["--space", "sram=4MiB", "--space", "dram=1GiB@3"], &["--capacity", "1GiB"]] {
        let first = stdout(&orlop(&[&["plan", &whisper], &inputs[..], more].concat()));
        let second = pasted(&folder, &first, "writes the offsets.");
        assert!(second.contains("offsets, verified"), "{first}\n{second}");
        let third = pasted(&folder, &second, "checks the plan again.");
        assert!(third.contains("it is one of"), "{second}\n{third}");
    }
}

#[test]
fn several_plans_have_one_block() {
    let path = model("onnx_asr__resample_24_16");
    let of = |batch: &str| planned(&[&path, "--bind", "N=24000", "--bind", &format!("batch_size={batch}")]);
    let (one, four, range) = (of("1"), of("4"), of("1..4"));
    let both = of("1,4");
    let peaks: Vec<_> = both["plans"].as_array().expect("plans").iter().map(|plan| &plan["peak"]).collect();
    assert_eq!((peaks, &both["peak"]), (vec![&one["peak"], &four["peak"]], &four["peak"]));
    assert!(range["peak"].as_u64() >= four["peak"].as_u64(), "{range}");
    let folder = Folder::with(&[]);
    let plan = folder.path("plans.json");
    let text = stdout(&orlop(&["plan", &path, "--bind", "N=24000", "--bind", "batch_size=1,4", "-o", &plan]));
    for expected in
        ["batch_size=1 ", "batch_size=4 ", "is enough for each of 2 plans", "optimal for this order"]
    {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
    let written: Value = serde_json::from_str(&fs::read_to_string(&plan).expect("plans")).expect("JSON");
    assert_eq!(conforms(&written, &schema(), &schema()), Ok(()));
    assert!(stdout(&orlop(&["plan", "--verify", &plan, &path])).contains("2 valid plans"));
    let page = folder.path("plan.html");
    let refused = orlop(&["plan", &path, "--bind", "N=24000", "--bind", "batch_size=1,4", "--report", &page]);
    assert!(complaint(&refused, 2).contains("--report is for one plan"));
    let csv = folder.path("plans.csv");
    let refused = orlop(&["plan", &path, "--bind", "N=24000", "--bind", "batch_size=1,4", "-o", &csv]);
    assert!(complaint(&refused, 2).contains("so is a CSV file"));
    assert!(!std::path::Path::new(&csv).exists());
}

#[test]
fn plans_with_constraints_and_a_capacity_conform_to_the_schema() {
    let folder = Folder::with(&[("two.csv", "id,lower,upper,size,offset\na,0,2,100,32\nb,1,3,50,\n")]);
    let plan = planned(&[&folder.path("two.csv"), "--capacity", "128"]);
    assert!(plan["capacity"]["witness"].is_object() && plan["buffers"][0]["fixed"] == true, "{plan}");
    assert_eq!(conforms(&plan, &schema(), &schema()), Ok(()));
}

/// Changes a plan in a file, and returns what is wrong with it then.
fn refused(path: &str, model: &str, change: impl FnOnce(&mut Value)) -> String {
    let good = fs::read_to_string(path).expect("a plan");
    let mut plan = serde_json::from_str(&good).expect("JSON");
    change(&mut plan);
    fs::write(path, plan.to_string()).expect("room");
    let message = complaint(&orlop(&["plan", "--verify", path, model]), 1);
    fs::write(path, good).expect("room");
    message
}

#[test]
fn models_are_divided_among_memories() {
    let folder = Folder::with(&[]);
    let path = folder.path("plan.json");
    let schema = schema();
    for (name, inputs) in [MODELS[0], MODELS[6], MODELS[8]] {
        let model = model(name);
        let one = planned(&[&[&*model], inputs].concat());
        let half = (one["peak"].as_u64().expect("bytes") / 2).to_string();
        let (near, far) = (format!("SRAM={half}"), "DRAM=1GiB@10".to_owned());
        let memories = ["plan", &model, "-o", &path, "--space", &near, "--space", &far];
        let text = stdout(&orlop(&[&memories[..], inputs].concat()));
        assert!(text.contains("offsets, verified"), "{text}");
        let plan: Value = serde_json::from_str(&fs::read_to_string(&path).expect("a plan")).expect("JSON");
        assert_eq!(conforms(&plan, &schema, &schema), Ok(()), "{name}");
        let peak = |space: usize| plan["spaces"][space]["plan"]["peak"].as_u64().expect("bytes");
        assert!(peak(0) > 0 && peak(0) <= half.parse().expect("bytes") && peak(1) > 0, "{name}");
        let verified = stdout(&orlop(&["plan", "--verify", &path, &model]));
        assert!(verified.contains("it is one of"), "{verified}");
        let tensors = plan["graph"]["tensors"].as_array().expect("tensors");
        let placed = tensors.iter().position(|tensor| tensor["space"] == 0 && tensor["bytes"] != 0);
        let placed = placed.expect("a tensor in the first memory");
        let other = refused(&path, &model, |plan| plan["graph"]["tensors"][placed]["space"] = json!(1));
        assert!(other.contains("buffer"), "{other}");
        let none = refused(&path, &model, |plan| plan["graph"]["tensors"][placed]["space"] = Value::Null);
        assert!(none.contains("buffer"), "{none}");
        let cost = refused(&path, &model, |plan| plan["spaces"][1]["accesses"][0] = json!(1_000));
        assert!(cost.contains("the cost is"), "{cost}");
        // An access to the first memory costs nothing.
        let accesses = refused(&path, &model, |plan| plan["spaces"][0]["accesses"][0] = json!(1_000));
        assert!(accesses.contains("times, not 1000"), "{accesses}");
        let peak = refused(&path, &model, |plan| plan["graph"]["peak"] = json!(1));
        assert!(peak.contains("peak"), "{peak}");
        let names = refused(&path, &model, |plan| plan["graph"]["spaces"][0]["name"] = json!("x"));
        assert!(names.contains("the memories differ"), "{names}");
    }
    let model = model(MODELS[8].0);
    let several = ["plan", &model, "--space", "a=1GiB", "--bind", "batch=1,2", "--bind", "sequence=512"];
    let several = [&several[..], &["--value", "sr=16000"]].concat();
    assert!(complaint(&orlop(&several), 2).contains("one number"));
}

fn schema() -> Value {
    let path = testdata().join("../docs/plan.schema.json");
    serde_json::from_str(&fs::read_to_string(path).expect("a schema")).expect("JSON")
}

/// Checks a value against the part of JSON Schema that the schema of plans uses.
fn conforms(value: &Value, schema: &Value, root: &Value) -> Result<(), String> {
    let wrong =
        |what: &str| Err(format!("{what}: {}", value.to_string().chars().take(200).collect::<String>()));
    if let Some(reference) = schema["$ref"].as_str() {
        return conforms(value, root.pointer(reference.trim_start_matches('#')).expect("a definition"), root);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let results: Vec<_> = choices.iter().map(|choice| conforms(value, choice, root)).collect();
        let is_any = results.iter().any(Result::is_ok);
        return if is_any { Ok(()) } else { Err(format!("{results:?}")) };
    }
    if let Some(choices) = schema["enum"].as_array() {
        return if choices.contains(value) { Ok(()) } else { wrong("none of the choices") };
    }
    let is_type = match schema["type"].as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the type {other}"),
    };
    let is_small = schema["minimum"].as_i64() == Some(0) && value.is_i64() && !value.is_u64();
    if !is_type || is_small {
        return wrong("another type");
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(item, &schema["items"], root)?;
    }
    let fields = value.as_object();
    for name in schema["required"].as_array().into_iter().flatten() {
        if fields.is_none_or(|fields| !fields.contains_key(name.as_str().expect("a name"))) {
            return wrong(&format!("without {name}"));
        }
    }
    for (name, field) in fields.into_iter().flatten() {
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(schema), _) => conforms(field, schema, root)?,
            (None, schema) if schema.is_object() => conforms(field, schema, root)?,
            (None, _) => return wrong(&format!("with {name:?}")),
        }
    }
    Ok(())
}
