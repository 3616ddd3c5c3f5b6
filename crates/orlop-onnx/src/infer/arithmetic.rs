//! Arithmetic on [`Element`]s: what is known about the result of an operator.

use super::element::computed;
use super::{Element, Range, types};
use std::cmp::Ordering;

/// An operator of two arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// The remainder with the sign of the divisor, or of the dividend.
    Modulo {
        like_c: bool,
    },
    Power,
    Minimum,
    Maximum,
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    Xor,
}

/// An operator of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Negate,
    Absolute,
    Floor,
    Ceil,
    /// To the nearest integer, halves to the even one.
    Round,
    SquareRoot,
    Reciprocal,
    /// The greater of the number and 0.
    Relu,
    Not,
    Sign,
}

impl Binary {
    /// Returns the result for elements of this type. `None` if nothing is known.
    pub(crate) fn apply(self, left: Element, right: Element, data_type: i32) -> Option<Element> {
        match self {
            Self::Equal | Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => {
                Some(Element::Int(self.compare(left, right)))
            }
            Self::And | Self::Or | Self::Xor => Some(Element::Int(self.logic(left, right))),
            _ => match (left, right) {
                (Element::Int(left), Element::Int(right)) => self.on_integers(left, right).map(Element::Int),
                _ => self.on_reals(left.span(), right.span(), data_type),
            },
        }
    }

    fn on_integers(self, left: Range, right: Range) -> Option<Range> {
        match self {
            Self::Add => Some(left.add(right)),
            Self::Subtract => Some(left.subtract(right)),
            Self::Multiply => Some(left.multiply(right)),
            Self::Divide => left.divide(right),
            Self::Minimum => Some(left.minimum(right)),
            Self::Maximum => Some(left.maximum(right)),
            Self::Modulo { like_c } => match (left.exact(), right.exact()?) {
                (_, 0) => None,
                (Some(left), right) => {
                    let rest = left.checked_rem(right)?;
                    let is_other_sign = rest != 0 && (rest < 0) != (right < 0);
                    Some(Range::exactly(if is_other_sign && !like_c { rest + right } else { rest }))
                }
                (None, right) if right > 0 && (!like_c || left.min() >= 0) => Some(Range::up_to(right - 1)),
                _ => None,
            },
            Self::Power => {
                let exponent = u32::try_from(right.exact()?).ok()?;
                left.exact()?.checked_pow(exponent).map(Range::exactly)
            }
            _ => None,
        }
    }

    fn on_reals(self, left: (f64, f64), right: (f64, f64), data_type: i32) -> Option<Element> {
        let function: fn(f64, f64) -> f64 = match self {
            Self::Add => |left, right| left + right,
            Self::Subtract => |left, right| left - right,
            Self::Multiply => |left, right| left * right,
            Self::Divide if right.0 > 0.0 || right.1 < 0.0 => |left, right| left / right,
            Self::Minimum => f64::min,
            Self::Maximum => f64::max,
            Self::Power if left.0 == left.1 && right.0 == right.1 => f64::powf,
            _ => return None,
        };
        hull_of(
            [(left.0, right.0), (left.0, right.1), (left.1, right.0), (left.1, right.1)]
                .map(|(left, right)| computed(function(left, right), data_type)),
        )
    }

