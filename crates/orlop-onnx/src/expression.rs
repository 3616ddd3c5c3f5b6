//! Dimensions that are computed from others, as exporters and shape inference write them: `past + 1`,
//! `2*batch`, `(s0 - 1)//2 + 1`, `floor(height/2 - 1/2) + 1`.
//!
//! The names of dimensions are any text, so a text is an expression only if all of it can be read as one. The
//! arithmetic is exact, with fractions, because `floor(height/2)` divides first. Names may be any number of a
//! range: each operator covers what it can give for the numbers of its arguments.

use std::iter::Peekable;
use std::str::Chars;

/// Longer texts are names.
const MAX_LENGTH: usize = 1000;
/// Deeper texts are names: each level takes space on the stack.
const MAX_DEPTH: u32 = 32;

/// Returns the least and the greatest value of an expression, in which `lookup` has the least and the
/// greatest numbers of names. `None` if the text is no expression, if a name has no number, or if no value is
/// a natural number.
pub(crate) fn evaluate(text: &str, lookup: impl FnMut(&str) -> Option<[u64; 2]>) -> Option<[u64; 2]> {
    let Span { min, max } = parse(text, lookup)?;
    let (min, max) = (min.ceiling()?.numerator.max(0), max.floor().numerator);
    let ends = [u64::try_from(min).ok()?, u64::try_from(max).ok()?];
    (min <= max).then_some(ends)
}

/// Returns the names in an expression. `None` if the text is no expression of other names.
pub(crate) fn names(text: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    // With any numbers: whether the text is an expression does not depend on them, but for zero divisors.
    parse(text, |name| {
        names.push(name.to_owned());
        Some([1 << 20; 2])
    })?;
    let is_name = names.first().is_none_or(|name| name == text);
    if is_name { None } else { Some(names) }
}

/// Returns the value of an expression that is the whole text.
fn parse(text: &str, lookup: impl FnMut(&str) -> Option<[u64; 2]>) -> Option<Span> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let mut parser = Parser { rest: text.chars().peekable(), lookup };
    let value = parser.sum(0)?;
    if parser.next_after_spaces().is_none() { Some(value) } else { None }
}

/// A fraction in lowest terms. The denominator is positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fraction {
    numerator: i128,
    denominator: i128,
}

