//! [`Bindings`]: the numbers that a user gives for what a file leaves open.

use crate::expression;
use crate::file::{InputSize, OnnxFile, OnnxInput};
use crate::infer::{Element, Fact, Range, Tensor, Unknowns};
use crate::{InputConflict, OnnxError};
use std::collections::{BTreeMap, BTreeSet};

/// The numbers that a user gives.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Bindings {
    /// By name of a size.
    pub(crate) symbols: BTreeMap<String, Range>,
    /// The sizes of inputs, by name.
    pub(crate) inputs: BTreeMap<String, Vec<Range>>,
    /// The sizes of inputs without a name, in their order.
    pub(crate) unnamed: Vec<Vec<Range>>,
    /// The elements of inputs.
    pub(crate) values: BTreeMap<String, Vec<f64>>,
    /// The sizes that values have at most, and the trips of loops.
    pub(crate) bounds: BTreeMap<String, Vec<u64>>,
}

impl Bindings {
    /// Returns the size of a name, or of an expression of names: the one that it is bound to, or else its
    /// value.
    pub(crate) fn size_of(&self, symbol: &str) -> Option<Range> {
        if let Some(&size) = self.symbols.get(symbol) {
            return Some(size);
        }
        let ends = |name: &str| {
            let size = self.symbols.get(name)?;
            Some([u64::try_from(size.min()).ok()?, u64::try_from(size.max()).ok()?])
        };
        let [min, max] = expression::evaluate(symbol, ends)?;
        Some(Range::between(i64::try_from(min).ok()?, i64::try_from(max).ok()?))
    }

    /// Returns the bindings with a number for each name that the sizes of inputs give one, and the facts of
    /// the inputs: sizes of the same name are the same unknown.
    pub(crate) fn for_file(&self, file: &OnnxFile) -> Result<(Self, Unknowns, Vec<Fact>), OnnxError> {
        let inputs = file.inputs();
        let mut complete = self.clone();
        complete.name_inputs(&inputs)?;
        for input in &inputs {
            complete.note_symbols(input)?;
        }
        complete.name_expressions(&inputs);
        let mut unknowns = Unknowns::default();
        for size in complete.symbols.values_mut() {
            *size = unknowns.add(*size);
        }
        let mut facts = Vec::with_capacity(inputs.len());
        let mut missing = Vec::new();
        for (input, &value) in inputs.into_iter().zip(&file.scope.inputs) {
            let claim = file.scope.values[value].claim.as_ref();
            let claim = claim.map_or(Fact::Unknown, crate::infer::fact_of_type);
            match complete.fact(&input, claim)? {
                Some(fact) => facts.push(fact),
                None => missing.push(input),
            }
        }
        if missing.is_empty() {
            Ok((complete, unknowns, facts))
        } else {
            Err(OnnxError::MissingSizes { inputs: missing })
        }
    }

    /// Gives sizes without a name to the inputs that have no other ones.
    fn name_inputs(&mut self, inputs: &[OnnxInput]) -> Result<(), OnnxError> {
        let is_known = |name: &String| inputs.iter().any(|input| input.name == *name);
        let unknown = self.inputs.keys().chain(self.values.keys()).find(|name| !is_known(name));
        if let Some(name) = unknown {
            let inputs = inputs.iter().map(|input| input.name.clone()).collect();
            return Err(OnnxError::UnknownInput { name: name.clone(), inputs });
        }
        let mut unnamed = std::mem::take(&mut self.unnamed).into_iter();
        for input in inputs {
            if !self.inputs.contains_key(&input.name) {
                let Some(sizes) = unnamed.next() else { return Ok(()) };
                self.inputs.insert(input.name.clone(), sizes);
            }
        }
        match unnamed.next() {
            Some(_) => Err(OnnxError::TooManyInputs { inputs: inputs.len() }),
            None => Ok(()),
        }
    }

    /// Binds the names in an input whose sizes were given.
    fn note_symbols(&mut self, input: &OnnxInput) -> Result<(), OnnxError> {
        let (Some(given), Some(sizes)) = (self.inputs.get(&input.name), &input.sizes) else { return Ok(()) };
        if given.len() != sizes.len() {
            return Err(conflict(input, InputConflict::Rank { given: given.len(), in_file: sizes.len() }));
        }
        for (dimension, (size, &given)) in sizes.iter().zip(given).enumerate() {
            let known = match size {
                InputSize::Number(number) => i64::try_from(*number).ok().map(Range::exactly),
                InputSize::Symbol(name) => self.symbols.get(name).copied(),
                InputSize::Unknown => None,
            };
            if let Some(known) = known.filter(|&known| known != given) {
                let [given, known] = [given, known].map(|range| u64::try_from(range.max()).unwrap_or(0));
                return Err(conflict(input, InputConflict::Size { dimension, given, known }));
            }
            if let InputSize::Symbol(name) = size {
                self.symbols.insert(name.clone(), given);
            }
        }
        Ok(())
    }

