//! From a plan to a [`ModelPlan`].

use super::spaces::Places;
use super::{BodyPlan, GivenSizes, GraphPlan, ModelPlan, NodePlan, TensorOrigin, TensorPlan, Workspace};
use crate::bindings::Bindings;
use crate::infer::Range;
use crate::{OnnxModel, OnnxValue, ValueOrigin};
use orlop_core::Alignment;
use orlop_plan::{GraphProblem, NodeId, Plan, SpacesPlan, ValueId};

impl ModelPlan {
    /// Describes the plan of a model whose nodes are executed in this order. `lifetimes` are those of the
    /// order, `plan` is a plan of their problem.
    #[must_use]
    pub fn new(model: &OnnxModel, order: &[NodeId], lifetimes: &GraphProblem, plan: &Plan) -> Self {
        let graph = GraphPlan::new(model, order, lifetimes, Places::One(plan));
        Self { given: GivenSizes::of(&model.bindings), graph }
    }

    /// Describes the plan of a model in several memories: a plan of the
    /// [divisible](GraphProblem::divisible) problem.
    #[must_use]
    pub fn in_spaces(
        model: &OnnxModel,
        order: &[NodeId],
        lifetimes: &GraphProblem,
        plan: &SpacesPlan,
    ) -> Self {
        let graph = GraphPlan::new(model, order, lifetimes, Places::Several(plan));
        Self { given: GivenSizes::of(&model.bindings), graph }
    }
}

impl GivenSizes {
    fn of(bindings: &Bindings) -> Self {
        let pair = |range: &Range| [range.min(), range.max()].map(|size| u64::try_from(size).unwrap_or(0));
        let sizes = |sizes: &Vec<Range>| sizes.iter().map(pair).collect();
        Self {
            inputs: bindings.inputs.iter().map(|(name, given)| (name.clone(), sizes(given))).collect(),
            symbols: bindings.symbols.iter().map(|(name, range)| (name.clone(), pair(range))).collect(),
            values: bindings.values.clone(),
            bounds: bindings.bounds.clone(),
        }
    }

    pub(super) fn bindings(&self) -> Bindings {
        let range = |&[min, max]: &[u64; 2]| {
            let [min, max] = [min, max].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
            Range::between(min, max)
        };
        let sizes = |sizes: &Vec<[u64; 2]>| sizes.iter().map(range).collect();
        Bindings {
            inputs: self.inputs.iter().map(|(name, given)| (name.clone(), sizes(given))).collect(),
            symbols: self.symbols.iter().map(|(name, given)| (name.clone(), range(given))).collect(),
            values: self.values.clone(),
            bounds: self.bounds.clone(),
            unnamed: Vec::new(),
        }
    }
}

impl GraphPlan {
    fn new(model: &OnnxModel, order: &[NodeId], lifetimes: &GraphProblem, places: Places<'_>) -> Self {
        let graph = &model.graph;
        let name = |value: ValueId| graph.value_name(value).unwrap_or_default().to_owned();
        let names =
            |values: Option<&[ValueId]>| values.unwrap_or_default().iter().copied().map(name).collect();
        let node = |&node: &NodeId| NodePlan {
            name: graph.node_name(node).unwrap_or_default().to_owned(),
            operator: model.operator(node).unwrap_or_default().to_owned(),
            index: node.index(),
            inputs: names(graph.inputs(node)),
            outputs: names(graph.outputs(node)),
            workspace: lifetimes.scratch(node).and_then(|buffer| {
                let bytes = lifetimes.problem().buffers().get(buffer)?.size;
                Some(Workspace { buffer, offset: places.offset(buffer)?, bytes, space: places.space(buffer) })
            }),
            bodies: model.bodies(node).iter().map(body).collect(),
        };
        let tensor = |value: ValueId| tensor(model, value, lifetimes, places);
        let mut described = Self {
            peak: places.peak(),
            alignment: Alignment::PLANNED.bytes() as u64,
            inputs: model.inputs.iter().copied().map(name).collect(),
            outputs: model.outputs.iter().copied().map(name).collect(),
            nodes: order.iter().map(node).collect(),
            tensors: graph.values().map(tensor).collect(),
            spaces: places.blocks(),
        };
        if let Places::One(_) = places {
            described.note_parts(model, lifetimes);
        }
        described
    }
}

fn body(body: &crate::OnnxBody) -> BodyPlan {
    let order = body.model.graph.given_order();
    BodyPlan {
        attribute: body.attribute.clone(),
        graph: GraphPlan::new(&body.model, &order, &body.lifetimes, Places::One(&body.plan)),
    }
}

fn tensor(model: &OnnxModel, value: ValueId, lifetimes: &GraphProblem, places: Places<'_>) -> TensorPlan {
    let graph = &model.graph;
    let known = model.value(value);
    let buffer = lifetimes.buffer(value).filter(|_| model.is_placed(value));
    let lifetime = lifetimes.lifetime(value).unwrap_or_default();
    let name = |value| graph.value_name(value).map(str::to_owned);
    let is_view = graph.view_source(value).is_some();
    let shared = graph.in_place_sources(value).iter().copied();
    let shared = shared.filter(|_| buffer.is_some()).find(|&source| lifetimes.buffer(source) == buffer);
    TensorPlan {
        name: name(value).unwrap_or_default(),
        origin: known.map_or(TensorOrigin::Input, |known| known.origin().into()),
        data_type: known.and_then(OnnxValue::data_type),
        sizes: known.and_then(OnnxValue::sizes).map(<[u64]>::to_vec),
        is_bound: known.is_some_and(OnnxValue::is_bound),
        bytes: graph.value_size(value).unwrap_or(0),
        buffer,
        offset: buffer.and_then(|buffer| places.offset(buffer)),
        space: buffer.and_then(|buffer| places.space(buffer)),
        start: lifetime.start,
        end: lifetime.end,
        view_of: graph.view_source(value).and_then(name),
        in_place_of: shared.filter(|_| !is_view).and_then(name),
        part_of: None,
    }
}

impl From<ValueOrigin> for TensorOrigin {
    fn from(origin: ValueOrigin) -> Self {
        match origin {
            ValueOrigin::Input => Self::Input,
            ValueOrigin::Weight => Self::Weight,
            ValueOrigin::SparseWeight => Self::SparseWeight,
            ValueOrigin::Node => Self::Node,
        }
    }
}
