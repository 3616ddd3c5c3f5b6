//! Graphs: lifetimes, in-place nodes and views, orders.

use orlop_core::Alignment;
use orlop_plan::{Graph, GraphBuilder, GraphError, GraphProblem, MinPeak, NodeId, ValueId};
use proptest::prelude::*;
use std::collections::HashMap;

/// Adds a node with one output.
fn op(graph: &mut GraphBuilder, name: &str, inputs: &[ValueId], bytes: u64) -> ValueId {
    let node = graph.node(name, inputs).expect("its values");
    graph.output(node, name, bytes).expect("its node")
}

fn given(graph: &Graph) -> GraphProblem {
    graph.lifetimes(&graph.given_order()).expect("its order")
}

fn lifetime(of: &GraphProblem, value: ValueId) -> (u64, u64) {
    let buffer = of.problem().buffers()[of.buffer(value).expect("a planned value")];
    (buffer.start, buffer.end)
}

#[test]
fn lifetimes_end_with_the_last_reader() {
    let mut graph = GraphBuilder::new();
    let weight = graph.input("weight", 1 << 40);
    let token = graph.planned_input("token", 10);
    let a = op(&mut graph, "a", &[token, weight], 100);
    let b = op(&mut graph, "b", &[a], 200);
    let c = op(&mut graph, "c", &[a, b, a], 300);
    let last = graph.node("last", &[c]).unwrap();
    let unread = graph.output(last, "unread", 400).unwrap();
    graph.keep(b).unwrap();
    graph.scratch(last, 77).unwrap();
    graph.align(c, Alignment::new(4096).unwrap()).unwrap();
    let graph = graph.finish();
    let problem = given(&graph);
    let found = [token, a, b, c, unread].map(|value| lifetime(&problem, value));
    // What is kept is live after the last step.
    assert_eq!(found, [(0, 1), (0, 3), (1, 5), (2, 4), (3, 4)]);
    assert_eq!(problem.buffer(weight), None);
    let of = |value| problem.problem().buffers()[problem.buffer(value).unwrap()];
    assert_eq!((of(c).alignment.bytes(), of(c).size, of(b).alignment), (4096, 300, Alignment::PLANNED));
    assert_eq!(problem.problem().name(problem.buffer(c).unwrap()), Some("c"));
    let scratch = problem.scratch(last).unwrap();
    let scratch = (problem.problem().buffers()[scratch], problem.problem().name(scratch));
    assert_eq!(
        (scratch.0.start, scratch.0.end, scratch.0.size, scratch.1),
        (3, 4, 77, Some("last (scratch)"))
    );
}

#[test]
fn in_place_needs_an_input_that_ends() {
    // Is the output written over the input, if `change` is done to the graph?
    let is_over = |bytes: u64, change: &dyn Fn(&mut GraphBuilder, ValueId, ValueId)| {
        let mut graph = GraphBuilder::new();
        let root = graph.planned_input("root", 1);
        let input = op(&mut graph, "input", &[root], 100);
        let output = op(&mut graph, "output", &[input], bytes);
        graph.in_place(input, output).unwrap();
        change(&mut graph, input, output);
        let graph = graph.finish();
        let problem = given(&graph);
        problem.buffer(input) == problem.buffer(output)
    };
    assert!(is_over(100, &|_, _, _| {}));
    assert!(is_over(256, &|_, _, _| {}), "the memory is as large as that");
    assert!(!is_over(257, &|_, _, _| {}) && !is_over(0, &|_, _, _| {}), "other sizes");
    assert!(!is_over(100, &|graph, input, _| graph.keep(input).unwrap()), "a result is not overwritten");
    assert!(is_over(100, &|graph, _, output| graph.keep(output).unwrap()));
    let read_later = |graph: &mut GraphBuilder, input: ValueId, _: ValueId| {
        op(graph, "later", &[input], 1);
    };
    assert!(!is_over(100, &read_later));
    let view_read_later = |graph: &mut GraphBuilder, input: ValueId, _: ValueId| {
        let view = op(graph, "view", &[input], 100);
        graph.view(input, view).unwrap();
    };
    assert!(!is_over(100, &view_read_later));
}

