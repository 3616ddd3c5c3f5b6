//! [`Workspaces`]: the bytes of memory for temporary use that a plan asks for.
//!
//! A table can have the bytes of each convolution, by direction, data type and shapes; one that is not in it
//! is estimated and counted. Attention takes what the recorded runs took.

use super::constants::{kind, name};
use super::descriptors::{Configuration, Descriptor, Descriptors};
use super::learned::{Convolution, Direction, estimate, upper_bound};
use orlop_dryrun::settings::WorkspaceRule;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

/// The workspace of a graph of attention, in bytes: that of all plans of the `llama-decode` recordings of
/// `testdata/torch-runs` (cuDNN 9.19 on an H100).
const ATTENTION: i64 = 256;

/// Graphs of more operations than this are attention: convolutions have at most a bias and an activation.
const MAX_CONVOLUTION_OPERATIONS: usize = 4;

/// The bytes of convolutions.
#[derive(Debug, Default)]
pub(crate) struct Workspaces {
    rule: WorkspaceRule,
    table: HashMap<String, i64>,
    /// Convolutions that the table does not have, and how often a plan was made for each.
    pub(crate) estimated: BTreeMap<String, u64>,
}

impl Workspaces {
    /// Reads a table: lines of a convolution and its bytes. A table that cannot be read is reported and
    /// empty.
    pub(crate) fn read(path: Option<&Path>, rule: WorkspaceRule) -> Self {
        let Some(path) = path else { return Self { rule, ..Self::default() } };
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| {
            eprintln!("orlop dry-run: {}: {error}", path.display());
            String::new()
        });
        let line = |line: &str| {
            let (convolution, bytes) = line.split_once(' ')?;
            Some((convolution.to_owned(), bytes.trim().parse().ok()?))
        };
        Self {
            rule,
            table: text.lines().filter(|text| !text.starts_with('#')).filter_map(line).collect(),
            estimated: BTreeMap::new(),
        }
    }

    /// Returns the bytes of an execution plan.
    pub(super) fn of_plan(&mut self, descriptors: &mut Descriptors, plan: &Descriptor) -> i64 {
        let Some(found) = descriptors.referred(plan, name::PLAN_CONFIGURATION) else { return 0 };
        let configuration = found.configuration;
        let engine = descriptors.referred(found, name::CONFIGURATION_ENGINE).map_or(0, |engine| engine.graph);
        let handle = if descriptors.get(found.graph).is_some() { found.graph } else { engine };
        let Some(graph) = descriptors.get_mut(handle) else { return 0 };
        let operations = graph.attributes.get(&name::GRAPH_OPERATIONS).map(|found| found.handles());
        match configuration {
            Configuration::NonDeterministic => graph.has_plan = true,
            Configuration::Deterministic if !graph.has_plan => {}
            Configuration::Deterministic | Configuration::WithoutWorkspace => return 0,
        }
        let operations = operations.unwrap_or_default();
        if operations.len() > MAX_CONVOLUTION_OPERATIONS {
            return ATTENTION;
        }
        let first = operations.first().and_then(|&operation| descriptors.get(operation));
        let is_deterministic = configuration == Configuration::Deterministic;
        let convolution = first.and_then(|operation| convolution(descriptors, operation, is_deterministic));
        let Some(convolution) = convolution else { return 0 };
        let key = key_of(&convolution);
        if let Some(&bytes) = self.table.get(&key) {
            return bytes;
        }
        *self.estimated.entry(key).or_default() += 1;
        let bytes = match self.rule {
            WorkspaceRule::None => 0,
            WorkspaceRule::Learned => estimate(&convolution),
            WorkspaceRule::Most => upper_bound(&convolution),
        };
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }
}

/// Returns the convolution that an operation is; `None` for others, and for shapes that are none.
fn convolution(
    descriptors: &Descriptors,
    operation: &Descriptor,
    is_deterministic: bool,
) -> Option<Convolution> {
    let (direction, [weights, input, output]) = match operation.kind {
        kind::CONVOLUTION_FORWARD => (Direction::Forward, name::FORWARD_W_X_Y),
        kind::CONVOLUTION_BACKWARD_DATA => (Direction::Data, name::DATA_W_DX_DY),
        kind::CONVOLUTION_BACKWARD_FILTER => (Direction::Weights, name::FILTER_DW_X_DY),
        _ => return None,
    };
    let sizes = |tensor| -> Option<Vec<u64>> {
        let sizes = descriptors.referred(operation, tensor)?.attributes.get(&name::TENSOR_DIMENSIONS)?.i64s();
        let sizes: Vec<u64> = sizes.into_iter().map(u64::try_from).collect::<Result<_, _>>().ok()?;
        (sizes.len() >= 3).then_some(sizes)
    };
    let tensor = descriptors.referred(operation, input)?;
    let data_type = tensor.attributes.get(&name::TENSOR_TYPE).and_then(|found| found.i32()).unwrap_or(-1);
    let strides = tensor.attributes.get(&name::TENSOR_STRIDES).map(|found| found.i64s());
    let is_channels_last = strides.is_some_and(|strides| strides.get(1) == Some(&1));
    let element = match data_type {
        1 => 8,
        2 | 9 => 2,
        _ => 4,
    };
    let (input, output, weights) = (sizes(input)?, sizes(output)?, sizes(weights)?);
    Some(Convolution {
        direction,
        is_deterministic,
        data_type,
        element,
        is_channels_last,
        input,
        output,
        weights,
    })
}

