//! [`Call`]: a node with what is known about its inputs, as rules see it.

use super::{Element, Fact, Range, Tensor};
use crate::decode::Node;
use crate::proto::TypeProto;

/// Why a rule has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not enough is known about the inputs.
    Unknown,
    /// The inputs contradict the operator.
    Invalid(&'static str),
}

/// What a rule knows about the outputs of a node, in their order.
pub(crate) type Outcome = Result<Vec<Fact>, Fault>;

/// A node with what is known about its inputs.
pub(crate) struct Call<'a> {
    pub(crate) node: &'a Node,
    /// In the order of the node's inputs. `None` for those that are left out.
    pub(crate) inputs: Vec<Option<&'a Fact>>,
}

impl<'a> Call<'a> {
    pub(crate) fn has(&self, index: usize) -> bool {
        self.fact(index).is_ok()
    }

    pub(crate) fn fact(&self, index: usize) -> Result<&'a Fact, Fault> {
        self.inputs.get(index).copied().flatten().ok_or(Fault::Unknown)
    }

    pub(crate) fn tensor(&self, index: usize) -> Result<&'a Tensor, Fault> {
        self.fact(index)?.tensor().ok_or(Fault::Unknown)
    }

    /// Returns the tensors among the inputs.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &'a Tensor> {
        self.inputs.iter().filter_map(|fact| fact.and_then(Fact::tensor))
    }

    /// Returns the type of the elements of an input; 0 if it is unknown.
    pub(crate) fn data_type(&self, index: usize) -> i32 {
        self.tensor(index).map_or(0, |tensor| tensor.data_type)
    }

    pub(crate) fn shape(&self, index: usize) -> Result<&'a [Range], Fault> {
        self.tensor(index)?.shape.as_deref().ok_or(Fault::Unknown)
    }

    pub(crate) fn rank(&self, index: usize) -> Result<usize, Fault> {
        self.shape(index).map(<[Range]>::len)
    }

    /// Returns a dimension of an input.
    pub(crate) fn size(&self, index: usize, dimension: usize) -> Result<Range, Fault> {
        self.shape(index)?.get(dimension).copied().ok_or(Fault::Invalid("an input has too few dimensions"))
    }

    /// Returns what is known about the elements of a small input, of any of its elements if that is nothing.
    pub(crate) fn elements(&self, index: usize) -> Option<Vec<Element>> {
        self.tensor(index).ok()?.elements_or_any()
    }

    /// Returns the ranges of the integers in a small input.
    pub(crate) fn ranges(&self, index: usize) -> Result<Vec<Range>, Fault> {
        let elements = self.elements(index).ok_or(Fault::Unknown)?;
        elements.into_iter().map(|element| element.range().ok_or(Fault::Unknown)).collect()
    }

    /// Returns the integers in a small input, all of them known.
    pub(crate) fn integers(&self, index: usize) -> Result<Vec<i64>, Fault> {
        self.ranges(index)?.into_iter().map(|range| range.exact().ok_or(Fault::Unknown)).collect()
    }

    /// Returns the one integer in an input.
    pub(crate) fn integer(&self, index: usize) -> Result<Range, Fault> {
        self.ranges(index)?.first().copied().ok_or(Fault::Invalid("an input has no element"))
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.node.attribute(name)?.i
    }

    pub(crate) fn int_or(&self, name: &str, default: i64) -> i64 {
        self.int(name).unwrap_or(default)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.int_or(name, 0) != 0
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&'a [i64]> {
        self.node.attribute(name).map(|attribute| &*attribute.ints)
    }

    pub(crate) fn floats(&self, name: &str) -> Option<&'a [f32]> {
        self.node.attribute(name).map(|attribute| &*attribute.floats)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        std::str::from_utf8(self.node.attribute(name)?.s.as_deref()?).ok()
    }

    /// Returns the number of texts in an attribute.
    pub(crate) fn text_count(&self, name: &str) -> Option<usize> {
        self.node.attribute(name).map(|attribute| attribute.strings.len())
    }

    pub(crate) fn type_attribute(&self, name: &str) -> Option<&'a TypeProto> {
        self.node.attribute(name)?.tp.as_ref()
    }

    /// Returns a data type that an attribute has as a number.
    pub(crate) fn type_or(&self, name: &str, default: i32) -> i32 {
        self.int(name).and_then(|number| i32::try_from(number).ok()).unwrap_or(default)
    }

    /// Returns the axes in an input, or in the attribute `axes` of older versions. `None` if there are none.
    pub(crate) fn axes(&self, input: usize) -> Result<Option<Vec<i64>>, Fault> {
        match self.has(input) {
            true => self.integers(input).map(Some),
            false => Ok(self.ints("axes").map(<[i64]>::to_vec)),
        }
    }
}

/// Returns the index of an axis, which may be counted from the end.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Result<usize, Fault> {
    let rank = i64::try_from(rank).map_err(|_| Fault::Unknown)?;
    let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
    let is_within = (0..rank).contains(&axis);
    usize::try_from(axis).ok().filter(|_| is_within).ok_or(Fault::Invalid("it has no such axis"))
}

/// Returns one tensor as the outcome.
pub(crate) fn one(data_type: i32, shape: Vec<Range>) -> Outcome {
    Ok(vec![Tensor::new(data_type, shape).into()])
}
