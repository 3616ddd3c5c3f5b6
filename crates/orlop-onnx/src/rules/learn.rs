//! Losses and optimizers, and the classic models of `ai.onnx.ml`.

use super::elementwise::same;
use super::{Operator, over_first, own};
use crate::infer::{Call, Fact, Fault, Outcome, Range, Tensor, one, types};

/// The losses of ONNX's own domain.
pub(super) const LOSSES: &[Operator] =
    &[own("NegativeLogLikelihoodLoss", loss), own("SoftmaxCrossEntropyLoss", loss)];

pub(super) const OPERATORS: &[Operator] = &[
    over_first("Binarizer", same),
    own("Normalizer", floats),
    own("Imputer", same),
    own("Scaler", floats),
    own("LabelEncoder", encode),
    own("CategoryMapper", map_categories),
    own("OneHotEncoder", one_hot),
    own("ArrayFeatureExtractor", extract),
    own("FeatureVectorizer", vectorize),
    own("LinearRegressor", |call| regress(call, call.int_or("targets", 1))),
    own("SVMRegressor", |call| regress(call, 1)),
    own("TreeEnsembleRegressor", |call| regress(call, call.int_or("n_targets", 1))),
    own("TreeEnsemble", ensemble),
    own("LinearClassifier", |call| classify(call, |_, classes| classes)),
    own("SVMClassifier", |call| classify(call, one_versus_one)),
    own("TreeEnsembleClassifier", |call| classify(call, |_, classes| classes)),
    own("ZipMap", |_| Ok(vec![Fact::Sequence { element: Box::new(Fact::Opaque), length: Range::ANY_SIZE }])),
    own("CastMap", |_| one(types::FLOAT, vec![Range::exactly(1), Range::ANY_SIZE])),
    own("DictVectorizer", dictionary),
    own("Adagrad", |call| update(call, 2)),
    own("Adam", |call| update(call, 3)),
    own("Gradient", gradient),
    own("Momentum", |call| update(call, 2)),
];

/// A loss for each sample, or one; the softmax version may give the logarithms, too.
fn loss(call: &Call<'_>) -> Outcome {
    let data_type = call.data_type(0);
    let reduced = match call.text("reduction").unwrap_or("mean") {
        "none" => call.shape(1)?.to_vec(),
        _ => Vec::new(),
    };
    let logarithms = Tensor::new(data_type, call.shape(0)?.to_vec());
    Ok(vec![Tensor::new(data_type, reduced).into(), logarithms.into()])
}

fn floats(call: &Call<'_>) -> Outcome {
    one(types::FLOAT, call.shape(0)?.to_vec())
}

fn encode(call: &Call<'_>) -> Outcome {
    let has = |name: &str| call.node.attribute(name).is_some();
    let opposite = if call.data_type(0) == types::STRING { types::INT64 } else { types::STRING };
    // Version 1 maps texts to their positions, and back.
    let data_type = if has("classes_strings") {
        opposite
    } else if has("values_strings") || has("default_string") && !has("values_int64s") {
        types::STRING
    } else if has("values_floats") {
        types::FLOAT
    } else if has("values_int64s") {
        types::INT64
    } else if let Some(values) = call.node.tensor("values_tensor") {
        values.data_type
    } else {
        opposite
    };
    one(data_type, call.shape(0)?.to_vec())
}

fn map_categories(call: &Call<'_>) -> Outcome {
    let data_type = if call.data_type(0) == types::STRING { types::INT64 } else { types::STRING };
    one(data_type, call.shape(0)?.to_vec())
}

fn one_hot(call: &Call<'_>) -> Outcome {
    let integers = call.ints("cats_int64s").map_or(0, <[i64]>::len);
    let count = integers.max(call.text_count("cats_strings").unwrap_or(0));
    let count = Range::exactly(i64::try_from(count).unwrap_or(i64::MAX));
    one(types::FLOAT, [call.shape(0)?, &[count]].concat())
}

