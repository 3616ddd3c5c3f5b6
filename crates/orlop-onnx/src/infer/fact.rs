//! [`Fact`]: what is known about a value of a graph.

use super::{Element, Range, types};

/// Tensors with more elements are not tracked: shapes are computed from small ones.
pub(crate) const MAX_ELEMENTS: usize = 512;

/// Tensors of more dimensions are not tracked.
const MAX_RANK: usize = 64;

/// What is known about a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fact {
    Unknown,
    Tensor(Tensor),
    /// Tensors, which are not in one piece of memory.
    Sequence {
        element: Box<Fact>,
        length: Range,
    },
    /// A value that may be missing.
    Optional(Box<Fact>),
    /// A map or another value that is no tensor.
    Opaque,
}

/// What is known about a tensor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tensor {
    /// ONNX's number for the type of the elements; 0 if it is unknown.
    pub(crate) data_type: i32,
    pub(crate) shape: Option<Vec<Range>>,
    /// The elements in their order. Only small tensors with exact sizes have them.
    pub(crate) elements: Option<Vec<Element>>,
}

impl Tensor {
    pub(crate) fn new(data_type: i32, shape: Vec<Range>) -> Self {
        Self { data_type, shape: Some(shape), elements: None }
    }

    pub(crate) fn of_unknown_shape(data_type: i32) -> Self {
        Self { data_type, shape: None, elements: None }
    }

    /// Creates a tensor with these elements, as far as they can be tracked.
    pub(crate) fn with_elements(data_type: i32, sizes: &[usize], elements: Vec<Element>) -> Self {
        let shape = sizes.iter().map(|&size| Range::exactly(i64::try_from(size).unwrap_or(i64::MAX)));
        let is_whole = elements.len() <= MAX_ELEMENTS && sizes.iter().product::<usize>() == elements.len();
        Self { elements: is_whole.then_some(elements), ..Self::new(data_type, shape.collect()) }
    }

    /// Creates a row of integers.
    pub(crate) fn row(ranges: impl IntoIterator<Item = Range>) -> Self {
        let elements: Vec<_> = ranges.into_iter().map(Element::Int).collect();
        Self::with_elements(types::INT64, &[elements.len()], elements)
    }

    /// Returns the sizes, if all are exact.
    pub(crate) fn exact_sizes(&self) -> Option<Vec<usize>> {
        let shape = self.shape.as_ref()?;
        shape.iter().map(|size| usize::try_from(size.exact()?).ok()).collect()
    }

    /// Returns the sizes of a tensor that is small enough to have its elements tracked.
    pub(crate) fn small_sizes(&self) -> Option<Vec<usize>> {
        let sizes = self.exact_sizes()?;
        is_small(&sizes).then_some(sizes)
    }

    /// Returns the elements, each of them any if they are unknown, of a small tensor.
    pub(crate) fn elements_or_any(&self) -> Option<Vec<Element>> {
        if let Some(elements) = &self.elements {
            return Some(elements.clone());
        }
        let count = self.small_sizes()?.iter().product();
        Some(vec![Element::any(self.data_type)?; count])
    }

    pub(crate) fn is_strings(&self) -> bool {
        self.data_type == types::STRING
    }

    pub(crate) fn has_exact_shape(&self) -> bool {
        self.shape.as_ref().is_some_and(|shape| shape.iter().all(|size| size.exact().is_some()))
    }

    /// Returns the hull of two tensors: what holds for either of them.
    pub(crate) fn hull(&self, other: &Self) -> Self {
        let shape = match (&self.shape, &other.shape) {
            (Some(left), Some(right)) if left.len() == right.len() => {
                Some(left.iter().zip(right).map(|(left, right)| left.hull(*right)).collect())
            }
            // A scalar and a row of one element have the same size, whatever is computed from them.
            (Some(left), Some(right)) if left.iter().chain(right).all(|size| size.max() <= 1) => {
                Some(vec![Range::up_to(1); left.len().max(right.len())])
            }
            _ => None,
        };
        let is_same = self.shape == other.shape && self.data_type == other.data_type;
        let elements = match (&self.elements, &other.elements) {
            (Some(left), Some(right)) if is_same && left.len() == right.len() => {
                Some(left.iter().zip(right).map(|(left, right)| left.hull(*right)).collect())
            }
            _ => None,
        };
        let data_type = if self.data_type == 0 { other.data_type } else { self.data_type };
        Self { data_type, shape, elements }
    }
}

/// Returns `true` if a tensor of these sizes is small enough to have its elements tracked.
pub(crate) fn is_small(sizes: &[usize]) -> bool {
    let count = sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    sizes.len() <= MAX_RANK && count.is_some_and(|count| count <= MAX_ELEMENTS)
}