    /// Compares elements: exactly 0 or 1 if all of their values compare alike.
    fn compare(self, left: Element, right: Element) -> Range {
        let order = match (left, right) {
            (Element::Int(left), Element::Int(right)) if left.is_same(right) => {
                Some([Some(Ordering::Equal), None])
            }
            (Element::Int(left), Element::Int(right)) => {
                order(left.min(), left.max(), right.min(), right.max())
            }
            _ => {
                let (left, right) = (left.span(), right.span());
                order(left.0, left.1, right.0, right.1)
            }
        };
        let holds = |order: Ordering| match self {
            Self::Equal => order.is_eq(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            _ => order.is_ge(),
        };
        let results = order.map(|orders| orders.map(|order| order.map(holds)));
        match results {
            Some([Some(first), second]) if second.is_none_or(|second| second == first) => {
                Range::exactly(i64::from(first))
            }
            _ => Range::ANY_BOOL,
        }
    }

    fn logic(self, left: Element, right: Element) -> Range {
        let result = match (self, left.truth(), right.truth()) {
            (Self::And, Some(false), _) | (Self::And, _, Some(false)) => Some(false),
            (Self::Or, Some(true), _) | (Self::Or, _, Some(true)) => Some(true),
            (Self::And, Some(left), Some(right)) => Some(left && right),
            (Self::Or, Some(left), Some(right)) => Some(left || right),
            (Self::Xor, Some(left), Some(right)) => Some(left != right),
            _ => None,
        };
        result.map_or(Range::ANY_BOOL, |result| Range::exactly(i64::from(result)))
    }
}

/// Returns the numbers between the smallest and the largest of these. `None` if one of them is none.
fn hull_of<const N: usize>(ends: [[f64; 2]; N]) -> Option<Element> {
    let ends = ends.as_flattened();
    let min = ends.iter().copied().fold(f64::INFINITY, f64::min);
    let max = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (!ends.iter().any(|end| end.is_nan())).then_some(Element::Real(min, max))
}

/// Returns the ways in which values of two ranges can compare, if they are at most two and known.
fn order<T: PartialOrd + Copy>(
    left_min: T,
    left_max: T,
    right_min: T,
    right_max: T,
) -> Option<[Option<Ordering>; 2]> {
    let first = left_max.partial_cmp(&right_min)?;
    if first.is_lt() {
        return Some([Some(Ordering::Less), None]);
    }
    let last = left_min.partial_cmp(&right_max)?;
    if last.is_gt() {
        return Some([Some(Ordering::Greater), None]);
    }
    match (first, last) {
        (Ordering::Equal, Ordering::Equal) => Some([Some(Ordering::Equal), None]),
        (Ordering::Equal, _) => Some([Some(Ordering::Less), Some(Ordering::Equal)]),
        (_, Ordering::Equal) => Some([Some(Ordering::Greater), Some(Ordering::Equal)]),
        _ => None,
    }
}

impl Unary {
    /// Returns the result for an element of this type. `None` if nothing is known.
    pub(crate) fn apply(self, element: Element, data_type: i32) -> Option<Element> {
        match (self, element) {
            (Self::Not, _) => {
                Some(element.truth().map_or(Element::Int(Range::ANY_BOOL), |is| Element::bool(!is)))
            }
            (Self::Negate, Element::Int(range)) => Some(Element::Int(Range::exactly(0).subtract(range))),
            (Self::Negate, Element::Real(min, max)) => Some(Element::Real(-max, -min)),
            (Self::Absolute, Element::Int(range)) => {
                let below = Range::exactly(0).subtract(range);
                Some(Element::Int(range.maximum(below).maximum(Range::exactly(0))))
            }
            (Self::Floor | Self::Ceil | Self::Round, Element::Int(_)) => Some(element),
            (Self::Floor, Element::Real(min, max)) => Some(Element::Real(min.floor(), max.floor())),
            (Self::Ceil, Element::Real(min, max)) => Some(Element::Real(min.ceil(), max.ceil())),
            (Self::Round, Element::Real(min, max)) => {
                Some(Element::Real(min.round_ties_even(), max.round_ties_even()))
            }
            (Self::SquareRoot, Element::Real(min, max)) if min >= 0.0 => {
                hull_of([min, max].map(|end| computed(end.sqrt(), data_type)))
            }
            (Self::Reciprocal, Element::Real(..)) => {
                Binary::Divide.apply(Element::exact_real(1.0), element, data_type)
            }
            (Self::Relu, Element::Int(range)) => Some(Element::Int(range.maximum(Range::exactly(0)))),
            (Self::Relu, Element::Real(min, max)) => Some(Element::Real(min.max(0.0), max.max(0.0))),
            (Self::Sign, Element::Int(range)) => Some(Element::Int(range.map(i128::signum))),
            _ => None,
        }
    }
}

/// Returns the type of the elements of a result.
pub(crate) fn result_type(operator: Binary, operands: i32) -> i32 {
    match operator {
        Binary::Equal
        | Binary::Less
        | Binary::LessOrEqual
        | Binary::Greater
        | Binary::GreaterOrEqual
        | Binary::And
        | Binary::Or
        | Binary::Xor => types::BOOL,
        _ => operands,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(min: i64, max: i64) -> Element {
        Element::Int(Range::between(min, max))
    }

    #[test]
    fn comparisons_are_decided_where_all_values_agree() {
        let less = |left, right| Binary::Less.apply(left, right, types::BOOL);
        assert_eq!(less(int(0, 3), int(4, 9)), Some(Element::bool(true)));
        assert_eq!(less(int(4, 9), int(0, 4)), Some(Element::bool(false)));
        assert_eq!(less(int(0, 4), int(4, 9)), Some(int(0, 1)));
        let equal = |left, right| Binary::Equal.apply(left, right, types::BOOL);
        assert_eq!(equal(int(2, 2), int(2, 2)), Some(Element::bool(true)));
        assert_eq!(equal(int(2, 3), int(2, 2)), Some(int(0, 1)));
        assert_eq!(equal(int(2, 3), int(5, 5)), Some(Element::bool(false)));
        let and = |left, right| Binary::And.apply(left, right, types::BOOL);
        assert_eq!(and(int(0, 1), int(0, 0)), Some(Element::bool(false)));
        assert_eq!(and(int(0, 1), int(1, 1)), Some(int(0, 1)));
    }

    #[test]
    fn remainders_have_the_sign_that_the_operator_says() {
        let modulo = |left, right, like_c| {
            Binary::Modulo { like_c }.apply(int(left, left), int(right, right), types::INT64)
        };
        assert_eq!(modulo(-7, 3, false), Some(int(2, 2)));
        assert_eq!(modulo(-7, 3, true), Some(int(-1, -1)));
        assert_eq!(modulo(7, 0, true), None);
        assert_eq!(modulo(i64::MIN, -1, true), None);
    }

    #[test]
    fn floats_are_rounded_as_their_type() {
        let third =
            |data_type| Binary::Divide.apply(Element::exact_real(1.0), Element::exact_real(3.0), data_type);
        assert_eq!(third(types::FLOAT), Some(Element::exact_real(f64::from(1.0_f32 / 3.0))));
        assert_eq!(third(types::DOUBLE), Some(Element::exact_real(1.0 / 3.0)));
        // Halves may be computed in `f32`: 2049 is none of them, 2048 and 2050 are.
        let sum = |left, right| {
            Binary::Add.apply(Element::exact_real(left), Element::exact_real(right), types::FLOAT16)
        };
        assert_eq!(sum(2048.0, 1.0), Some(Element::Real(2048.0, 2049.0)));
        assert_eq!(sum(2050.0, 1.0), Some(Element::Real(2051.0, 2052.0)));
        assert_eq!(sum(2048.0, 2.0), Some(Element::exact_real(2050.0)));
        assert_eq!(Unary::Reciprocal.apply(Element::Real(-1.0, 1.0), types::FLOAT), None);
    }
}
