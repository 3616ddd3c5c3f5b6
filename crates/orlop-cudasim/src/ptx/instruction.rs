//! [`Instruction`]: what a thread executes, with its types and operands.

use super::types::{FloatMode, Type};

/// The number of a register.
pub(super) type Register = usize;

/// A register that a thread can read without an instruction of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    /// One coordinate of a thread, of its block, or of their sizes.
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    /// The number of a thread in its warp.
    Lane,
    /// The lanes of which the number compares so with the thread's own.
    Lanes(Comparison),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    Register(Register),
    /// The opposite of a predicate.
    Negated(Register),
    Value(u64),
    Special(Special),
    /// The address of a local variable, from the beginning of those of its function.
    Local(u64),
}

/// A state space of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Parameter,
    Global,
    /// The memory of a block.
    Shared,
    /// The memory of a thread.
    Local,
    /// Global, or one of the two others in its window.
    Generic,
}

/// An address: an operand, if there is one, and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) base: Option<Operand>,
    pub(super) offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Sub,
    /// The low half of a product of integers, or a product of floats.
    Mul,
    MulHigh,
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
    CountOnes,
    LeadingZeros,
    Reverse,
    Sqrt,
    Reciprocal,
    ReciprocalSqrt,
    Exp2,
    Log2,
}

/// Functions of bits with more operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BitFunction {
    /// Any function of three bits, by its table.
    Lookup(u8),
    /// The high half of a pair shifted left, or the low half of one shifted right. The distance has 5 bits,
    /// or is limited to 32.
    Funnel {
        is_left: bool,
        wraps: bool,
    },
    /// Bytes of two words.
    Permute,
    Extract,
    Insert,
}

/// Comparisons of floats are false if an operand is NaN, except `Nan` and those that say so.
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

/// What the threads that an atomic operation is one for have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    Block,
    Device,
    System,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Atomic {
    Of(Binary),
    Exchange,
    /// If the old value is equal to the first operand.
    CompareExchange,
    /// Up to a limit, and from zero again.
    Increment,
    /// Down to zero, and from a limit again.
    Decrement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shuffle {
    Up,
    Down,
    Xor,
    Index,
}

/// What threads of a warp do together: all threads in the mask wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Collective {
    Shuffle(Shuffle),
    All,
    Any,
    Uniform,
    Ballot,
    /// The threads with the same value.
    MatchAny(Type),
    MatchAll(Type),
    Reduce(Binary, Type),
    /// It orders their accesses to memory too.
    Barrier,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    /// Fences, and what only affects speed.
    Nothing,
    Move {
        to: Register,
        from: Operand,
    },
    /// One value of several, the lowest first, of this many bytes each.
    Pack {
        to: Register,
        from: Vec<Operand>,
        bytes: usize,
    },
    Unpack {
        to: Vec<Option<Register>>,
        from: Operand,
        bytes: usize,
    },
    Unary {
        what: Unary,
        of: Type,
        mode: FloatMode,
        to: Register,
        a: Operand,
    },
    Binary {
        what: Binary,
        of: Type,
        mode: FloatMode,
        to: Register,
        a: Operand,
        b: Operand,
    },
    /// The product of integers in twice their size, and a sum.
    MulWide {
        of: Type,
        to: Register,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// The low half of a product of integers and a sum; of floats, rounded once.
    MulAdd {
        of: Type,
        mode: FloatMode,
        to: Register,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    Bits {
        what: BitFunction,
        of: Type,
        to: Register,
        from: Vec<Operand>,
    },
    Compare {
        what: Comparison,
        /// The result if an operand is NaN.
        nan: bool,
        of: Type,
        mode: FloatMode,
        to: Option<Register>,
        /// Gets the opposite.
        opposite: Option<Register>,
        a: Operand,
        b: Operand,
        /// Combines both results with a predicate.
        with: Option<(Binary, Operand)>,
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
        mode: FloatMode,
        from: Operand,
        from_type: Type,
    },
    /// A pair of floats, the first one in the high half.
    ConvertPair {
        to: Register,
        to_type: Type,
        high: Operand,
        low: Operand,
    },
    Load {
        space: Space,
        of: Type,
        to: Vec<Option<Register>>,
        from: Address,
    },
    Store {
        space: Space,
        of: Type,
        to: Address,
        from: Vec<Operand>,
    },
    Atomic {
        what: Atomic,
        scope: Scope,
        space: Space,
        of: Type,
        to: Option<Register>,
        at: Address,
        a: Operand,
        b: Operand,
    },
    Collective {
        what: Collective,
        to: Option<Register>,
        /// Gets whether the source of a shuffle is in range, or whether all values match.
        valid: Option<Register>,
        from: Vec<Operand>,
        mask: Operand,
    },
    ActiveMask {
        to: Register,
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
    /// The arguments and results are variables of the caller.
    Call {
        function: usize,
        arguments: Vec<usize>,
        results: Vec<usize>,
    },
    Return,
    /// Ends the thread.
    Exit,
    Trap,
}

/// An operation, and the predicate that it needs: a register and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) guard: Option<(Register, bool)>,
    pub(super) operation: Operation,
    /// In the module's text, from 1.
    pub(super) line: usize,
}
