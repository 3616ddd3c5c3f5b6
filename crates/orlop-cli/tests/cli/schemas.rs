//! The schemas of answers (`docs/schemas`), checked against answers. With `ORLOP_EXTEND_SCHEMAS=1` the test
//! adds what is missing to the files.

use super::{orlop, testdata};
use orlop::lab::plan::PlanFile;
use orlop::plan::{Buffer, Planner, ProblemBuilder};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Returns where a value differs from a schema, which has `type`, `properties`, `required`, `items`, and
/// `additionalProperties` in the place of `properties`.
fn differences(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let has_type = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        name => panic!("{at}: unknown type {name}"),
    };
    let is_typed = match &schema["type"] {
        Value::String(name) => has_type(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(has_type),
        _ => true,
    };
    if !is_typed {
        found.push(format!("{at}: {value} is not of type {}", schema["type"]));
        return;
    }
    if let (Some(fields), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                found.push(format!("{at}.{name}: missing"));
            }
        }
        for (name, field) in fields {
            match properties.get(name) {
                Some(schema) => differences(schema, field, &format!("{at}.{name}"), found),
                None => found.push(format!("{at}.{name}: not in the schema")),
            }
        }
    }
    if let (Some(fields), Some(schema)) = (value.as_object(), schema.get("additionalProperties")) {
        fields.iter().for_each(|(name, field)| differences(schema, field, &format!("{at}.{name}"), found));
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        items.iter().for_each(|item| differences(schema, item, &format!("{at}[]"), found));
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Adds the types and the fields of a value to a schema.
fn extend(schema: &mut Value, value: &Value) {
    let found = Value::from(type_of(value));
    match &mut schema["type"] {
        Value::Array(types) if !types.contains(&found) => types.push(found),
        known if known.is_null() => *known = found,
        known if known.is_string() && *known != found => *known = vec![known.take(), found].into(),
        _ => {}
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        match schema.get_mut("additionalProperties") {
            Some(schema) => extend(schema, field),
            None => extend(&mut schema["properties"][name], field),
        }
    }
    for item in value.as_array().into_iter().flatten() {
        extend(&mut schema["items"], item);
    }
}

fn check(name: &str, arguments: &[&str]) {
    let output = orlop(arguments);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr))
    });
    check_answer(name, &answer);
}

/// Checks an answer against the schema of this name.
pub(crate) fn check_answer(name: &str, answer: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schemas/{name}.schema.json"));
    let schema: Value = serde_json::from_slice(&fs::read(&path).expect("a schema")).expect("JSON");
    if std::env::var_os("ORLOP_EXTEND_SCHEMAS").is_some() {
        let mut schema = schema;
        extend(&mut schema, answer);
        let text = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
        return fs::write(&path, text).expect("room");
    }
    let mut found = Vec::new();
    differences(&schema, answer, "$", &mut found);
    assert!(found.is_empty(), "{name}: {found:#?}: {answer}");
}

/// Messages that have all numbers between them.
const MESSAGES: &str = "\
CUDA out of memory. Tried to allocate 2.00 GiB.
CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.50 GiB \
is free. \
9.00 GiB allowed; Including non-PyTorch memory, this process has 8.19 GiB memory in use. Of the allocated \
memory \
7.00 GiB is allocated by PyTorch, with 1.25 GiB allocated in private pools, and 512.00 MiB is reserved by \
PyTorch \
but unallocated.
Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.91GiB (rounded to 2048000000)
LargestFreeBlock: 4096
RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.
parameter allocation: 372.76MiB
maybe_live_out allocation: 9.64GiB
preallocated temp allocation: 4.44GiB
total allocation: 14.44GiB
total fragmentation: 680.30MiB (4.60%)
RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 63.80G of \
30.75G.
To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which \
is larger \
than the available KV cache memory (9.87 GiB). the estimated maximum model length is 80848.
";

