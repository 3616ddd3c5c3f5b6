//! Widening: the state of a loop settles, though each iteration changes it.

use super::{Element, Fact, Range, Tensor};

/// Takes the bounds that still move from sizes and elements, so that a state settles. Those that do not move
/// stay: a number that each iteration increases is not below its first value.
pub(super) fn widened((joined, before): (&Fact, &Fact)) -> Fact {
    match (joined, before) {
        (Fact::Tensor(joined), Fact::Tensor(before)) if joined != before => {
            let shape = match (&joined.shape, &before.shape) {
                (Some(joined), Some(before)) => {
                    let size = |(joined, before): (&Range, &Range)| joined.widened(*before, Range::ANY_SIZE);
                    Some(joined.iter().zip(before).map(size).collect())
                }
                _ => None,
            };
            let elements = match (&joined.elements, &before.elements) {
                (Some(joined_elements), Some(before)) => {
                    let element = |(element, before): (&Element, &Element)| {
                        Some(element.widened(*before, Element::any(joined.data_type)?))
                    };
                    joined_elements.iter().zip(before).map(element).collect()
                }
                _ => None,
            };
            Fact::Tensor(Tensor { data_type: joined.data_type, shape, elements })
        }
        (Fact::Sequence { element, length }, Fact::Sequence { element: inner, length: before }) => {
            let length = length.widened(*before, Range::ANY_SIZE);
            Fact::Sequence { element: Box::new(widened((element, inner))), length }
        }
        (joined, _) => joined.clone(),
    }
}