fn extract(call: &Call<'_>) -> Outcome {
    let (shape, indices) = (call.shape(0)?, Range::product(call.shape(1)?));
    let outer = match shape {
        [] => return Err(Fault::Invalid("its input is a scalar")),
        [_] => vec![Range::exactly(1)],
        [outer @ .., _] => outer.to_vec(),
    };
    one(call.data_type(0), [&outer[..], &[indices]].concat())
}

fn vectorize(call: &Call<'_>) -> Outcome {
    let widths = call.ints("inputdimensions").unwrap_or_default();
    let width = widths.iter().fold(Range::exactly(0), |sum, &width| sum.add(Range::exactly(width)));
    let rows = if call.rank(0)? > 1 { call.size(0, 0)? } else { Range::exactly(1) };
    one(types::FLOAT, vec![rows, width])
}

/// Returns the number of samples: a vector is one.
fn samples(call: &Call<'_>) -> Result<Range, Fault> {
    Ok(if call.rank(0)? > 1 { call.size(0, 0)? } else { Range::exactly(1) })
}

fn regress(call: &Call<'_>, targets: i64) -> Outcome {
    one(types::FLOAT, vec![samples(call)?, Range::exactly(targets)])
}

fn ensemble(call: &Call<'_>) -> Outcome {
    one(call.data_type(0), vec![samples(call)?, Range::exactly(call.int_or("n_targets", 1))])
}

/// Support vectors without probabilities have a score for each pair of classes.
fn one_versus_one(call: &Call<'_>, classes: i64) -> i64 {
    let has = |name| call.floats(name).is_some_and(|floats| !floats.is_empty());
    if classes <= 2 || has("prob_a") || !has("support_vectors") {
        return classes;
    }
    classes.saturating_mul(classes - 1) / 2
}

/// A label and scores for each sample, whose number follows from that of the classes.
fn classify(call: &Call<'_>, scores: fn(&Call<'_>, i64) -> i64) -> Outcome {
    let texts = ["classlabels_strings", "classes_strings"];
    let texts = texts.iter().filter_map(|name| call.text_count(name)).max().unwrap_or(0);
    let ints = ["classlabels_ints", "classlabels_int64s"].iter().filter_map(|name| call.ints(name));
    let ints = ints.map(<[i64]>::len).max().unwrap_or(0);
    let labels = if texts > 0 { types::STRING } else { types::INT64 };
    let width = match texts.max(ints) {
        0 => Range::ANY_SIZE,
        count => Range::exactly(scores(call, i64::try_from(count).unwrap_or(i64::MAX))),
    };
    let samples = samples(call)?;
    let scores = Tensor::new(types::FLOAT, vec![samples, width]);
    Ok(vec![Tensor::new(labels, vec![samples]).into(), scores.into()])
}

fn dictionary(call: &Call<'_>) -> Outcome {
    let texts = call.text_count("string_vocabulary").unwrap_or(0);
    let count = texts.max(call.ints("int64_vocabulary").map_or(0, <[i64]>::len));
    one(types::FLOAT, vec![Range::exactly(1), Range::exactly(i64::try_from(count).unwrap_or(i64::MAX))])
}

/// A gradient for each of the first inputs.
fn gradient(call: &Call<'_>) -> Outcome {
    let of = |index| Ok(Tensor { elements: None, ..call.tensor(index)?.clone() }.into());
    (0..call.node.outputs.len()).map(of).collect()
}

/// New tensors and their moments: the inputs after rate and step, without the gradients. `groups` tensors
/// for each trained one, of which the gradient is another.
fn update(call: &Call<'_>, groups: usize) -> Outcome {
    let trained = call.inputs.len().saturating_sub(2) / (groups + 1);
    let input = |index: usize| {
        let tensor = call.tensor(2 + if index < trained { index } else { index + trained })?;
        Ok(Tensor { elements: None, ..tensor.clone() }.into())
    };
    (0..groups * trained).map(input).collect()
}
