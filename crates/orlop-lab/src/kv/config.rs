//! Layer groups from a `config.json` of Hugging Face's transformers.
//!
//! Bytes are those of the model's own data type; a cache in another type is described by its groups.

use super::ModelProblem;
use orlop_kv::LayerGroup;
use serde_json::Value;

type Result<T> = std::result::Result<T, ModelProblem>;

/// What a layer keeps of the tokens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayerType {
    Full,
    Window,
    Chunked,
    State,
    /// A layer without memory.
    None,
}

/// The part of a configuration that describes the language model.
struct Config<'a>(&'a Value);

impl Config<'_> {
    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    fn required(&self, name: &'static str) -> Result<u64> {
        self.number(name).filter(|&number| number > 0).ok_or(ModelProblem::Field(name))
    }

    fn required_u32(&self, name: &'static str) -> Result<u32> {
        u32::try_from(self.required(name)?).map_err(|_| ModelProblem::Field(name))
    }

    /// Multiplies fields, which a malicious file can make overflow.
    fn product(factors: &[u64], name: &'static str) -> Result<u64> {
        let product = factors.iter().try_fold(1_u64, |product, &factor| product.checked_mul(factor));
        product.ok_or(ModelProblem::Field(name))
    }

    fn element_bytes(&self) -> Result<u64> {
        let dtype = self.0.get("dtype").or_else(|| self.0.get("torch_dtype"));
        Ok(match dtype.map_or(Some("bfloat16"), Value::as_str) {
            Some("float32") => 4,
            Some("bfloat16" | "float16" | "auto") => 2,
            _ => return Err(ModelProblem::Field("dtype")),
        })
    }

    /// Returns the bytes of a token in an attention layer.
    fn entry_bytes(&self) -> Result<u64> {
        let elements = if let Some(latent) = self.number("kv_lora_rank") {
            // Latent attention: one vector for all heads, and the part of the key with the position.
            latent
                .checked_add(self.required("qk_rope_head_dim")?)
                .ok_or(ModelProblem::Field("kv_lora_rank"))?
        } else {
            let heads = match self.number("num_key_value_heads") {
                Some(heads) => heads,
                None => self.required("num_attention_heads")?,
            };
            let width = match self.number("head_dim") {
                Some(width) => width,
                None => self.required("hidden_size")? / self.required("num_attention_heads")?,
            };
            Self::product(&[2, heads, width], "num_key_value_heads")?
        };
        Self::product(&[elements, self.element_bytes()?], "head_dim")
    }

    /// Returns the bytes of a state: of Mamba, or of a linear attention with gates.
    fn state_bytes(&self) -> Result<u64> {
        let name = "linear_num_value_heads";
        let (channels, kernel, state) = if let Some(heads) = self.number(name) {
            let value = self.required("linear_value_head_dim")?;
            let key = self.required("linear_key_head_dim")?;
            let keys = Self::product(&[2, self.required("linear_num_key_heads")?, key], name)?;
            let values = Self::product(&[heads, value], name)?;
            let state = Self::product(&[values, key], name)?;
            let channels = keys.checked_add(values).ok_or(ModelProblem::Field(name))?;
            (channels, self.required("linear_conv_kernel_dim")?, state)
        } else {
            let channels = Self::product(
                &[self.required("mamba_expand")?, self.required("hidden_size")?],
                "hidden_size",
            )?;
            let state = Self::product(&[channels, self.required("mamba_d_state")?], "mamba_d_state")?;
            (channels, self.required("mamba_d_conv")?, state)
        };
        // The convolution keeps the inputs before the last one.
        let convolution = Self::product(&[channels, kernel - 1], "mamba_d_conv")?;
        let elements = convolution.checked_add(state).ok_or(ModelProblem::Field("mamba_d_state"))?;
        Self::product(&[elements, self.element_bytes()?], "mamba_d_state")
    }

    /// Returns what each layer keeps.
    fn layer_types(&self) -> Result<Vec<LayerType>> {
        let layers = self.required("num_hidden_layers")?;
        let layers = usize::try_from(layers).ok().filter(|&layers| layers <= 100_000);
        let layers = layers.ok_or(ModelProblem::Field("num_hidden_layers"))?;
        if let Some(names) = self.0.get("layer_types").and_then(Value::as_array) {
            let types = names.iter().take(layers).map(|name| layer_type(name.as_str().unwrap_or_default()));
            return types.collect();
        }
        let every = |period: u64, offset: u64, there, elsewhere| {
            let is_there = move |at: usize| period > 0 && at as u64 % period == offset % period;
            (0..layers).map(|at| if is_there(at) { there } else { elsewhere }).collect()
        };
        if let Some(period) = self.number("attn_layer_period") {
            let offset = self.number("attn_layer_offset").unwrap_or(0);
            return Ok(every(period, offset, LayerType::Full, LayerType::State));
        }
        if let Some(period) = self.number("full_attention_interval").filter(|&period| period > 0) {
            return Ok(every(period, period - 1, LayerType::Full, LayerType::State));
        }
        if self.number("attention_chunk_size").is_some() {
            let period = self.number("no_rope_layer_interval").filter(|&period| period > 0).unwrap_or(4);
            return Ok(every(period, period - 1, LayerType::Full, LayerType::Chunked));
        }
        let uses_window = self.0.get("use_sliding_window").and_then(Value::as_bool).unwrap_or(true);
        if self.number("sliding_window").is_some() && uses_window {
            return Ok(match self.number("sliding_window_pattern").filter(|&period| period > 0) {
                Some(period) => every(period, period - 1, LayerType::Full, LayerType::Window),
                None => vec![LayerType::Window; layers],
            });
        }
        Ok(vec![LayerType::Full; layers])
    }
}

