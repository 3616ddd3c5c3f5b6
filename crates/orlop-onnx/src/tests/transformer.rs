//! Operators of ONNX Runtime that have no kernel for a CPU: their shapes are those that its schemas describe.

use super::inference::{file, int, sizes, untyped};
use super::*;

/// The inputs of a node, without those that are left out, its attributes, and the shapes of its outputs.
type Case =
    (&'static str, &'static [&'static [i64]], &'static [(&'static str, i64)], &'static [&'static [u64]]);

const CASES: &[Case] = &[
    ("SwiGLU", &[&[2, 3, 8], &[2, 3, 8]], &[], &[&[2, 3, 8]]),
    ("SwiGLU", &[&[2, 3, 8]], &[], &[&[2, 3, 4]]),
    (
        "GemmaRotaryEmbedding",
        &[&[2, 3, 8], &[2, 4, 3, 8], &[0], &[2, 1, 3, 8], &[0]],
        &[],
        &[&[2, 4, 3, 8], &[2, 1, 3, 8]],
    ),
    ("MulInteger", &[&[2, 3], &[], &[1, 3]], &[], &[&[2, 3]]),
    ("TorchEmbedding", &[&[9, 4], &[2, 3]], &[], &[&[2, 3, 4]]),
    ("BitmaskDropout", &[&[3, 20]], &[], &[&[3, 20], &[2]]),
    (
        "GatedRelativePositionBias",
        &[&[2, 3, 8], &[8], &[1, 2, 3, 3], &[4, 8], &[8], &[1, 2, 1, 1]],
        &[("num_heads", 2)],
        &[&[2, 2, 3, 3]],
    ),
    ("RemovePadding", &[&[2, 3, 4], &[2]], &[], &[&[6, 4], &[2, 3], &[3], &[1]]),
    ("RestorePadding", &[&[5, 4], &[2, 3]], &[], &[&[2, 3, 4]]),
    ("PackedAttention", &[&[5, 8], &[8, 24], &[24]], &[("num_heads", 2)], &[&[5, 8]]),
    ("PackedMultiHeadAttention", &[&[5, 8], &[5, 8], &[5, 12]], &[("num_heads", 2)], &[&[5, 12]]),
    ("PackedMultiHeadAttention", &[&[5, 2, 3, 4]], &[("num_heads", 2)], &[&[5, 8]]),
    (
        "DecoderMaskedSelfAttention",
        &[&[2, 1, 8], &[8, 24], &[24], &[2, 5], &[2, 2, 2, 5, 4]],
        &[("num_heads", 2)],
        &[&[2, 1, 8], &[2, 2, 2, 6, 4]],
    ),
    (
        "DecoderMaskedMultiHeadAttention",
        &[&[2, 1, 8], &[2, 2, 5, 4], &[2, 2, 5, 4]],
        &[("num_heads", 2)],
        &[&[2, 1, 8], &[2, 2, 5, 4], &[2, 2, 5, 4], &[2, 2, 1, 5]],
    ),
    (
        "SparseAttention",
        &[&[1, 3, 16], &[1, 3, 8], &[1, 3, 8], &[1, 1, 64, 8], &[1, 1, 64, 8]],
        &[("num_heads", 2), ("kv_num_heads", 1)],
        &[&[1, 3, 16], &[1, 1, 64, 8], &[1, 1, 64, 8]],
    ),
    (
        "PagedAttention",
        &[&[5, 16], &[5, 8], &[5, 8], &[7, 16, 1, 8], &[7, 16, 1, 8]],
        &[("num_heads", 2), ("kv_num_heads", 1)],
        &[&[5, 16], &[7, 16, 1, 8], &[7, 16, 1, 8]],
    ),
    ("MatMulNBitsMlp", &[&[2, 3, 32], &[2, 3, 32]], &[("N", 16), ("K", 32)], &[&[2, 3, 16], &[2, 3, 32]]),
    (
        "MatMulNBitsQkv",
        &[&[2, 3, 32]],
        &[("Nq", 16), ("Nkv", 8)],
        &[&[2, 3, 16], &[2, 3, 8], &[2, 3, 8], &[2, 3, 32]],
    ),
    ("MatMulBlockQuantizedFp8Weight", &[&[2, 3, 32], &[16, 32]], &[], &[&[2, 3, 16]]),
    ("NhwcFusedConv", &[&[1, 8, 9, 3], &[16, 3, 3, 3]], &[], &[&[1, 6, 7, 16]]),
];

#[test]
fn operators_without_a_kernel_have_the_shapes_of_their_schemas() {
    for &(operator, inputs, attributes, outputs) in CASES {
        let named = |prefix: &str, count: usize| (0..count).map(|index| format!("{prefix}{index}")).collect();
        let (input, output): (Vec<String>, Vec<String>) =
            (named("x", inputs.len()), named("y", outputs.len()));
        let node = NodeProto {
            input: input.clone(),
            output: output.clone(),
            op_type: operator.to_owned(),
            domain: "com.microsoft".to_owned(),
            attribute: attributes.iter().map(|&(name, value)| int(name, value)).collect(),
            ..NodeProto::default()
        };
        let shape = |sizes: &[i64]| sizes.iter().map(|&of| size(of)).collect();
        let graph = GraphProto {
            node: vec![node],
            input: input.iter().zip(inputs).map(|(name, sizes)| info(name, FLOAT, shape(sizes))).collect(),
            output: output.iter().map(|name| untyped(name)).collect(),
            ..GraphProto::default()
        };
        let model = OnnxReader::new().resolve(&file(graph)).expect(operator);
        for (name, &expected) in output.iter().zip(outputs) {
            assert_eq!(sizes(&model, name), expected, "{operator}: {name}");
        }
    }
}
