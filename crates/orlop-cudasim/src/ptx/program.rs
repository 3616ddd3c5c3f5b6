//! [`Program`]: an entry point, with the functions that it calls.

use super::instruction::Instruction;
use super::run::SharedVariables;
use super::types::Type;

/// A parameter of a function, a result of it, or a variable that holds one for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) bytes: usize,
    pub(crate) alignment: usize,
}

/// The code of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// The parameters, then the results, then variables for calls.
    pub(super) variables: Vec<Parameter>,
    pub(super) parameters: usize,
    pub(super) results: usize,
    pub(super) registers: Vec<Type>,
    /// The bytes of its local variables.
    pub(super) local: usize,
    pub(super) instructions: Vec<Instruction>,
}

/// The code of an entry point, which is the first function, and of all that it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(super) functions: Vec<Function>,
    pub(super) shared: SharedVariables,
}

impl Program {
    /// Returns the address of a variable: nothing may be assumed about where they are to each other.
    pub(super) fn variable_address(index: usize) -> u64 {
        (index as u64 + 1) << 32
    }
}