#[test]
fn a_node_that_reads_two_views_is_not_in_place() {
    let mut graph = GraphBuilder::new();
    let root = graph.planned_input("root", 1);
    let a = op(&mut graph, "a", &[root], 100);
    let transposed = op(&mut graph, "transpose", &[a], 100);
    graph.view(a, transposed).unwrap();
    let sum = op(&mut graph, "sum", &[a, transposed], 100);
    graph.in_place(a, sum).unwrap();
    let graph = graph.finish();
    let problem = given(&graph);
    assert_eq!(problem.buffer(a), problem.buffer(transposed));
    assert_ne!(problem.buffer(a), problem.buffer(sum));
}

#[test]
fn memory_is_taken_once() {
    let mut graph = GraphBuilder::new();
    let root = graph.planned_input("root", 1);
    let (a, b) = (op(&mut graph, "a", &[root], 100), op(&mut graph, "b", &[root], 100));
    let both = graph.node("both", &[a, b]).unwrap();
    let outputs = ["x", "y", "z"].map(|name| graph.output(both, name, 100).unwrap());
    for output in outputs {
        graph.in_place(a, output).unwrap();
        graph.in_place(b, output).unwrap();
    }
    let graph = graph.finish();
    let problem = given(&graph);
    let of = |value| problem.buffer(value).unwrap();
    assert_eq!(outputs.map(of), [of(a), of(b), 3]);
    // The memory of the caller is not overwritten.
    let mut graph = GraphBuilder::new();
    let input = graph.input("input", 100);
    let output = op(&mut graph, "output", &[input], 100);
    graph.in_place(input, output).unwrap();
    let view = op(&mut graph, "view", &[input], 100);
    graph.view(input, view).unwrap();
    let problem = given(&graph.finish());
    assert_eq!((problem.buffer(output), problem.buffer(view)), (Some(0), None));
}

/// Each of these took minutes: the time was proportional to the square of the nodes.
#[test]
fn large_graphs_are_ordered_in_seconds() {
    const NODES: usize = 100_000;
    let check = |graph: GraphBuilder, last: ValueId, bound: u64| {
        let mut graph = graph;
        graph.keep(last).unwrap();
        let graph = graph.finish();
        let found = graph.lifetimes(&MinPeak::new().order(&graph)).unwrap();
        assert_eq!(found.problem().lower_bound(), bound);
        assert_eq!(given(&graph).problem().lower_bound(), bound);
        graph
    };
    // Views of views.
    let mut graph = GraphBuilder::new();
    let input = graph.input("input", 256);
    let first = op(&mut graph, "first", &[input], 256);
    let mut last = first;
    for _ in 0..NODES {
        let view = op(&mut graph, "view", &[last], 256);
        graph.view(last, view).unwrap();
        last = view;
    }
    assert_eq!(check(graph, last, 256).view_base(last), Some(first));

    // One value that many nodes read, whose outputs one node reads, and may write over.
    let mut graph = GraphBuilder::new();
    let input = graph.input("input", 256);
    let first = op(&mut graph, "first", &[input], 256);
    let leaves: Vec<ValueId> = (0..NODES / 25).map(|_| op(&mut graph, "leaf", &[first], 256)).collect();
    let last = op(&mut graph, "last", &leaves, 512);
    leaves.iter().for_each(|&leaf| graph.in_place(leaf, last).unwrap());
    check(graph, last, 256 * leaves.len() as u64 + 512);
}

#[test]
fn views_have_the_base_of_what_becomes_a_view_later() {
    let mut graph = GraphBuilder::new();
    let input = graph.input("input", 256);
    let a = op(&mut graph, "a", &[input], 256);
    let b = op(&mut graph, "b", &[a], 256);
    let c = op(&mut graph, "c", &[b], 256);
    graph.view(b, c).unwrap();
    graph.view(a, b).unwrap();
    let graph = graph.finish();
    assert_eq!([a, b, c].map(|value| graph.view_base(value)), [Some(a); 3]);
}

