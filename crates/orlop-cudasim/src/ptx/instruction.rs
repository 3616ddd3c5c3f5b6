//! [`Program`]: the instructions of an entry point.

use super::shared::SharedVariables;

/// A fundamental type, without its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeKind {
    Bits,
    Unsigned,
    Signed,
    Float,
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
    /// Returns the type of twice the size, of integers of 16 and 32 bits.
    pub(super) fn wide(self) -> Option<Self> {
        let fits = self.is_integer() && matches!(self.bytes, 2 | 4);
        fits.then_some(Self { bytes: 2 * self.bytes, ..self })
    }

    pub(super) const PREDICATE: Self = Self { kind: TypeKind::Predicate, bytes: 1 };

    /// Reads a type such as `u32`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "pred" {
            return Some(Self::PREDICATE);
        }
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
            ("8", kind) if kind != TypeKind::Float => 1,
            ("16", kind) if kind != TypeKind::Float => 2,
            _ => return None,
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
        self.kind == TypeKind::Float
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

/// The number of a register.
pub(super) type Register = usize;

/// One coordinate of a thread, of its block, or of their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    Register(Register),
    Value(u64),
    Special(Special),
}

/// A state space of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Parameter,
    Global,
    /// The memory of a block.
    Shared,
    /// Global, or shared in its window.
    Generic,
}

/// An address: a register, if there is one, and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) base: Option<Register>,
    pub(super) offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Sub,
    /// The low half of a product of integers, or a product of floats.
    Mul,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Neg,
    Abs,
    Not,
}

/// Comparisons of floats are false if an operand is NaN, except `Nan`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// At least one operand is NaN.
    Nan,
    /// None is.
    Num,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    Move {
        to: Register,
        from: Operand,
    },
    Unary {
        what: Unary,
        of: Type,
        to: Register,
        a: Operand,
    },
    Binary {
        what: Binary,
        of: Type,
        to: Register,
        a: Operand,
        b: Operand,
    },
    /// The product of integers in twice their size.
    MulWide {
        of: Type,
        to: Register,
        a: Operand,
        b: Operand,
    },
    /// The low half of a product of integers and a sum; of floats, rounded once.
    MulAdd {
        of: Type,
        to: Register,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    Compare {
        what: Comparison,
        of: Type,
        to: Register,
        a: Operand,
        b: Operand,
    },
    Select {
        to: Register,
        a: Operand,
        b: Operand,
        predicate: Register,
    },
    Convert {
        to: Register,
        to_type: Type,
        from: Operand,
        from_type: Type,
    },
    LoadParameter {
        of: Type,
        to: Vec<Register>,
        from: Address,
    },
    Load {
        space: Space,
        of: Type,
        to: Vec<Register>,
        from: Address,
    },
    Store {
        space: Space,
        of: Type,
        to: Address,
        from: Vec<Operand>,
    },
    /// All threads of a block wait for each other.
    Barrier,
    Branch {
        target: usize,
    },
    BranchTable {
        index: Operand,
        targets: Vec<usize>,
    },
    Return,
}

/// An operation, and the predicate that it needs: a register and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) guard: Option<(Register, bool)>,
    pub(super) operation: Operation,
}

/// A parameter of an entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) bytes: usize,
    pub(crate) alignment: usize,
}

/// The code of an entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(super) parameters: Vec<Parameter>,
    pub(super) registers: Vec<Type>,
    pub(super) shared: SharedVariables,
    pub(super) instructions: Vec<Instruction>,
}

impl Program {
    /// Returns the address of a parameter: nothing may be assumed about where they are to each other.
    pub(super) fn parameter_address(index: usize) -> u64 {
        (index as u64 + 1) << 32
    }
}
