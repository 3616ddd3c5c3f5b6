//! [`UndecidedInputs`]: inputs of a graph whose elements would decide sizes.

use crate::decode::{Node, Scope};
use crate::infer::{Fact, Facts, types};

/// The first small inputs of integers whose elements are not known, and the values that depend on them.
///
/// All values are visited once, because any number of them may have no size: each has a bit for each input.
pub(crate) struct UndecidedInputs {
    inputs: Vec<usize>,
    /// By number of the scope.
    decided_by: Vec<u64>,
}

impl UndecidedInputs {
    pub(crate) fn of(scope: &Scope, facts: &Facts) -> Self {
        let undecided = scope.inputs.iter().copied().filter(|&input| is_undecided(&facts.values[input]));
        let inputs: Vec<usize> = undecided.take(64).collect();
        let mut decided_by = vec![0; scope.values.len()];
        for (bit, &input) in inputs.iter().enumerate() {
            decided_by[input] = 1 << bit;
        }
        let mut undecided = Self { inputs, decided_by };
        for node in &scope.nodes {
            let bits = undecided.bits(node);
            node.outputs.iter().flatten().for_each(|&output| undecided.decided_by[output] = bits);
        }
        undecided
    }

    /// Returns the inputs that a node depends on.
    pub(crate) fn read_by(&self, node: &Node) -> impl Iterator<Item = usize> {
        let bits = self.bits(node);
        self.inputs.iter().enumerate().filter(move |(bit, _)| bits & (1 << bit) != 0).map(|(_, &input)| input)
    }

    fn bits(&self, node: &Node) -> u64 {
        node.reads().fold(0, |bits, input| bits | self.decided_by[input])
    }
}

fn is_undecided(fact: &Fact) -> bool {
    let Fact::Tensor(tensor) = fact else { return false };
    let is_integer = matches!(tensor.data_type, types::INT32 | types::INT64);
    is_integer && tensor.elements.is_none() && tensor.small_sizes().is_some()
}
