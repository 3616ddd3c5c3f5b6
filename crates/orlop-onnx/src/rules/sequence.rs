//! Sequences, optional values and strings.

use super::elementwise::same;
use super::{Operator, own};
use crate::infer::{Call, Element, Fact, Fault, Outcome, Range, Tensor, axis_of, fact_of_type, one, types};

pub(super) const OPERATORS: &[Operator] = &[
    own("SequenceConstruct", construct),
    own("SequenceEmpty", empty),
    own("SequenceInsert", insert),
    own("SequenceErase", erase),
    own("SequenceAt", at),
    own("SequenceLength", length),
    own("ConcatFromSequence", concat),
    own("SplitToSequence", split),
    own("Optional", optional),
    own("OptionalHasElement", has_element),
    own("OptionalGetElement", get_element),
    own("StringConcat", super::elementwise::broadcast),
    own("StringNormalizer", normalize_strings),
    own("StringSplit", split_strings),
    own("RegexFullMatch", |call| one(types::BOOL, call.shape(0)?.to_vec())),
    own("TfIdfVectorizer", vectorize),
];

fn sequence(element: Fact, length: Range) -> Outcome {
    Ok(vec![Fact::Sequence { element: Box::new(element), length }])
}

/// Returns what is in a sequence, and its length.
fn contents<'a>(call: &Call<'a>) -> Result<(&'a Fact, Range), Fault> {
    match call.fact(0)? {
        Fact::Sequence { element, length } => Ok((element, *length)),
        _ => Err(Fault::Unknown),
    }
}

/// Elements that are tensors: their numbers may differ, and are not tracked.
fn without_elements(fact: &Fact) -> Fact {
    match fact {
        Fact::Tensor(tensor) => Tensor { elements: None, ..tensor.clone() }.into(),
        other => other.clone(),
    }
}

fn construct(call: &Call<'_>) -> Outcome {
    let mut element = without_elements(call.fact(0)?);
    for index in 1..call.inputs.len() {
        element = element.hull(&without_elements(call.fact(index)?));
    }
    sequence(element, Range::exactly(i64::try_from(call.inputs.len()).unwrap_or(i64::MAX)))
}

fn empty(_: &Call<'_>) -> Outcome {
    sequence(Fact::Unknown, Range::exactly(0))
}

fn insert(call: &Call<'_>) -> Outcome {
    let (element, length) = contents(call)?;
    let added = without_elements(call.fact(1)?);
    let element = if *element == Fact::Unknown { added } else { element.hull(&added) };
    sequence(element, length.add(Range::exactly(1)))
}

fn erase(call: &Call<'_>) -> Outcome {
    let (element, length) = contents(call)?;
    sequence(element.clone(), length.subtract(Range::exactly(1)).maximum(Range::exactly(0)))
}

fn at(call: &Call<'_>) -> Outcome {
    Ok(vec![contents(call)?.0.clone()])
}

fn length(call: &Call<'_>) -> Outcome {
    let (_, length) = contents(call)?;
    Ok(vec![Tensor::with_elements(types::INT64, &[], vec![Element::Int(length)]).into()])
}

fn concat(call: &Call<'_>) -> Outcome {
    let (element, length) = contents(call)?;
    let tensor = element.tensor().ok_or(Fault::Unknown)?;
    let mut shape = tensor.shape.clone().ok_or(Fault::Unknown)?;
    let adds_axis = call.flag("new_axis");
    let axis = axis_of(call.int("axis").ok_or(Fault::Unknown)?, shape.len() + usize::from(adds_axis))?;
    if adds_axis {
        shape.insert(axis, length);
    } else {
        shape[axis] = shape[axis].multiply(length);
    }
    one(tensor.data_type, shape)
}

fn split(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let axis = axis_of(call.int_or("axis", 0), shape.len())?;
    let all = shape[axis];
    let (part, count) = match call.has(1) {
        false => (Range::exactly(1), all),
        true if call.rank(1)? == 0 => {
            let part = call.integer(1)?;
            let count = all.add(part).subtract(Range::exactly(1)).divide(part).ok_or(Fault::Unknown)?;
            let rest = all
                .exact()
                .zip(part.exact())
                .map(|(all, part)| if all % part == 0 { part } else { all % part });
            (part.with_min(rest.unwrap_or(0)), count)
        }
        true => {
            let parts = call.ranges(1).unwrap_or_default();
            let part = parts.iter().copied().reduce(Range::hull).unwrap_or(Range::up_to(all.max()));
            (part, call.size(1, 0)?)
        }
    };
    shape[axis] = part;
    if !call.has(1) && call.int_or("keepdims", 1) == 0 {
        shape.remove(axis);
    }
    sequence(Tensor::new(call.data_type(0), shape).into(), count)
}

fn optional(call: &Call<'_>) -> Outcome {
    let inner = match (call.has(0), call.type_attribute("type")) {
        (true, _) => call.fact(0)?.clone(),
        (false, Some(of)) => fact_of_type(of),
        (false, None) => Fact::Unknown,
    };
    Ok(vec![Fact::Optional(Box::new(inner))])
}

fn has_element(call: &Call<'_>) -> Outcome {
    let is_present = match call.inputs.first().copied().flatten() {
        None => Range::exactly(0),
        Some(Fact::Optional(_)) => Range::ANY_BOOL,
        Some(_) => Range::exactly(1),
    };
    Ok(vec![Tensor::with_elements(types::BOOL, &[], vec![Element::Int(is_present)]).into()])
}

fn get_element(call: &Call<'_>) -> Outcome {
    match call.fact(0)? {
        Fact::Optional(inner) => Ok(vec![(**inner).clone()]),
        other => Ok(vec![other.clone()]),
    }
}

/// Stop words are left out.
fn normalize_strings(call: &Call<'_>) -> Outcome {
    if call.text_count("stopwords").is_none_or(|count| count == 0) {
        return same(call);
    }
    let mut shape = call.shape(0)?.to_vec();
    if let Some(last) = shape.last_mut() {
        // What has no word left has one that is empty.
        *last = Range::between(1, last.max().max(1));
    }
    one(types::STRING, shape)
}

/// The words, as many as the text with the most of them has, and the number of words of each text.
fn split_strings(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?;
    let words = call.int("maxsplit").map_or(Range::ANY_SIZE, |count| Range::up_to(count.saturating_add(1)));
    let split = Tensor::new(types::STRING, [shape, &[words]].concat());
    Ok(vec![split.into(), Tensor::new(types::INT64, shape.to_vec()).into()])
}

fn vectorize(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?;
    let largest = call.ints("ngram_indexes").and_then(|indexes| indexes.iter().max().copied());
    let width = Range::exactly(largest.ok_or(Fault::Unknown)?.saturating_add(1));
    let outer = &shape[..shape.len().saturating_sub(1)];
    one(types::FLOAT, [outer, &[width]].concat())
}