#[test]
fn wrong_parts_are_refused() {
    let mut other = GraphBuilder::new();
    let foreign = (0..9).map(|_| other.input("x", 1)).last().unwrap();
    let mut graph = GraphBuilder::new();
    let (a, b) = (graph.input("a", 1), graph.input("b", 1));
    let node = graph.node("node", &[a]).unwrap();
    let output = graph.output(node, "output", 1).unwrap();
    let unknown = GraphError::UnknownValue { value: foreign };
    assert_eq!(graph.node("n", &[foreign]), Err(unknown));
    assert_eq!((graph.keep(foreign), graph.view(foreign, output)), (Err(unknown), Err(unknown)));
    assert_eq!(graph.in_place(b, output), Err(GraphError::NotThrough { input: b, output }));
    assert_eq!(graph.in_place(a, b), Err(GraphError::NotThrough { input: a, output: b }));
    graph.in_place(a, output).unwrap();
    assert_eq!(graph.view(a, output), Err(GraphError::TwoSources { output }));
    let view = graph.output(node, "view", 1).unwrap();
    graph.view(a, view).unwrap();
    graph.view(a, view).unwrap();
    assert_eq!(graph.in_place(a, view), Err(GraphError::TwoSources { output: view }));
    let larger = graph.output(node, "larger", 2).unwrap();
    assert_eq!(graph.view(a, larger), Err(GraphError::LargerView { input: a, output: larger }));
    let next = graph.node("next", &[output]).unwrap();
    let graph = graph.finish();
    for (order, wrong) in [(vec![node], next), (vec![next, node], next), (vec![node, node, next], node)] {
        assert_eq!(graph.lifetimes(&order), Err(GraphError::InvalidOrder { node: wrong }));
    }
    let mut large = GraphBuilder::new();
    large.planned_input("a", u64::MAX);
    large.planned_input("b", u64::MAX);
    let large = large.finish();
    assert!(matches!(large.lifetimes(&[]), Err(GraphError::Problem(_))));
    assert!(MinPeak::new().order(&large).is_empty());
}

/// A graph by numbers: each node has the inputs that they choose among the values before it.
fn random_graph(nodes: &[(u64, Vec<usize>, u8)]) -> (Graph, Vec<ValueId>) {
    let (mut graph, mut kept) = (GraphBuilder::new(), Vec::new());
    let mut values = vec![graph.planned_input("planned", 512), graph.input("caller", 512)];
    for (size, inputs, kind) in nodes {
        let inputs: Vec<ValueId> = inputs.iter().map(|&input| values[input % values.len()]).collect();
        let node = graph.node("node", &inputs).expect("its values");
        let output = graph.output(node, "value", *size).expect("a part of the graph");
        match (kind % 8, inputs.first()) {
            (0, Some(&input)) => {
                let viewed = graph.view(input, output);
                assert!(matches!(viewed, Ok(()) | Err(GraphError::LargerView { .. })), "{viewed:?}");
            }
            (1..4, Some(_)) => {
                inputs.iter().for_each(|&input| graph.in_place(input, output).expect("a part of the graph"));
            }
            (4, _) => graph.scratch(node, 256).expect("a part of the graph"),
            (5, _) => {
                graph.keep(output).expect("a part of the graph");
                kept.push(output);
            }
            (6, _) => values.push(graph.output(node, "second", 256).expect("a part of the graph")),
            _ => {}
        }
        values.push(output);
    }
    (graph.finish(), kept)
}

/// Sizes are multiples of the alignment: then the bound is the sum of the live sizes.
fn graphs(nodes: usize) -> impl Strategy<Value = (Graph, Vec<ValueId>)> {
    let node =
        ((1..9_u64).prop_map(|pages| 256 * pages), prop::collection::vec(0..64_usize, 0..4), any::<u8>());
    prop::collection::vec(node, 0..nodes).prop_map(|nodes| random_graph(&nodes))
}

fn values(graph: &Graph) -> impl Iterator<Item = ValueId> {
    let written = graph
        .given_order()
        .into_iter()
        .flat_map(|node| graph.outputs(node).expect("a part of the graph").to_vec());
    let read = graph
        .given_order()
        .into_iter()
        .flat_map(|node| graph.inputs(node).expect("a part of the graph").to_vec());
    written.chain(read)
}