    /// Binds the expressions that have ranges: each is the same size wherever it occurs.
    fn name_expressions(&mut self, inputs: &[OnnxInput]) {
        for size in inputs.iter().filter_map(|input| input.sizes.as_ref()).flatten() {
            if let InputSize::Symbol(text) = size
                && let Some(range) = self.size_of(text).filter(|range| range.exact().is_none())
            {
                self.symbols.insert(text.clone(), range);
            }
        }
    }

    /// Returns the fact of an input. `None` if sizes are missing.
    fn fact(&self, input: &OnnxInput, claim: Fact) -> Result<Option<Fact>, OnnxError> {
        let given = self.inputs.get(&input.name);
        let data_type = match &claim {
            Fact::Tensor(tensor) => tensor.data_type,
            // What is in a sequence is not planned: its sizes may stay open.
            Fact::Sequence { .. } | Fact::Optional(_) | Fact::Opaque => {
                return Ok(Some(given.map_or_else(|| claim.clone(), |sizes| with_shape(&claim, sizes))));
            }
            Fact::Unknown => 0,
        };
        let shape: Option<Vec<Range>> = match (given, &input.sizes) {
            (Some(given), Some(sizes)) => {
                let named = |(&given, size): (&Range, &InputSize)| match size {
                    InputSize::Symbol(name) => self.symbols.get(name).copied().unwrap_or(given),
                    _ => given,
                };
                Some(given.iter().zip(sizes).map(named).collect())
            }
            (Some(given), None) => Some(given.clone()),
            (None, Some(sizes)) => {
                let numbered = sizes.iter().enumerate();
                numbered.map(|(dimension, size)| self.size_in(&input.name, dimension, size)).collect()
            }
            (None, None) => None,
        };
        let Some(shape) = shape else { return Ok(None) };
        let tensor = Tensor::new(data_type, shape);
        let Some(values) = self.values.get(&input.name) else { return Ok(Some(tensor.into())) };
        let is_whole = tensor.small_sizes().map(|sizes| sizes.iter().product()) == Some(values.len());
        if !is_whole {
            return Err(conflict(input, InputConflict::Elements { given: values.len() }));
        }
        let elements = values.iter().map(|&value| Element::exact_real(value).cast(data_type)).collect();
        Ok(Some(Tensor { elements, ..tensor }.into()))
    }

    fn size_in(&self, input: &str, dimension: usize, size: &InputSize) -> Option<Range> {
        let by_position = || self.symbols.get(&position(input, dimension)).copied();
        match size {
            InputSize::Number(number) => i64::try_from(*number).ok().map(Range::exactly),
            InputSize::Symbol(name) => self.size_of(name).or_else(by_position),
            InputSize::Unknown => by_position(),
        }
    }

    /// Returns the names that were given a number or a bound and that the file does not have.
    pub(crate) fn unused(&self, file: &OnnxFile) -> Vec<String> {
        let position_of = |input: OnnxInput| {
            let dimensions = input.sizes.map_or(0, |sizes| sizes.len());
            (0..dimensions).map(move |dimension| position(&input.name, dimension))
        };
        let positions: BTreeSet<String> = file.inputs().into_iter().flat_map(position_of).collect();
        let is_unused = |name: &&String| !file.symbols.contains(*name) && !positions.contains(*name);
        let bounds = self.bounds.keys().filter(|name| !file.scope.has_name(name));
        self.symbols.keys().filter(is_unused).chain(bounds).cloned().collect()
    }
}

/// Gives the tensors in a sequence, or in a value that may be missing, a shape.
fn with_shape(claim: &Fact, sizes: &[Range]) -> Fact {
    match claim {
        Fact::Tensor(tensor) => Tensor::new(tensor.data_type, sizes.to_vec()).into(),
        Fact::Sequence { element, length } => {
            Fact::Sequence { element: Box::new(with_shape(element, sizes)), length: *length }
        }
        Fact::Optional(inner) => Fact::Optional(Box::new(with_shape(inner, sizes))),
        Fact::Unknown | Fact::Opaque => claim.clone(),
    }
}

/// Returns the name of a dimension by its position.
fn position(input: &str, dimension: usize) -> String {
    format!("{input}:{dimension}")
}

fn conflict(input: &OnnxInput, conflict: InputConflict) -> OnnxError {
    OnnxError::InputConflict { input: input.name.clone(), conflict }
}