fn layer_type(name: &str) -> Result<LayerType> {
    Ok(match name {
        "full_attention" | "attention" => LayerType::Full,
        "sliding_attention" => LayerType::Window,
        "chunked_attention" => LayerType::Chunked,
        "linear_attention" | "mamba" => LayerType::State,
        "mlp" | "moe" => LayerType::None,
        other => return Err(ModelProblem::LayerType(other.to_owned())),
    })
}

/// Returns the groups of a configuration.
pub(super) fn groups(value: &Value) -> Result<Vec<LayerGroup>> {
    let config = Config(value.get("text_config").unwrap_or(value));
    let types = config.layer_types()?;
    // The last layers may read the memory of others.
    let shared = usize::try_from(config.number("num_kv_shared_layers").unwrap_or(0)).unwrap_or(usize::MAX);
    let owners = types.len().saturating_sub(shared);
    let count = |layers: &[LayerType], kind| {
        u32::try_from(layers.iter().filter(|&&layer| layer == kind).count()).unwrap_or(u32::MAX)
    };
    let mut groups = Vec::new();
    for kind in [LayerType::Full, LayerType::Window, LayerType::Chunked, LayerType::State] {
        let (layers, sharing) = (count(&types[..owners], kind), count(&types[owners..], kind));
        if layers == 0 {
            continue;
        }
        let group = match kind {
            LayerType::Full => LayerGroup::full("full", layers, config.entry_bytes()?),
            LayerType::Window => {
                let window = config.required_u32("sliding_window")?;
                LayerGroup::window("window", layers, config.entry_bytes()?, window)
            }
            LayerType::Chunked => {
                let chunk = config.required_u32("attention_chunk_size")?;
                LayerGroup::chunked("chunked", layers, config.entry_bytes()?, chunk)
            }
            _ => LayerGroup::state("state", layers, config.state_bytes()?),
        };
        groups.push(group.with_sharing(sharing));
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_kv::model_groups;

    /// The figures of published configurations give the groups that the models are known by.
    #[test]
    fn published_models() {
        let known = [
            (
                "llama-3-8b",
                r#"{"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
                    "num_key_value_heads": 8, "torch_dtype": "bfloat16"}"#,
            ),
            (
                "gemma-3-27b",
                r#"{"text_config": {"num_hidden_layers": 62, "num_key_value_heads": 16, "head_dim": 128,
                    "sliding_window": 1024, "sliding_window_pattern": 6}}"#,
            ),
            (
                "jamba-v0.1",
                r#"{"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
                    "num_key_value_heads": 8, "attn_layer_period": 8, "attn_layer_offset": 4,
                    "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2}"#,
            ),
            (
                "qwen3-next-80b",
                r#"{"num_hidden_layers": 48, "head_dim": 256, "num_key_value_heads": 2,
                    "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
                    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4}"#,
            ),
            (
                "llama-4-scout",
                r#"{"text_config": {"num_hidden_layers": 48, "num_key_value_heads": 8, "head_dim": 128,
                    "attention_chunk_size": 8192}}"#,
            ),
            ("deepseek-v3", r#"{"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}"#),
        ];
        for (name, text) in known {
            let found = groups(&serde_json::from_str(text).unwrap());
            assert_eq!(found, Ok(model_groups(name).unwrap()), "{name}");
        }
    }

    #[test]
    fn layer_types_and_shared_layers() {
        let text = r#"{"num_hidden_layers": 6, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 64,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention",
                            "sliding_attention", "full_attention"], "num_kv_shared_layers": 2}"#;
        let expected = vec![
            LayerGroup::full("full", 2, 32).with_sharing(1),
            LayerGroup::window("window", 2, 32, 64).with_sharing(1),
        ];
        assert_eq!(groups(&serde_json::from_str(text).unwrap()), Ok(expected));
    }

    #[test]
    fn hostile_figures_are_errors() {
        for text in [
            r#"{"num_hidden_layers": 18446744073709551615}"#,
            r#"{"num_hidden_layers": 2, "num_key_value_heads": 18446744073709551615, "head_dim": 9}"#,
            r#"{"num_hidden_layers": 2, "num_attention_heads": 0, "hidden_size": 9}"#,
            r#"{"num_hidden_layers": 2, "layer_types": ["ring", 7]}"#,
            r#"{"num_hidden_layers": 2, "attn_layer_period": 0, "mamba_expand": 1, "hidden_size": 4,
                "mamba_d_state": 1, "mamba_d_conv": 0}"#,
        ] {
            assert!(groups(&serde_json::from_str(text).unwrap()).is_err(), "{text}");
        }
    }
}