/// Names a convolution as the table does: direction, input with its data type, output, weights.
fn key_of(convolution: &Convolution) -> String {
    let mut key = convolution.direction.name().to_owned();
    let tensors = [&convolution.input, &convolution.output, &convolution.weights];
    for (index, sizes) in tensors.into_iter().enumerate() {
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        let _ = write!(key, ":{}", sizes.join("x"));
        if index == 0 {
            let _ = write!(key, ",{}", convolution.data_type);
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::super::Attribute;
    use super::*;

    fn handles(handles: &[usize]) -> Attribute {
        let bytes = handles.iter().flat_map(|&handle| (handle as u64).to_le_bytes()).collect();
        Attribute { kind: 15, bytes }
    }

    fn tensor(descriptors: &mut Descriptors, handle: usize, sizes: [i64; 4]) {
        descriptors.create(handle, 29);
        let bytes = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
        descriptors.set(handle, name::TENSOR_DIMENSIONS, Attribute { kind: 3, bytes }).unwrap();
        descriptors.set(handle, name::TENSOR_TYPE, Attribute { kind: 1, bytes: vec![0; 4] }).unwrap();
    }

    #[test]
    fn the_first_plan_of_a_known_convolution_has_its_workspace_and_the_others_none() {
        let mut descriptors = Descriptors::default();
        for (handle, sizes) in [(1, [2, 3, 8, 8]), (2, [2, 4, 8, 8]), (3, [4, 3, 3, 3])] {
            tensor(&mut descriptors, handle, sizes);
        }
        let [operation, graph, heuristics, first, second, third, plan, engine] =
            [10, 11, 12, 13, 14, 15, 16, 17];
        descriptors.create(operation, kind::CONVOLUTION_FORWARD);
        for (attribute, tensor) in name::FORWARD_W_X_Y.into_iter().zip([3, 1, 2]) {
            descriptors.set(operation, attribute, handles(&[tensor])).unwrap();
        }
        for other in [graph, heuristics, first, second, third, plan, engine] {
            descriptors.create(other, 0);
        }
        descriptors.set(graph, name::GRAPH_OPERATIONS, handles(&[operation])).unwrap();
        descriptors.set(heuristics, name::HEURISTICS_GRAPH, handles(&[graph])).unwrap();
        let mut workspaces = Workspaces::default();
        workspaces.table.insert("fwd:2x3x8x8,0:2x4x8x8:4x3x3x3".to_owned(), 4096);
        let all = [first, second, third];
        let found = descriptors.read(heuristics, name::HEURISTICS_RESULTS, 15, &all, &mut workspaces);
        assert_eq!(found.unwrap().0, 3);
        // The second one is the first if only deterministic algorithms are allowed.
        for (configuration, bytes) in [(third, 0), (second, 4096), (first, 4096), (second, 0), (third, 0)] {
            let of_engine =
                descriptors.read(configuration, name::CONFIGURATION_ENGINE, 15, &[engine], &mut workspaces);
            assert_eq!(of_engine.unwrap().0, 1);
            let notes = descriptors.read(engine, name::ENGINE_NUMERICAL_NOTE, 11, &[], &mut workspaces);
            assert_eq!(notes.unwrap().0, usize::from(configuration == first));
            descriptors.set(plan, name::PLAN_CONFIGURATION, handles(&[configuration])).unwrap();
            let (_, value) = descriptors.read(plan, name::PLAN_WORKSPACE, 3, &[], &mut workspaces).unwrap();
            assert_eq!(value.unwrap().i64s(), [bytes]);
        }
        assert!(workspaces.estimated.is_empty());
        workspaces.table.clear();
        descriptors.set(plan, name::PLAN_CONFIGURATION, handles(&[first])).unwrap();
        descriptors.read(plan, name::PLAN_WORKSPACE, 3, &[], &mut workspaces).unwrap();
        assert_eq!(workspaces.estimated.len(), 1);
    }
}
