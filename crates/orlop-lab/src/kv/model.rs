//! [`KvModel`]: the layer groups of a model, by name or from a file.

use super::config;
use crate::{LabError, Result};
use orlop_kv::{KvGeometry, LayerGroup, MODELS, model_groups};
use serde::Deserialize;
use std::path::Path;

/// The KV memory of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvModel {
    /// The name, or the file.
    pub name: String,
    /// The layer groups.
    pub groups: Vec<LayerGroup>,
}

/// Why a model is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelProblem {
    /// Neither a known name nor a file.
    #[error("neither a file nor one of {}", MODELS.join(", "))]
    Unknown,
    /// The file is not JSON of either form.
    #[error("neither a list of groups nor a config.json: {0}")]
    Json(String),
    /// A field of a `config.json` is missing, or has no usable value.
    #[error("\"{0}\" is missing or has no usable value")]
    Field(&'static str),
    /// A kind of layers that is not known.
    #[error("layers of type \"{0}\" are unknown: describe the model by its groups")]
    LayerType(String),
}

/// A file that lists groups.
#[derive(Debug, Deserialize)]
struct GroupsFile {
    groups: Vec<GroupEntry>,
}

/// A group in a file. Bytes are of one layer: per token, per compressed entry, or of a state.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupEntry {
    kind: String,
    name: Option<String>,
    layers: u32,
    bytes: u64,
    /// Tokens of a window or a chunk.
    #[serde(default)]
    tokens: u32,
    #[serde(default)]
    sinks: u32,
    /// Tokens of a compressed entry.
    #[serde(default)]
    ratio: u32,
    block_tokens: Option<u32>,
}

impl GroupEntry {
    fn group(&self) -> Result<LayerGroup, ModelProblem> {
        let name = self.name.as_deref().unwrap_or(&self.kind);
        let Self { layers, bytes, tokens, .. } = *self;
        let group = match self.kind.as_str() {
            "full" => LayerGroup::full(name, layers, bytes),
            "window" => LayerGroup::window(name, layers, bytes, tokens).with_sinks(self.sinks),
            "chunked" => LayerGroup::chunked(name, layers, bytes, tokens),
            "compressed" => LayerGroup::compressed(name, layers, bytes, self.ratio),
            "state" => LayerGroup::state(name, layers, bytes),
            other => return Err(ModelProblem::LayerType(other.to_owned())),
        };
        Ok(match self.block_tokens {
            Some(tokens) => group.with_block_tokens(tokens),
            None => group,
        })
    }
}

impl KvModel {
    /// Finds a model: one of [`MODELS`], in any case and without what follows a hyphen if only one begins so,
    /// or a file.
    ///
    /// A file is a `config.json` of Hugging Face's transformers, or lists the groups:
    ///
    /// ```json
    /// {"groups": [
    ///     {"kind": "full", "layers": 12, "bytes": 2048},
    ///     {"kind": "window", "layers": 12, "bytes": 2048, "tokens": 128},
    ///     {"kind": "state", "layers": 36, "bytes": 1097728}
    /// ]}
    /// ```
    ///
    /// `bytes` are those of one layer and token, compressed entry (`"compressed"`, with `ratio`), or state.
    /// `"chunked"` has `tokens`, too; `name`, `sinks` and `block_tokens` are optional.
    ///
    /// # Errors
    /// If there is no such model, the file is neither, or the groups do not fit together.
    pub fn find(model: &str) -> Result<Self> {
        let unknown = |problem| LabError::Model { model: model.into(), problem };
        let path = Path::new(model);
        if !path.is_file() {
            let known = known_model(model).and_then(|name| Some((name, model_groups(name)?)));
            let (name, groups) = known.ok_or_else(|| unknown(ModelProblem::Unknown))?;
            return Ok(Self { name: name.to_owned(), groups });
        }
        let text = std::fs::read_to_string(path).map_err(|error| LabError::Read { error })?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let groups = Self::parse(&text).map_err(unknown)?;
        KvGeometry::new(groups.clone())?;
        Ok(Self { name, groups })
    }

    /// Parses the groups of a file.
    fn parse(text: &str) -> Result<Vec<LayerGroup>, ModelProblem> {
        let json = |error: serde_json::Error| ModelProblem::Json(error.to_string());
        let value: serde_json::Value = serde_json::from_str(text).map_err(json)?;
        if value.get("groups").is_some() {
            let file: GroupsFile = serde_json::from_value(value).map_err(json)?;
            return file.groups.iter().map(GroupEntry::group).collect();
        }
        config::groups(&value)
    }

    /// Returns the groups with blocks of `tokens` tokens; those of states, and of compressed entries that do
    /// not divide it, are left as they are.
    #[must_use]
    pub fn with_block_tokens(&self, tokens: u32) -> Vec<LayerGroup> {
        use orlop_kv::GroupKind;
        let resized = |group: &LayerGroup| match group.kind {
            GroupKind::State | GroupKind::Cross => group.clone(),
            GroupKind::Compressed { ratio } if !tokens.is_multiple_of(ratio) => group.clone(),
            _ => group.clone().with_block_tokens(tokens),
        };
        self.groups.iter().map(resized).collect()
    }
}

/// Returns the model that a user's name stands for.
fn known_model(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let begins_so = |known: &&&str| known.strip_prefix(&name).is_some_and(|rest| rest.starts_with('-'));
    let exact = MODELS.iter().find(|&&known| known == name);
    let mut longer = MODELS.iter().filter(begins_so);
    let only = longer.next().filter(|_| longer.next().is_none());
    exact.or(only).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_groups_is_read() {
        let groups = KvModel::parse(
            r#"{"groups": [{"kind": "full", "layers": 12, "bytes": 2048, "block_tokens": 32},
                           {"kind": "compressed", "name": "c4", "layers": 2, "bytes": 64, "ratio": 4}]}"#,
        );
        let expected = vec![
            LayerGroup::full("full", 12, 2048).with_block_tokens(32),
            LayerGroup::compressed("c4", 2, 64, 4),
        ];
        assert_eq!(groups, Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let problem = |text: &str| KvModel::parse(text).unwrap_err().to_string();
        assert!(problem("[").contains("config.json"));
        assert!(problem(r#"{"groups": [{"kind": "ring", "layers": 1, "bytes": 1}]}"#).contains("ring"));
        assert!(problem(r#"{"groups": [{"kind": "full", "layer": 1}]}"#).contains("layer"));
        assert!(problem("{}").contains("num_hidden_layers"));
        let found = |name| KvModel::find(name).ok().map(|model| model.name);
        assert_eq!(found("Llama-3-8B").as_deref(), Some("llama-3-8b"));
        assert_eq!(found("Jamba").as_deref(), Some("jamba-v0.1"));
        assert_eq!([found("gpt-oss"), found("llama"), found("jam"), found("")], [None, None, None, None]);
        assert!(KvModel::find("no-such-model").unwrap_err().to_string().contains("llama-3-8b"));
    }
}
