//! Sizes for the inputs of ONNX models, from the command line.

use crate::plan_arguments::PlanArguments;
use crate::{output, table};
use orlop::lab::verdict::quoted;
use orlop::onnx::{InputSize, OnnxError, OnnxFile, OnnxInput, OnnxModel, OnnxReader, UnknownSize};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// A list of numbers for each of several names gives as many plans as their product.
const MAX_PLANS: usize = 1000;

/// A model with sizes for its inputs.
pub(crate) struct SizedModel {
    /// What distinguishes it from the others, such as `batch=8`.
    pub(crate) label: String,
    pub(crate) model: OnnxModel,
}

/// Resolves a model with each combination of the numbers that were given.
pub(crate) fn resolve(arguments: &PlanArguments, file: &OnnxFile) -> Result<Vec<SizedModel>, String> {
    let mut readers = vec![(Vec::new(), reader(arguments))];
    for (symbol, sizes) in &arguments.bindings {
        if readers.len().saturating_mul(sizes.len()) > MAX_PLANS {
            return Err(format!("these are more than {MAX_PLANS} plans"));
        }
        let bound = readers.iter().flat_map(|(labels, reader)| {
            sizes.iter().map(move |size| {
                let mut labels = labels.clone();
                labels.extend((sizes.len() > 1).then(|| label(symbol, size)));
                (labels, reader.clone().bind_range(symbol, size.clone()))
            })
        });
        readers = bound.collect();
    }
    for symbol in readers.first().map_or_else(Vec::new, |(_, reader)| reader.unused_bindings(file)) {
        output::report(&format!("{}: nothing has the name {symbol:?}", arguments.file.display()));
    }
    let resolved = readers.into_iter().map(|(labels, reader)| {
        let model = reader.resolve(file).map_err(|error| explained(&error, arguments, file))?;
        Ok(SizedModel { label: labels.join(", "), model })
    });
    resolved.collect()
}

fn label(symbol: &str, size: &RangeInclusive<u64>) -> String {
    let symbol = table::plain(symbol);
    if size.start() == size.end() {
        format!("{symbol}={}", size.start())
    } else {
        format!("{symbol}={}..{}", size.start(), size.end())
    }
}

/// Returns a reader with all that is the same in each plan.
fn reader(arguments: &PlanArguments) -> OnnxReader {
    let mut reader = OnnxReader::new();
    for (name, sizes) in &arguments.inputs {
        reader = match name {
            Some(name) => reader.input(name, sizes),
            None => reader.next_input(sizes),
        };
    }
    let reader = arguments.values.iter().fold(reader, |reader, (name, value)| reader.value(name, value));
    arguments.bounds.iter().fold(reader, |reader, (name, sizes)| reader.bound(name, sizes))
}

/// Formats an error with what the command line can do about it.
fn explained(error: &OnnxError, arguments: &PlanArguments, file: &OnnxFile) -> String {
    match error {
        OnnxError::MissingSizes { inputs } => {
            let options = missing(inputs, arguments);
            format!("{error}; give them numbers: {}", options.join(" "))
        }
        OnnxError::UnknownSizes { values } => {
            let options: BTreeSet<String> = values.iter().flat_map(bounds).collect();
            let options: Vec<_> = options.into_iter().collect();
            format!("{error}; give elements of inputs, or largest sizes: {}", options.join(" "))
        }
        OnnxError::Contradiction { .. } => {
            let is_open = |size: &InputSize| !matches!(size, InputSize::Number(_));
            let has_open =
                |input: &OnnxInput| input.sizes.as_ref().is_none_or(|sizes| sizes.iter().any(is_open));
            let inputs = file.inputs();
            let open = inputs.iter().filter(|input| has_open(input));
            let options: Vec<String> = open.map(|input| all_sizes(input, &[])).collect();
            match options.is_empty() {
                true => error.to_string(),
                false => format!("{error}; give others: {}", options.join(" ")),
            }
        }
        error => error.to_string(),
    }
}

/// Returns the options for sizes that are missing: names once, and all sizes of inputs that have none.
fn missing(inputs: &[OnnxInput], arguments: &PlanArguments) -> Vec<String> {
    let is_bound = |name: &String| arguments.bindings.iter().any(|(bound, _)| bound == name);
    let mut options: Vec<String> = Vec::new();
    for input in inputs {
        let sizes = input.sizes.as_deref();
        let has_names = sizes.is_some_and(|sizes| !sizes.contains(&InputSize::Unknown));
        let names =
            sizes.unwrap_or_default().iter().flat_map(InputSize::names).filter(|name| !is_bound(name));
        let of_input: Vec<String> = match has_names {
            true => names.map(|name| format!("--bind {}=N", quoted(&name))).collect(),
            false => vec![all_sizes(input, &arguments.bindings)],
        };
        for option in of_input {
            if !options.contains(&option) {
                options.push(option);
            }
        }
    }
    options
}

/// Returns the option for all sizes of an input, with a letter for each that has no number and no binding to
/// one.
fn all_sizes(input: &OnnxInput, bindings: &[(String, Vec<RangeInclusive<u64>>)]) -> String {
    let name = quoted(&input.name);
    let Some(sizes) = &input.sizes else { return format!("--input {name}=AxBx…") };
    let bound = |name: &str| {
        let (_, sizes) = bindings.iter().find(|(bound, _)| bound == name)?;
        let [size] = &sizes[..] else { return None };
        (size.start() == size.end()).then(|| size.start().to_string())
    };
    let size = |(dimension, size): (usize, &InputSize)| match size {
        InputSize::Number(number) => number.to_string(),
        InputSize::Symbol(name) => bound(name).unwrap_or_else(|| "N".to_owned()),
        InputSize::Unknown => bound(&format!("{}:{dimension}", input.name)).unwrap_or_else(|| "N".to_owned()),
    };
    format!("--input {name}={}", sizes.iter().enumerate().map(size).collect::<Vec<_>>().join("x"))
}

/// Returns the options that can bound a value.
fn bounds(unknown: &UnknownSize) -> Vec<String> {
    if !unknown.inputs.is_empty() {
        return unknown.inputs.iter().map(|input| format!("--value {}=N", quoted(input))).collect();
    }
    let (name, sizes) = match &*unknown.operator {
        "Loop" => (&unknown.node, "N"),
        _ => (&unknown.value, "AxBx…"),
    };
    vec![format!("--bound {}={sizes}", quoted(name))]
}
