//! [`Workspaces`]: the bytes of memory for temporary use that a plan asks for.
//!
//! cuDNN's own rules are not public. A table has the bytes of each convolution, by direction, data type and
//! shapes; one that is not in it has none and is counted. Attention takes what the recorded runs took.

use super::constants::{kind, name};
use super::descriptors::{Descriptor, Descriptors};
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
    table: HashMap<String, i64>,
    /// Convolutions that the table does not have, and how often a plan was made for each.
    pub(crate) unknown: BTreeMap<String, u64>,
}

impl Workspaces {
    /// Reads a table: lines of a convolution and its bytes. A table that cannot be read is reported and
    /// empty.
    pub(crate) fn read(path: Option<&Path>) -> Self {
        let Some(path) = path else { return Self::default() };
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| {
            eprintln!("orlop dry-run: {}: {error}", path.display());
            String::new()
        });
        let line = |line: &str| {
            let (convolution, bytes) = line.split_once(' ')?;
            Some((convolution.to_owned(), bytes.trim().parse().ok()?))
        };
        Self {
            table: text.lines().filter(|text| !text.starts_with('#')).filter_map(line).collect(),
            unknown: BTreeMap::new(),
        }
    }

    /// Returns the bytes of an execution plan.
    pub(super) fn of_plan(&mut self, descriptors: &Descriptors, plan: &Descriptor) -> i64 {
        let configuration = descriptors.referred(plan, name::PLAN_CONFIGURATION);
        let Some(configuration) = configuration.filter(|found| !found.is_fallback) else { return 0 };
        let engine = descriptors.referred(configuration, name::CONFIGURATION_ENGINE);
        let graph = descriptors.get(configuration.graph).or_else(|| descriptors.get(engine?.graph));
        let Some(graph) = graph else { return 0 };
        let operations = graph.attributes.get(&name::GRAPH_OPERATIONS).map(|found| found.handles());
        let operations = operations.unwrap_or_default();
        if operations.len() > MAX_CONVOLUTION_OPERATIONS {
            return ATTENTION;
        }
        let first = operations.first().and_then(|&operation| descriptors.get(operation));
        let Some(key) = first.and_then(|operation| convolution(descriptors, operation)) else { return 0 };
        if let Some(&bytes) = self.table.get(&key) {
            return bytes;
        }
        *self.unknown.entry(key).or_default() += 1;
        0
    }
}

/// Names a convolution as the table does: direction, input with its data type, output, weights.
fn convolution(descriptors: &Descriptors, operation: &Descriptor) -> Option<String> {
    let (direction, [weights, input, output]) = match operation.kind {
        kind::CONVOLUTION_FORWARD => ("fwd", name::FORWARD_W_X_Y),
        kind::CONVOLUTION_BACKWARD_DATA => ("dgrad", name::DATA_W_DX_DY),
        kind::CONVOLUTION_BACKWARD_FILTER => ("wgrad", name::FILTER_DW_X_DY),
        _ => return None,
    };
    let mut key = direction.to_owned();
    for (index, tensor) in [input, output, weights].into_iter().enumerate() {
        let tensor = descriptors.referred(operation, tensor)?;
        let sizes = tensor.attributes.get(&name::TENSOR_DIMENSIONS)?.i64s();
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        let _ = write!(key, ":{}", sizes.join("x"));
        if index == 0 {
            let data_type = tensor.attributes.get(&name::TENSOR_TYPE).and_then(|found| found.i32());
            let _ = write!(key, ",{}", data_type.unwrap_or(-1));
        }
    }
    Some(key)
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
    fn a_plan_of_a_known_convolution_has_its_workspace_and_the_second_plan_none() {
        let mut descriptors = Descriptors::default();
        for (handle, sizes) in [(1, [2, 3, 8, 8]), (2, [2, 4, 8, 8]), (3, [4, 3, 3, 3])] {
            tensor(&mut descriptors, handle, sizes);
        }
        let [operation, graph, heuristics, first, second, plan] = [10, 11, 12, 13, 14, 15];
        descriptors.create(operation, kind::CONVOLUTION_FORWARD);
        for (attribute, tensor) in name::FORWARD_W_X_Y.into_iter().zip([3, 1, 2]) {
            descriptors.set(operation, attribute, handles(&[tensor])).unwrap();
        }
        for other in [graph, heuristics, first, second, plan] {
            descriptors.create(other, 0);
        }
        descriptors.set(graph, name::GRAPH_OPERATIONS, handles(&[operation])).unwrap();
        descriptors.set(heuristics, name::HEURISTICS_GRAPH, handles(&[graph])).unwrap();
        let mut workspaces = Workspaces::default();
        workspaces.table.insert("fwd:2x3x8x8,0:2x4x8x8:4x3x3x3".to_owned(), 4096);
        let found =
            descriptors.read(heuristics, name::HEURISTICS_RESULTS, 15, &[first, second], &mut workspaces);
        assert_eq!(found.unwrap().0, 2);
        for (configuration, bytes) in [(first, 4096), (second, 0)] {
            descriptors.set(plan, name::PLAN_CONFIGURATION, handles(&[configuration])).unwrap();
            let (_, value) = descriptors.read(plan, name::PLAN_WORKSPACE, 3, &[], &mut workspaces).unwrap();
            assert_eq!(value.unwrap().i64s(), [bytes]);
        }
        assert!(workspaces.unknown.is_empty());
        workspaces.table.clear();
        descriptors.set(plan, name::PLAN_CONFIGURATION, handles(&[first])).unwrap();
        descriptors.read(plan, name::PLAN_WORKSPACE, 3, &[], &mut workspaces).unwrap();
        assert_eq!(workspaces.unknown.len(), 1);
    }
}