/// Executes a graph: each buffer has the value that was written last, and each read finds its own.
fn check_contents(graph: &Graph, order: &[NodeId], kept: &[ValueId]) {
    let of = graph.lifetimes(order).expect("a part of the graph");
    let mut contents: HashMap<usize, ValueId> = HashMap::new();
    // Inputs are there before the first step.
    for value in values(graph).filter(|&value| graph.producer(value).is_none()) {
        contents.extend(of.buffer(value).map(|buffer| (buffer, value)));
    }
    let is_there = |contents: &HashMap<usize, ValueId>, value: ValueId, time: u64| {
        let base = graph.view_base(value).expect("a part of the graph");
        let Some(buffer) = of.buffer(value) else { return graph.producer(base).is_none() };
        let lives = of.problem().buffers()[buffer];
        lives.start <= time
            && time < lives.end
            && lives.size >= graph.value_size(base).expect("a part of the graph")
            && contents.get(&buffer) == Some(&base)
    };
    for (time, &node) in order.iter().enumerate() {
        for &input in graph.inputs(node).expect("a part of the graph") {
            assert!(is_there(&contents, input, time as u64), "{node:?} reads {input:?}: {graph:#?}");
        }
        for &output in graph.outputs(node).expect("a part of the graph") {
            if graph.view_base(output) == Some(output) {
                contents.insert(of.buffer(output).expect("a part of the graph"), output);
            }
            assert!(is_there(&contents, output, time as u64), "{node:?} writes {output:?}: {graph:#?}");
        }
    }
    for &value in kept {
        assert!(is_there(&contents, value, order.len() as u64), "{value:?} is kept: {graph:#?}");
    }
}

fn peak(graph: &Graph, order: &[NodeId]) -> u64 {
    graph.lifetimes(order).expect("a part of the graph").problem().lower_bound()
}

/// Returns the smallest peak of all orders.
fn smallest_peak(graph: &Graph, order: &mut Vec<NodeId>, best: &mut u64) {
    let all = graph.given_order();
    if order.len() == all.len() {
        *best = peak(graph, order).min(*best);
    }
    for node in all {
        let mut before = graph
            .inputs(node)
            .expect("a part of the graph")
            .iter()
            .filter_map(|&input| graph.producer(input));
        let is_next = !order.contains(&node) && before.all(|before| order.contains(&before));
        if is_next {
            order.push(node);
            smallest_peak(graph, order, best);
            order.pop();
        }
    }
}

proptest! {
    #[test]
    fn every_read_finds_what_was_written((graph, kept) in graphs(40)) {
        let found = MinPeak::new().order(&graph);
        for order in [graph.given_order(), found] {
            check_contents(&graph, &order, &kept);
        }
    }

    #[test]
    fn an_order_is_never_worse_than_the_given_one((graph, _) in graphs(60), width in 0..40_usize) {
        let order = MinPeak::new().width(width).order(&graph);
        prop_assert!(peak(&graph, &order) <= peak(&graph, &graph.given_order()));
    }

    #[test]
    fn small_graphs_get_the_smallest_peak((graph, _) in graphs(7)) {
        let mut smallest = u64::MAX;
        smallest_peak(&graph, &mut Vec::new(), &mut smallest);
        // A beam of one state alone misses it.
        let found = MinPeak::new().width(1).search(&graph);
        prop_assert!(found.is_exact);
        prop_assert_eq!(peak(&graph, &found.order), smallest);
    }
}

/// All orders of nodes that only add to what is live have the same peak, and no set of them can be left out.
#[test]
fn all_sets_of_independent_nodes_are_searched() {
    let search = |nodes: u64, states: usize| {
        let mut graph = GraphBuilder::new();
        let input = graph.input("input", 256);
        for number in 0..nodes {
            let output = op(&mut graph, "output", &[input], 256 * (1 + number));
            graph.keep(output).unwrap();
        }
        MinPeak::new().width(states).search(&graph.finish()).is_exact
    };
    assert!(search(16, 32));
    assert!(!search(17, 32));
    assert!(search(17, 64));
}

#[test]
fn a_search_of_too_many_sets_of_nodes_is_given_up() {
    let mut graph = GraphBuilder::new();
    let input = graph.input("input", 256);
    // In pairs, of which any 20 can be executed in any order, and each costs.
    let larges: Vec<ValueId> =
        (0..40).map(|number| op(&mut graph, "large", &[input], 2560 + 256 * number)).collect();
    let smalls: Vec<ValueId> =
        (0..40).map(|at| op(&mut graph, "small", &[larges[at], larges[(at + 7) % 40]], 256)).collect();
    op(&mut graph, "last", &smalls, 256);
    let found = MinPeak::new().search(&graph.finish());
    assert!(!found.is_exact);
}
