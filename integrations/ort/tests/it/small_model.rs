//! A model of a few nodes, encoded here: outputs that are the same memory as something else.

/// Appends a field of protobuf: a varint.
fn number(to: &mut Vec<u8>, field: u8, value: u8) {
    to.extend([field << 3, value]);
}

/// Appends a field of protobuf with a length.
fn bytes(to: &mut Vec<u8>, field: u8, value: &[u8]) {
    to.extend([field << 3 | 2, u8::try_from(value.len()).expect("parts are short")]);
    to.extend(value);
}

fn message(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = Vec::new();
    build(&mut message);
    message
}

/// `ValueInfoProto` of four floats.
fn four_floats(name: &str) -> Vec<u8> {
    let dimension = message(|to| number(to, 1, 4));
    let shape = message(|to| bytes(to, 1, &dimension));
    let tensor = message(|to| {
        number(to, 1, 1);
        bytes(to, 2, &shape);
    });
    let value_type = message(|to| bytes(to, 1, &tensor));
    message(|to| {
        bytes(to, 1, name.as_bytes());
        bytes(to, 2, &value_type);
    })
}

fn node(operator: &str, input: &str, output: &str) -> Vec<u8> {
    message(|to| {
        bytes(to, 1, input.as_bytes());
        bytes(to, 2, output.as_bytes());
        bytes(to, 4, operator.as_bytes());
    })
}

/// The names of the outputs: computed, computed from that by the identity, the input, a weight.
pub(crate) const OUTPUTS: [&str; 4] = ["y", "z", "x", "w"];

/// The weight `w`.
pub(crate) const WEIGHT: [f32; 4] = [5.0, 6.0, 7.0, 8.0];

/// Returns the model `y = abs(x)`, `z = identity(y)`.
pub(crate) fn aliased_outputs() -> Vec<u8> {
    let weight = message(|to| {
        number(to, 1, 4);
        number(to, 2, 1);
        bytes(to, 8, b"w");
        bytes(to, 9, &WEIGHT.map(f32::to_le_bytes).concat());
    });
    let nodes = message(|to| {
        bytes(to, 1, &node("Abs", "x", "y"));
        bytes(to, 1, &node("Identity", "y", "z"));
        bytes(to, 2, b"g");
        bytes(to, 5, &weight);
    });
    let mut graph = nodes;
    for (field, name) in [(11, "x"), (12, "y"), (12, "z"), (12, "x"), (12, "w")] {
        bytes(&mut graph, field, &four_floats(name));
    }
    let opset = message(|to| number(to, 2, 17));
    let mut model = message(|to| number(to, 1, 8));
    // The graph is longer than a byte can say.
    model.push(7 << 3 | 2);
    let length = graph.len();
    let low = u8::try_from(length % 128).expect("seven bits") | 128;
    model.extend([low, u8::try_from(length / 128).expect("the graph is short")]);
    model.extend(graph);
    bytes(&mut model, 8, &opset);
    model
}
