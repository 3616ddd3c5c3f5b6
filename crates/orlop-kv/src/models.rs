//! The layer groups of some published models, with 2-byte entries unless said otherwise.
//!
//! Layers, bytes and windows are those of the models' published configurations. States have the shapes that
//! vLLM gives them, those of Kimi-K3 in 4-byte elements.

use crate::LayerGroup;

/// The names that [`model_groups`] knows.
pub const MODELS: [&str; 13] = [
    "llama-3-8b",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "gemma-2-27b",
    "gemma-3-27b",
    "gemma-4-e2b",
    "jamba-v0.1",
    "qwen3-next-80b",
    "llama-4-scout",
    "deepseek-v3",
    "deepseek-v4-flash",
    "kimi-k3",
    "glm-5.2",
];

/// Returns the layer groups of a model of [`MODELS`].
///
/// ```
/// use orlop_kv::{KvGeometry, MODELS, model_groups};
///
/// for name in MODELS {
///     let geometry = KvGeometry::new(model_groups(name).expect("a known model"))?;
///     assert!(geometry.needed_bytes(8192, 0) > 0);
/// }
/// assert!(model_groups("unknown").is_none());
/// # Ok::<(), orlop_kv::KvError>(())
/// ```
#[must_use]
pub fn model_groups(name: &str) -> Option<Vec<LayerGroup>> {
    let full = |layers, bytes| LayerGroup::full("full", layers, bytes);
    let window = |layers, bytes, tokens| LayerGroup::window("window", layers, bytes, tokens);
    let state = |layers, bytes| LayerGroup::state("state", layers, bytes);
    Some(match name {
        "llama-3-8b" => vec![full(32, 4096)],
        "gpt-oss-20b" => vec![full(12, 2048), window(12, 2048, 128)],
        "gpt-oss-120b" => vec![full(18, 2048), window(18, 2048, 128)],
        "gemma-2-27b" => vec![full(23, 8192), window(23, 8192, 4096)],
        "gemma-3-27b" => vec![full(10, 8192), window(52, 8192, 1024)],
        // The last 20 of 35 layers read the memory of others.
        "gemma-4-e2b" => vec![full(3, 2048).with_sharing(4), window(12, 1024, 512).with_sharing(16)],
        "jamba-v0.1" => vec![full(4, 4096), state(28, 311_296)],
        "qwen3-next-80b" => vec![full(12, 2048), state(36, 1_097_728)],
        "llama-4-scout" => vec![full(12, 4096), LayerGroup::chunked("chunked", 36, 4096, 8192)],
        "deepseek-v3" => vec![full(61, 1152)],
        // The compressors' tail states are a few entries per layer, and left out.
        "deepseek-v4-flash" => vec![
            window(43, 1024, 128).with_block_tokens(8),
            LayerGroup::compressed("c4", 21, 1024, 4).with_arena("indexer", 256).with_block_tokens(64),
            LayerGroup::compressed("c128", 20, 1024, 128).with_block_tokens(128),
        ],
        "kimi-k3" => vec![full(24, 1152), state(69, 6_733_824)],
        "glm-5.2" => {
            vec![full(57, 1152), LayerGroup::full("indexed", 21, 1152).with_arena("indexer", 256)]
        }
        _ => return None,
    })
}
