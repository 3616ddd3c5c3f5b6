//! Nodes that execute bodies: `If`, and what those in [`loops`](super::loops) and [`scan`](super::scan) share
//! with it.

use super::{Call, Fact, Facts, Fault, Inference, Outcome};
use crate::OnnxError;
use crate::decode::{Body, Node, Scope};

/// What is known about a node that executes bodies.
pub(super) struct Executed {
    pub(super) outcome: Outcome,
    /// The facts of its bodies, by position among them.
    pub(super) bodies: Vec<Option<Facts>>,
    /// The outputs of either branch, if each may be taken.
    pub(super) either: Option<[Vec<Fact>; 2]>,
}

/// The outputs of a node with one body, and the facts of that.
pub(super) type ExecutedBody = (Outcome, Option<Facts>);

/// A body with what it captures.
pub(super) struct Captured<'a> {
    /// The node that executes it.
    node: &'a Node,
    body: &'a Body,
    values: Vec<Fact>,
}

impl Captured<'_> {
    pub(super) fn scope(&self) -> &Scope {
        &self.body.scope
    }
}

impl Inference<'_> {
    /// Infers a node that executes bodies. `None` for other nodes. `around` has the values of its graph.
    pub(super) fn control(
        &mut self,
        call: &Call<'_>,
        around: &[Fact],
    ) -> Result<Option<Executed>, OnnxError> {
        let node = call.node;
        if node.bodies.is_empty() || !node.domain.is_empty() {
            return Ok(None);
        }
        let body = |attribute: &str| {
            let (_, body) = node.body(attribute)?;
            let values = body.scope.captures.iter().map(|&(outer, _)| around[outer].clone()).collect();
            Some(Captured { node, body, values })
        };
        // A node may have other graphs, too, which are not executed.
        let alone = |(outcome, facts): ExecutedBody| {
            let mut executed = vec![None; node.bodies.len()];
            if let Some((index, _)) = node.body("body") {
                executed[index] = facts;
            }
            Executed { outcome, bodies: executed, either: None }
        };
        let result = match (&*node.operator, body("then_branch"), body("else_branch"), body("body")) {
            ("If", Some(then), Some(other), _) => self.branch(call, &then, &other)?,
            ("Loop", .., Some(body)) => alone(self.repeat(call, &body)?),
            ("Scan", .., Some(body)) => alone(self.scan(call, &body)?),
            ("SequenceMap", .., Some(body)) => alone(self.map(call, &body)?),
            _ => return Ok(None),
        };
        Ok(Some(result))
    }

    pub(super) fn run(&mut self, body: &Captured<'_>, inputs: Vec<Fact>) -> Result<Facts, OnnxError> {
        let scope = &body.body.scope;
        self.count(scope.values.len() + scope.outputs.len(), body.node)?;
        self.depth += 1;
        let facts = self.scope(scope, inputs, body.values.clone());
        self.depth -= 1;
        facts
    }

    fn branch(
        &mut self,
        call: &Call<'_>,
        then: &Captured<'_>,
        other: &Captured<'_>,
    ) -> Result<Executed, OnnxError> {
        let condition = call.elements(0).and_then(|elements| elements.first()?.truth());
        let branches = [(then, condition != Some(false)), (other, condition != Some(true))];
        let taken = branches.into_iter().filter_map(|(branch, is_taken)| is_taken.then_some(branch));
        let cases = possible(taken.map(|branch| Ok((branch, self.run(branch, Vec::new())?))))?;
        let mut bodies = vec![None; call.node.bodies.len()];
        let mut outputs: Vec<Vec<Fact>> = Vec::new();
        for (branch, facts) in cases {
            outputs.push(results(branch, &facts));
            let index = call.node.body(&branch.body.attribute).map_or(0, |(index, _)| index);
            bodies[index] = Some(facts);
        }
        let hull = outputs.iter().cloned().reduce(|left, right| hulls(&left, &right));
        Ok(Executed { outcome: hull.ok_or(Fault::Unknown), bodies, either: outputs.try_into().ok() })
    }
}

/// Returns the cases that happen: one that contradicts the inputs does not.
///
/// # Errors
///
/// The contradiction, if all do; the first other error.
pub(super) fn possible<T>(
    cases: impl IntoIterator<Item = Result<T, OnnxError>>,
) -> Result<Vec<T>, OnnxError> {
    let (mut possible, mut contradiction) = (Vec::new(), None);
    for case in cases {
        match case {
            Ok(case) => possible.push(case),
            Err(error @ OnnxError::Contradiction { .. }) => contradiction = Some(error),
            Err(error) => return Err(error),
        }
    }
    match contradiction {
        Some(error) if possible.is_empty() => Err(error),
        _ => Ok(possible),
    }
}

/// Returns the outputs of a body.
pub(super) fn results(body: &Captured<'_>, facts: &Facts) -> Vec<Fact> {
    body.body.scope.outputs.iter().map(|&output| facts.values[output].clone()).collect()
}

pub(super) fn hulls(left: &[Fact], right: &[Fact]) -> Vec<Fact> {
    left.iter().zip(right).map(|(left, right)| left.hull(right)).collect()
}

pub(super) fn truth(fact: &Fact) -> Option<bool> {
    fact.tensor()?.elements.as_ref()?.first()?.truth()
}
