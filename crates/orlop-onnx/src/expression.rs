//! Dimensions that are computed from others, as exporters and shape inference write them: `past + 1`,
//! `2*batch`, `(s0 - 1)//2 + 1`, `floor(height/2 - 1/2) + 1`.
//!
//! The names of dimensions are any text, so a text is an expression only if all of it can be read as one. The
//! arithmetic is exact, with fractions, because `floor(height/2)` divides first.

use std::iter::Peekable;
use std::str::Chars;

/// Longer texts are names.
const MAX_LENGTH: usize = 1000;
/// Deeper texts are names: each level takes space on the stack.
const MAX_DEPTH: u32 = 32;

/// Returns the value of an expression, in which `lookup` has the numbers of names. `None` if the text is no
/// expression, if a name has no number, or if the value is no natural number.
pub(crate) fn evaluate(text: &str, lookup: impl FnMut(&str) -> Option<u64>) -> Option<u64> {
    let value = parse(text, lookup)?;
    if value.denominator == 1 { u64::try_from(value.numerator).ok() } else { None }
}

/// Returns the names in an expression. `None` if the text is no expression of other names.
pub(crate) fn names(text: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    // With any numbers: whether the text is an expression does not depend on them, but for zero divisors.
    parse(text, |name| {
        names.push(name.to_owned());
        Some(1 << 20)
    })?;
    let is_name = names.first().is_none_or(|name| name == text);
    if is_name { None } else { Some(names) }
}

/// Returns the value of an expression that is the whole text.
fn parse(text: &str, lookup: impl FnMut(&str) -> Option<u64>) -> Option<Fraction> {
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

    fn is_less(self, other: Self) -> Option<bool> {
        Some(self.add(other.negate()?)?.numerator < 0)
    }
}

struct Parser<'a, F> {
    rest: Peekable<Chars<'a>>,
    lookup: F,
}

impl<F: FnMut(&str) -> Option<u64>> Parser<'_, F> {
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
    fn sum(&mut self, depth: u32) -> Option<Fraction> {
        let mut sum = self.product(depth)?;
        loop {
            if self.takes('+') {
                sum = sum.add(self.product(depth)?)?;
            } else if self.takes('-') {
                sum = sum.add(self.product(depth)?.negate()?)?;
            } else {
                return Some(sum);
            }
        }
    }

    /// Terms, multiplied and divided; `//` rounds down.
    fn product(&mut self, depth: u32) -> Option<Fraction> {
        let mut product = self.term(depth)?;
        loop {
            if self.takes('*') {
                product = product.multiply(self.term(depth)?)?;
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
    fn term(&mut self, depth: u32) -> Option<Fraction> {
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
            return word.parse().ok().map(Fraction::whole);
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

    fn named(&mut self, name: &str) -> Option<Fraction> {
        (self.lookup)(name).map(|number| Fraction::whole(i128::from(number)))
    }

    /// The rest of a call, after the first parenthesis.
    fn call(&mut self, name: &str, depth: u32) -> Option<Fraction> {
        let mut result = self.sum(depth + 1)?;
        match name {
            "floor" => result = result.floor(),
            "ceiling" | "ceil" => result = result.negate()?.floor().negate()?,
            "Max" | "max" | "Min" | "min" => {
                let wants_less = name.eq_ignore_ascii_case("min");
                while self.takes(',') {
                    let other = self.sum(depth + 1)?;
                    if other != result && other.is_less(result)? == wants_less {
                        result = other;
                    }
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
        evaluate(text, |name| match name {
            "batch" => Some(8),
            "h" => Some(7),
            "past-length" => Some(100),
            _ => None,
        })
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