#[test]
fn answers_follow_their_schemas() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let data = |name: &str| testdata().join(name).display().to_string();
    let [rich, small] = ["rich", "small"].map(|name| {
        let path = format!("../crates/orlop-trace/tests/data/snapshot/{name}.json");
        testdata().join(path).display().to_string()
    });
    let (log, snapshot) =
        (data("traces/rmm.csv"), data("torch-snapshots/gpt-medium_256_inference.pickle.gz"));
    fs::write(file("trace.csv"), "a,0,10\na,1,20\nf,0\n").expect("room");
    fs::write(file("oom.txt"), MESSAGES).expect("room");
    for input in [&rich, &small, &log, &snapshot] {
        check("info", &["info", "--json", input]);
    }
    for input in [&rich, &small, &log] {
        check("what-if", &["what-if", "--json", input]);
    }
    check("why-oom", &["why-oom", "--json", &file("oom.txt")]);
    check("trace-info", &["trace", "info", "--json", &file("trace.csv")]);
    let replay = ["replay", "--json", "-a", "bfc", "--backing", "null", "--repeat", "1", &file("trace.csv")];
    check("replay", &replay);
    for memory in ["1KiB", "1GiB"] {
        let replay = ["replay", "--json", "--policy", "torch", "--memory", memory, &file("trace.csv")];
        check("replay-policy", &replay);
    }
    check("diff", &["diff", "--json", &rich, &log]);
    check("gate", &["gate", "--json", &log, "--baseline", &log]);
    check("gate-baseline", &["gate", "--json", &log, "--write-baseline", &file("baseline.json")]);
    check("report", &["report", "--json", &log, "-o", &file("page.html")]);
    check("convert", &["convert", "--json", &log, &file("out.csv")]);
    #[cfg(feature = "parquet")]
    check("convert", &["convert", "--json", &log, &small, &file("out"), "--to", "parquet"]);
    check("plan", &["plan", "--json", &small]);
    let table = file("plan.csv");
    fs::write(&table, "lower,upper,size,gaps,offset\n0,9,100,2-6,64\n3,5,50,,\n").expect("room");
    let constrained = ["plan", "--json", &table, "--block-limit", "256", "--capacity", "100"];
    check("plan", &constrained);
    check_answer("plan", &with_all_constraints(&constrained));
}

/// Returns the answer to arguments with the plan of a problem that has all constraints, of which files have
/// only some.
fn with_all_constraints(arguments: &[&str]) -> Value {
    let mut builder = ProblemBuilder::new();
    for size in [256, 256, 100, 512] {
        builder.push(Buffer::new(0..2, size)).expect("a buffer");
    }
    builder.place_in(2, 3, 256).expect("a part");
    builder.reserve(0..300).expect("a range");
    builder.exclude(0, 1).expect("a pair");
    let problem = builder.finish();
    let plan = PlanFile::new(&problem, &Planner::new().plan(&problem));
    let mut answer: Value = serde_json::from_slice(&orlop(arguments).stdout).expect("JSON");
    let Value::Object(fields) = serde_json::to_value(plan).expect("JSON") else { panic!("no object") };
    answer.as_object_mut().expect("an object").extend(fields);
    answer
}

#[test]
fn differences_are_found() {
    let schema = serde_json::json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"a": {"type": ["integer", "null"]}, "b": {"type": "string"}},
            "required": ["a"],
        },
    });
    let mut found = Vec::new();
    let answer = serde_json::json!([{"a": null, "b": "x"}, {"b": 1, "c": 2}]);
    differences(&schema, &answer, "$", &mut found);
    assert_eq!(found, ["$[].a: missing", "$[].b: 1 is not of type \"string\"", "$[].c: not in the schema"]);
    let mut schema = serde_json::json!({});
    extend(&mut schema, &answer);
    found.clear();
    differences(&schema, &answer, "$", &mut found);
    assert!(found.is_empty(), "{found:?}");
}