impl Fraction {
    fn new(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let (mut divisor, mut rest) = (numerator.checked_abs()?, denominator.checked_abs()?);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        let divisor = divisor * denominator.signum();
        Some(Self { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    fn whole(number: i128) -> Self {
        Self { numerator: number, denominator: 1 }
    }

    fn add(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    fn negate(self) -> Option<Self> {
        Some(Self { numerator: self.numerator.checked_neg()?, denominator: self.denominator })
    }

    fn multiply(self, other: Self) -> Option<Self> {
        let numerator = self.numerator.checked_mul(other.numerator)?;
        Self::new(numerator, self.denominator.checked_mul(other.denominator)?)
    }

    fn divide(self, other: Self) -> Option<Self> {
        let numerator = self.numerator.checked_mul(other.denominator)?;
        Self::new(numerator, self.denominator.checked_mul(other.numerator)?)
    }

    fn floor(self) -> Self {
        Self::whole(self.numerator.div_euclid(self.denominator))
    }

    fn ceiling(self) -> Option<Self> {
        self.negate()?.floor().negate()
    }

    fn is_less(self, other: Self) -> Option<bool> {
        Some(self.add(other.negate()?)?.numerator < 0)
    }

    fn minimum(self, other: Self) -> Option<Self> {
        Some(if other.is_less(self)? { other } else { self })
    }

    fn maximum(self, other: Self) -> Option<Self> {
        Some(if self.is_less(other)? { other } else { self })
    }
}

/// The fractions between two, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    min: Fraction,
    max: Fraction,
}

impl Span {
    fn whole(min: i128, max: i128) -> Self {
        Self { min: Fraction::whole(min), max: Fraction::whole(max) }
    }

    /// Applies a function that is monotone in each argument.
    fn combine(self, other: Self, function: fn(Fraction, Fraction) -> Option<Fraction>) -> Option<Self> {
        let first = function(self.min, other.min)?;
        let mut result = Self { min: first, max: first };
        for (left, right) in [(self.min, other.max), (self.max, other.min), (self.max, other.max)] {
            let end = function(left, right)?;
            result = Self { min: result.min.minimum(end)?, max: result.max.maximum(end)? };
        }
        Some(result)
    }

    fn negate(self) -> Option<Self> {
        Some(Self { min: self.max.negate()?, max: self.min.negate()? })
    }

    fn divide(self, other: Self) -> Option<Self> {
        let has_zero = other.min.numerator <= 0 && other.max.numerator >= 0;
        if has_zero { None } else { self.combine(other, Fraction::divide) }
    }

    fn floor(self) -> Self {
        Self { min: self.min.floor(), max: self.max.floor() }
    }

    fn ceiling(self) -> Option<Self> {
        Some(Self { min: self.min.ceiling()?, max: self.max.ceiling()? })
    }
}

struct Parser<'a, F> {
    rest: Peekable<Chars<'a>>,
    lookup: F,
}

impl<F: FnMut(&str) -> Option<[u64; 2]>> Parser<'_, F> {
    fn next_after_spaces(&mut self) -> Option<char> {
        while self.rest.next_if_eq(&' ').is_some() {}
        self.rest.peek().copied()
    }

    /// Takes the next character, after spaces, if it is this one.
    fn takes(&mut self, wanted: char) -> bool {
        self.next_after_spaces();
        self.rest.next_if_eq(&wanted).is_some()
    }

    /// Products, added and subtracted.
    fn sum(&mut self, depth: u32) -> Option<Span> {
        let mut sum = self.product(depth)?;
        loop {
            if self.takes('+') {
                sum = sum.combine(self.product(depth)?, Fraction::add)?;
            } else if self.takes('-') {
                sum = sum.combine(self.product(depth)?.negate()?, Fraction::add)?;
            } else {
                return Some(sum);
            }
        }
    }

    /// Terms, multiplied and divided; `//` rounds down.
    fn product(&mut self, depth: u32) -> Option<Span> {
        let mut product = self.term(depth)?;
        loop {
            if self.takes('*') {
                product = product.combine(self.term(depth)?, Fraction::multiply)?;
            } else if self.takes('/') {
                let rounds = self.rest.next_if_eq(&'/').is_some();
                product = product.divide(self.term(depth)?)?;
                product = if rounds { product.floor() } else { product };
            } else {
                return Some(product);
            }
        }
    }

    /// A number, a name, a call, or an expression in parentheses, with any sign.
    fn term(&mut self, depth: u32) -> Option<Span> {
        if depth == MAX_DEPTH {
            return None;
        }
        let next = self.next_after_spaces()?;
        if self.takes('-') {
            return self.term(depth + 1)?.negate();
        }
        if self.takes('(') {
            let inside = self.sum(depth + 1)?;
            return if self.takes(')') { Some(inside) } else { None };
        }
        if !is_of_name(next) {
            return None;
        }
        let word = self.word();
        if next.is_ascii_digit() {
            return word.parse().ok().map(|number| Span::whole(number, number));
        }
        if self.takes('(') { self.call(&word, depth) } else { self.named(&word) }
    }

    /// Takes a number or a name. A hyphen between letters is a part of a name.
    fn word(&mut self) -> String {
        let mut word = String::new();
        loop {
            if let Some(next) = self.rest.next_if(|&next| is_of_name(next)) {
                word.push(next);
                continue;
            }
            let mut ahead = self.rest.clone();
            let is_hyphen = ahead.next() == Some('-') && ahead.next().is_some_and(char::is_alphabetic);
            if !is_hyphen || word.ends_with(|last: char| last.is_ascii_digit()) && word.parse::<u64>().is_ok()
            {
                return word;
            }
            word.extend(self.rest.next());
        }
    }

    fn named(&mut self, name: &str) -> Option<Span> {
        (self.lookup)(name).map(|[min, max]| Span::whole(min.into(), max.into()))
    }

    /// The rest of a call, after the first parenthesis.
    fn call(&mut self, name: &str, depth: u32) -> Option<Span> {
        let mut result = self.sum(depth + 1)?;
        match name {
            "floor" => result = result.floor(),
            "ceiling" | "ceil" => result = result.ceiling()?,
            "Max" | "max" | "Min" | "min" => {
                let is_min = name.eq_ignore_ascii_case("min");
                let function = if is_min { Fraction::minimum } else { Fraction::maximum };
                while self.takes(',') {
                    result = result.combine(self.sum(depth + 1)?, function)?;
                }
            }
            _ => return None,
        }
        if self.takes(')') { Some(result) } else { None }
    }
}

fn is_of_name(next: char) -> bool {
    next.is_alphanumeric() || matches!(next, '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<u64> {
        let [min, max] = evaluate(text, |name| match name {
            "batch" => Some([8; 2]),
            "h" => Some([7; 2]),
            "past-length" => Some([100; 2]),
            _ => None,
        })?;
        assert_eq!(min, max, "{text}");
        Some(min)
    }

    #[test]
    fn expressions_have_the_values_of_python() {
        let cases = [
            ("past-length + 1", 101),
            ("past-length+1", 101),
            ("2*batch", 16),
            ("batch*h + 3", 59),
            ("(h - 1)//2 + 1", 4),
            ("floor(h/2 - 1/2) + 1", 4),
            ("ceiling(h/2)", 4),
            ("Max(1, batch - h, 2)", 2),
            ("min(batch, h)", 7),
            ("-(-h)", 7),
            ("h-2", 5),
            ("h - batch + 9", 8),
            ("3 - -h//2", 7),
            (" batch ", 8),
        ];
        for (text, expected) in cases {
            assert_eq!(value(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn ranges_cover_the_values_of_all_their_numbers() {
        let texts =
            ["a + 1", "a - b", "2*a*b", "(a - 1)//2 + 1", "ceiling(a/b)", "Max(a, b) - min(b, 3)", "-a + 9"];
        for text in texts {
            let [min, max] = evaluate(text, |name| Some(if name == "a" { [2, 7] } else { [1, 4] })).unwrap();
            let mut values = Vec::new();
            for (a, b) in (2..=7).flat_map(|a| (1..=4).map(move |b| (a, b))) {
                values.extend(evaluate(text, |name| Some(if name == "a" { [a; 2] } else { [b; 2] })));
            }
            assert!(
                values.iter().flatten().all(|value| (min..=max).contains(value)),
                "{text}: {min} to {max}"
            );
        }
        assert_eq!(evaluate("past + 1", |_| Some([0, 2048])), Some([1, 2049]));
        assert_eq!(evaluate("a/2", |_| Some([3, 6])), Some([2, 3]));
        assert_eq!(evaluate("a/2", |_| Some([3, 3])), None);
        assert_eq!(evaluate("1/a", |_| Some([0, 3])), None);
    }

    #[test]
    fn what_is_no_natural_number_has_no_value() {
        let long = format!("{}1", "1+".repeat(600));
        let deep = format!("{}1{}", "(".repeat(400), ")".repeat(400));
        let signs = "-".repeat(900);
        let large = "18446744073709551615*18446744073709551615*18446744073709551615";
        let no_natural = ["h/2", "h - batch", "1/0", "other + 1", "h-batch", large];
        let no_expression = ["", "h +", "(h", "h)", "h batch", "sin(h)", "h % 2", "floor()", "2h"];
        let hostile = [&*long, &deep, &signs, "99999999999999999999999999999999999999999"];
        for text in no_natural.into_iter().chain(no_expression).chain(hostile) {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn only_expressions_have_other_names() {
        assert_eq!(names("past + 1 + past*n"), Some(["past", "past", "n"].map(str::to_owned).to_vec()));
        for name in ["batch", "seq-len", "batch size", "unk__12", "dim.0", "a%b", "", "3"] {
            assert_eq!(names(name), None, "{name}");
        }
    }
}