impl Fact {
    pub(crate) fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            // A present optional value is used as its contents.
            Self::Optional(inner) => inner.tensor(),
            _ => None,
        }
    }

    /// Returns a value with room for either of two: their hull, or where they differ in rank the one with
    /// more elements.
    pub(crate) fn room(&self, other: &Self) -> Self {
        if let (Self::Tensor(left), Self::Tensor(right)) = (self, other)
            && let (Some(shape), Some(other_shape)) = (&left.shape, &right.shape)
            && shape.len() != other_shape.len()
            && left.data_type == right.data_type
        {
            let is_larger = Range::product(shape).max() >= Range::product(other_shape).max();
            let larger = if is_larger { left } else { right };
            return Self::Tensor(Tensor { elements: None, ..larger.clone() });
        }
        self.hull(other)
    }

    /// Returns `true` unless the size of a value is unknown. What is in no plan needs none.
    pub(crate) fn has_size(&self) -> bool {
        match self {
            Self::Tensor(tensor) => {
                tensor.shape.as_ref().is_some_and(|shape| shape.iter().all(|size| size.is_bounded()))
            }
            Self::Unknown => false,
            Self::Sequence { .. } | Self::Optional(_) | Self::Opaque => true,
        }
    }

    /// Returns `true` if two values are known to have the same sizes, whatever these are.
    pub(crate) fn has_sizes_of(&self, other: &Self) -> bool {
        let shape = |fact| Self::tensor(fact).and_then(|tensor| tensor.shape.as_deref());
        let (Some(own), Some(other)) = (shape(self), shape(other)) else { return false };
        own.len() == other.len() && own.iter().zip(other).all(|(own, &other)| own.is_same(other))
    }

    /// Forgets all about sizes and elements but their ranges.
    pub(crate) fn forget_factors(&mut self) {
        self.update_ranges(&mut |range| range.with_factors(None));
    }

    /// Applies a function to the sizes and the integers of a tensor. Of the tensors in a sequence, each of
    /// which has sizes of its own, only the ranges stay known.
    pub(super) fn update_ranges(&mut self, function: &mut impl FnMut(Range) -> Range) {
        match self {
            Self::Tensor(tensor) => {
                for size in tensor.shape.iter_mut().flatten() {
                    *size = function(*size);
                }
                for element in tensor.elements.iter_mut().flatten() {
                    if let Element::Int(range) = element {
                        *range = function(*range);
                    }
                }
            }
            Self::Sequence { element, length } => {
                element.forget_factors();
                *length = function(*length);
            }
            Self::Optional(inner) => inner.forget_factors(),
            Self::Unknown | Self::Opaque => {}
        }
    }

    /// Returns `true` for a tensor whose sizes and elements are known.
    pub(crate) fn is_exact(&self) -> bool {
        let is_exact = |tensor: &Tensor| {
            let elements = tensor.elements.as_ref();
            tensor.exact_sizes().is_some() && elements.is_some_and(|all| all.iter().all(|it| it.is_exact()))
        };
        self.tensor().is_some_and(is_exact)
    }

    /// Returns whether the sizes of a tensor, and its elements, have an upper bound.
    pub(crate) fn bounds(&self) -> [bool; 2] {
        self.tensor().map_or([false; 2], |tensor| {
            let sizes = tensor.shape.as_ref().is_some_and(|sizes| sizes.iter().all(|size| size.is_bounded()));
            let elements = tensor.elements.as_ref().is_some_and(|all| all.iter().all(|it| it.is_bounded()));
            [sizes, elements]
        })
    }

    /// Returns what holds for both of two values.
    pub(crate) fn hull(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Tensor(left), Self::Tensor(right)) => Self::Tensor(left.hull(right)),
            (Self::Sequence { element, length }, Self::Sequence { element: other, length: other_length }) => {
                let element = match (&**element, &**other) {
                    // An empty sequence says nothing about its elements.
                    (Self::Unknown, known) | (known, Self::Unknown) => known.clone(),
                    (left, right) => left.hull(right),
                };
                Self::Sequence { element: Box::new(element), length: length.hull(*other_length) }
            }
            (Self::Optional(left), Self::Optional(right)) => Self::Optional(Box::new(left.hull(right))),
            (Self::Optional(inner), other) | (other, Self::Optional(inner)) => {
                Self::Optional(Box::new(inner.hull(other)))
            }
            (Self::Opaque, Self::Opaque) => Self::Opaque,
            _ => Self::Unknown,
        }
    }
}

impl From<Tensor> for Fact {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}
