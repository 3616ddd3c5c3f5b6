//! [`Type`]: the types of instructions and registers, and [`FloatMode`]: how results of floats are rounded.

/// A fundamental type, without its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeKind {
    Bits,
    Unsigned,
    Signed,
    Float,
    /// bfloat16.
    Brain,
    /// Two floats of half the size.
    FloatPair,
    BrainPair,
    Predicate,
}

/// A type of an instruction or a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) kind: TypeKind,
    pub(super) bytes: usize,
}

impl Type {
    pub(super) const ADDRESS: Self = Self { kind: TypeKind::Unsigned, bytes: 8 };
    pub(super) const U32: Self = Self { kind: TypeKind::Unsigned, bytes: 4 };
    pub(super) const B32: Self = Self { kind: TypeKind::Bits, bytes: 4 };
    pub(super) const F32: Self = Self { kind: TypeKind::Float, bytes: 4 };
    pub(super) const PREDICATE: Self = Self { kind: TypeKind::Predicate, bytes: 1 };

    /// Returns the type of twice the size, of integers of 16 and 32 bits.
    pub(super) fn wide(self) -> Option<Self> {
        let fits = self.is_integer() && matches!(self.bytes, 2 | 4);
        fits.then_some(Self { bytes: 2 * self.bytes, ..self })
    }

    /// Returns the type of each half of a pair.
    pub(super) fn half(self) -> Option<Self> {
        let kind = match self.kind {
            TypeKind::FloatPair => TypeKind::Float,
            TypeKind::BrainPair => TypeKind::Brain,
            _ => return None,
        };
        Some(Self { kind, bytes: self.bytes / 2 })
    }

    /// Reads a type such as `u32`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, bytes) = match text {
            "pred" => return Some(Self::PREDICATE),
            "bf16" => (TypeKind::Brain, 2),
            "bf16x2" => (TypeKind::BrainPair, 4),
            "f16x2" => (TypeKind::FloatPair, 4),
            _ => {
                let kind = match text.get(..1)? {
                    "b" => TypeKind::Bits,
                    "u" => TypeKind::Unsigned,
                    "s" => TypeKind::Signed,
                    "f" => TypeKind::Float,
                    _ => return None,
                };
                let bytes = match (text.get(1..)?, kind) {
                    ("32", _) => 4,
                    ("64", _) => 8,
                    ("16", _) => 2,
                    ("8", kind) if kind != TypeKind::Float => 1,
                    _ => return None,
                };
                (kind, bytes)
            }
        };
        Some(Self { kind, bytes })
    }

    pub(super) fn is_integer(self) -> bool {
        matches!(self.kind, TypeKind::Unsigned | TypeKind::Signed)
    }

    pub(super) fn is_signed(self) -> bool {
        self.kind == TypeKind::Signed
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self.kind, TypeKind::Float | TypeKind::Brain)
    }

    /// Returns `true` for floats of 16 bits and pairs of them.
    pub(super) fn is_half(self) -> bool {
        self.is_float() && self.bytes == 2 || self.half().is_some()
    }

    pub(super) fn is_bits(self) -> bool {
        self.kind == TypeKind::Bits
    }

    /// Returns `true` if a register of this type is an operand of an instruction of type `of`: the same size,
    /// and no float for an integer.
    pub(super) fn fits(self, of: Self) -> bool {
        let is_number = |ty: Self| ty.kind != TypeKind::Predicate;
        let mixes = self.is_float() && of.is_integer() || self.is_integer() && of.is_float();
        self.bytes == of.bytes && is_number(self) == is_number(of) && !mixes
    }

    /// Returns `true` if a register of this type is an operand of a load, a store or a conversion of type
    /// `of`: it may be wider, unless one of them is a float.
    pub(super) fn holds(self, of: Self) -> bool {
        let wider = self.bytes > of.bytes && !self.is_float() && self != Self::PREDICATE;
        self.fits(of) || (wider && !of.is_float())
    }
}

/// How a result between two numbers of a type is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Rounding {
    #[default]
    Nearest,
    Zero,
    Down,
    Up,
}

/// The modifiers of arithmetic with floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FloatMode {
    pub(super) rounding: Rounding,
    /// To whole numbers.
    pub(super) is_whole: bool,
    /// Subnormal numbers of 32 bits count as zero, and become it (`.ftz`).
    pub(super) flushes: bool,
    /// Results are limited to 0 and 1 (`.sat`).
    pub(super) saturates: bool,
    /// A NaN is the result if one operand is NaN, of `min` and `max`.
    pub(super) keeps_nan: bool,
}
