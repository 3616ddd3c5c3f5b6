//! PyTorch's type promotion.

use std::collections::BTreeMap;
use std::path::PathBuf;

use orlop_core::{DType, promote};
use serde::Deserialize;

use super::{Tally, json};
use crate::error::Result;

#[derive(Deserialize)]
struct PromoteFile {
    promote: BTreeMap<String, String>,
}

pub(super) fn compare(files: &[PathBuf]) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in files {
        let file: PromoteFile = json(path)?;
        for (pair, recorded) in &file.promote {
            tally.equal(&answer(pair), recorded, || pair.clone());
        }
    }
    Ok(tally)
}

/// Returns orlop's result as the file has it: a dtype's name or `error`.
fn answer(pair: &str) -> String {
    let parse = |name: &str| name.parse::<DType>();
    match pair.split_once(',').map(|(a, b)| (parse(a), parse(b))) {
        Some((Ok(a), Ok(b))) => promote(a, b).map_or_else(|_| "error".to_owned(), |dtype| dtype.to_string()),
        _ => "not a pair of dtypes".to_owned(),
    }
}
