//! Concatenations and splits in place.

use orlop_core::Alignment;
use orlop_plan::{Graph, GraphBuilder, GraphError, GraphProblem, MinPeak, NodeId, Planner, ValueId, verify};
use proptest::prelude::*;
use std::collections::HashMap;

const PAGE: u64 = 256;

/// A graph that is built with the contents of its values: a number for each page.
#[derive(Default, Debug)]
struct Program {
    graph: GraphBuilder,
    contents: HashMap<ValueId, Vec<usize>>,
    values: Vec<ValueId>,
    pages: usize,
    has_parts: bool,
}

impl Program {
    /// Begins with a planned input.
    fn of_pages(pages: usize, has_parts: bool) -> Self {
        let mut program = Self { has_parts, ..Self::default() };
        let planned = program.graph.planned_input("planned", PAGE * pages as u64);
        let pages = program.new_pages(pages);
        program.contents.insert(planned, pages);
        program.values.push(planned);
        program
    }

    fn pages(&self, value: ValueId) -> usize {
        self.contents[&value].len()
    }

    fn last(&self) -> ValueId {
        self.values[self.values.len() - 1]
    }

    fn new_pages(&mut self, count: usize) -> Vec<usize> {
        self.pages += count;
        (self.pages - count..self.pages).collect()
    }

    fn add(&mut self, node: NodeId, pages: Vec<usize>) -> Result<ValueId, GraphError> {
        let value = self.graph.output(node, "value", PAGE * pages.len() as u64)?;
        self.contents.insert(value, pages);
        self.values.push(value);
        Ok(value)
    }

    fn part(&mut self, part: ValueId, whole: ValueId, page: usize) -> Result<(), GraphError> {
        if self.has_parts { self.graph.part(part, whole, PAGE * page as u64) } else { Ok(()) }
    }

    fn concat(&mut self, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        let node = self.graph.node("concat", inputs)?;
        let whole = self.add(node, inputs.iter().flat_map(|input| self.contents[input].clone()).collect())?;
        let mut page = 0;
        for &input in inputs {
            self.part(input, whole, page)?;
            page += self.pages(input);
        }
        Ok(whole)
    }

    fn split(&mut self, input: ValueId, at: usize) -> Result<(), GraphError> {
        let node = self.graph.node("split", &[input])?;
        let contents = self.contents[&input].clone();
        let (left, right) = contents.split_at(at);
        for (pages, page) in [(left, 0), (right, at)] {
            let part = self.add(node, pages.to_vec())?;
            self.part(part, input, page)?;
        }
        Ok(())
    }

    fn compute(&mut self, inputs: &[ValueId], pages: usize, is_in_place: bool) -> Result<(), GraphError> {
        let node = self.graph.node("compute", inputs)?;
        let contents = self.new_pages(pages);
        let output = self.add(node, contents)?;
        inputs.iter().filter(|_| is_in_place).try_for_each(|&input| self.graph.in_place(input, output))
    }

    fn view(&mut self, input: ValueId) -> Result<(), GraphError> {
        let node = self.graph.node("view", &[input])?;
        let output = self.add(node, self.contents[&input].clone())?;
        self.graph.view(input, output)
    }

    /// Adds a node whose values are parts of each other in a way that no memory can have.
    fn conflict(&mut self, input: ValueId, kind: usize) -> Result<ValueId, GraphError> {
        let contents = self.contents[&input].clone();
        let operand = if kind == 2 { self.copy(input)? } else { input };
        let node = self.graph.node("conflict", &[input, operand])?;
        let whole = self.add(node, contents.clone())?;
        self.part(operand, whole, 0)?;
        let part = if kind == 0 { self.add(node, contents)? } else { whole };
        self.part(part, input, 0)?;
        Ok(whole)
    }

    /// Adds a value with the same contents, written over the last one if it fits.
    fn copy(&mut self, input: ValueId) -> Result<ValueId, GraphError> {
        let over = self.last();
        let node = self.graph.node("copy", &[input, over])?;
        let copy = self.add(node, self.contents[&input].clone())?;
        self.graph.in_place(over, copy)?;
        Ok(copy)
    }
}

/// What a random node is: a kind, its inputs, and a number.
type Choice = (u8, Vec<prop::sample::Index>, usize);

fn program(choices: &[Choice], has_parts: bool) -> Result<(Graph, Program), GraphError> {
    let mut program = Program::of_pages(2, has_parts);
    for (kind, inputs, number) in choices {
        let inputs: Vec<ValueId> = inputs.iter().map(|at| *at.get(&program.values)).collect();
        let recent = program.last();
        match kind % 9 {
            0..=2 if inputs.iter().map(|&input| program.pages(input)).sum::<usize>() < 64 => {
                program.concat(&inputs)?;
            }
            3 | 4 if program.pages(recent) > 1 => program.split(recent, number % program.pages(recent))?,
            5 => program.view(inputs[0])?,
            6 => {
                let pages = program.pages(recent);
                program.compute(&[recent, inputs[0]], pages, true)?;
            }
            7 => {
                program.conflict(inputs[0], number % 3)?;
            }
            _ => program.compute(&inputs, 1 + number % 4, false)?,
        }
        if number % 16 == 0 {
            program.graph.keep(recent)?;
        }
        if number % 8 < 3 {
            let alignment = Alignment::new(256 << (number % 8)).expect("a power of two");
            program.graph.align(program.last(), alignment)?;
        }
    }
    Ok((program.graph.clone().finish(), program))
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    let inputs = prop::collection::vec(any::<prop::sample::Index>(), 1..4);
    prop::collection::vec((any::<u8>(), inputs, 0..64_usize), 1..24)
}

/// Executes a plan: each node finds its inputs as they were written.
fn check(graph: &Graph, program: &Program, order: &[NodeId]) -> Result<(), TestCaseError> {
    let of = graph.lifetimes(order).expect("an order");
    let plan = Planner::new().plan(of.problem());
    verify(of.problem(), &plan).expect("a plan");
    let mut memory = vec![usize::MAX; usize::try_from(plan.height() / PAGE).expect("small")];
    let place = |value: ValueId| {
        let offset = plan.offset(of.buffer(value).expect("planned")).expect("a buffer");
        usize::try_from(offset / PAGE).expect("small")
    };
    let write = |memory: &mut Vec<usize>, value: ValueId| {
        let pages = &program.contents[&value];
        memory[place(value)..place(value) + pages.len()].copy_from_slice(pages);
    };
    write(&mut memory, program.values[0]);
    let is_there = |memory: &[usize], value: ValueId| {
        let pages = &program.contents[&value];
        memory[place(value)..place(value) + pages.len()] == pages[..]
    };
    for &node in order {
        for &input in graph.inputs(node).unwrap_or_default() {
            prop_assert!(is_there(&memory, input), "{:?} reads {:?}", node, input);
        }
        graph.outputs(node).unwrap_or_default().iter().for_each(|&output| write(&mut memory, output));
    }
    let steps = order.len() as u64;
    for &value in &program.values {
        if of.lifetime(value).is_some_and(|lifetime| lifetime.end > steps) {
            prop_assert!(is_there(&memory, value), "{:?} is kept", value);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn parts_have_what_was_written(choices in choices()) {
        let (graph, program) = program(&choices, true).expect("a graph");
        check(&graph, &program, &graph.given_order())?;
        check(&graph, &program, &MinPeak::new().order(&graph))?;
    }

    #[test]
    fn parts_make_no_load_higher(choices in choices()) {
        let bound = |has_parts| {
            let (graph, _) = program(&choices, has_parts).expect("a graph");
            given(&graph).problem().lower_bound()
        };
        prop_assert!(bound(true) <= bound(false));
    }
}

fn given(graph: &Graph) -> GraphProblem {
    graph.lifetimes(&graph.given_order()).expect("its order")
}

/// Returns the number of buffers that are parts of others.
fn parts(graph: &Graph) -> usize {
    let problem = given(graph);
    (0..problem.problem().len()).filter(|&buffer| problem.problem().part_of(buffer).is_some()).count()
}

/// A chain of values, each made of the one before and a new one, as in a DenseNet; then split again.
fn chain(length: usize, has_parts: bool) -> Result<Graph, GraphError> {
    let mut program = Program { has_parts, ..Program::default() };
    let input = program.graph.input("input", PAGE);
    program.contents.insert(input, vec![0]);
    program.compute(&[input], 4, false)?;
    for _ in 0..length {
        let whole = program.last();
        program.compute(&[whole], 4, false)?;
        program.concat(&[whole, program.last()])?;
    }
    program.split(program.last(), 4)?;
    Ok(program.graph.finish())
}

#[test]
fn concatenations_of_concatenations_have_one_place() {
    let graph = chain(8, true).expect("a graph");
    assert_eq!(parts(&graph), 2 * 8 + 2);
    // One block of the largest value, instead of the two largest.
    assert_eq!(given(&graph).problem().lower_bound(), 36 * PAGE);
    assert_eq!(given(&chain(8, false).expect("a graph")).problem().lower_bound(), 2 * 36 * PAGE);
}

/// Memory for a concatenation from its first operand on can cost more than to copy that.
#[test]
fn operands_that_wait_are_copied() {
    let mut program = Program { has_parts: true, ..Program::default() };
    let input = program.graph.input("input", PAGE);
    program.contents.insert(input, vec![0]);
    let waiting = |program: &mut Program, between: usize| {
        program.compute(&[input], 1, false)?;
        let first = program.last();
        program.compute(&[input], between, false)?;
        for pages in [1, 8] {
            program.compute(&[program.last()], pages, false)?;
        }
        program.concat(&[first, program.last()])
    };
    waiting(&mut program, 1).expect("a graph");
    assert_eq!(parts(&program.graph.clone().finish()), 2);
    // With the place for all 9 pages, 110 would be live when the large value is read, instead of 102. That of
    // the second operand is the result's.
    waiting(&mut program, 100).expect("a graph");
    assert_eq!(parts(&program.graph.finish()), 2 + 1);
}

/// One node whose operands wait leaves time for the others, however many operands it has.
#[test]
fn many_operands_that_wait_are_copied_at_once() {
    const OPERANDS: usize = 10_000;
    let mut program = Program { has_parts: true, ..Program::default() };
    let input = program.graph.input("input", PAGE);
    program.contents.insert(input, vec![0]);
    let others = [(); 3].map(|()| {
        program.compute(&[input], 1, false).expect("its input");
        program.last()
    });
    let mut operands = vec![input];
    for _ in 0..OPERANDS {
        program.compute(&[input], 1, false).expect("its input");
        operands.push(program.last());
    }
    for pages in [4 * OPERANDS, 1] {
        program.compute(&[program.last()], pages, false).expect("its input");
    }
    program.concat(&operands).expect("its inputs");
    for other in others {
        program.concat(&[other]).expect("its input");
    }
    assert_eq!(parts(&program.graph.finish()), 3);
}

#[test]
fn a_buffer_is_a_part_or_a_whole_of_one_node() {
    for kind in 0..3 {
        let mut program = Program::of_pages(2, true);
        let planned = program.last();
        program.compute(&[planned], 2, false).expect("its input");
        let input = program.last();
        program.compute(&[planned], 2, false).expect("its input");
        let whole = program.conflict(input, kind).expect("its inputs");
        program.compute(&[program.last()], 2, true).expect("its input");
        program.compute(&[whole, program.last()], 1, false).expect("its inputs");
        let graph = program.graph.clone().finish();
        check(&graph, &program, &graph.given_order()).expect("what was written");
        assert_eq!(parts(&graph), 1);
    }
}

#[test]
fn a_part_is_aligned_for_its_own_parts() {
    let mut program = Program::of_pages(1, true);
    let planned = program.last();
    program.compute(&[planned], 1, false).expect("its input");
    let first = program.last();
    program.compute(&[planned], 1, false).expect("its input");
    let aligned = program.last();
    program.graph.align(aligned, Alignment::new(512).expect("a power of two")).expect("its value");
    program.compute(&[planned], 1, false).expect("its input");
    let inner = program.concat(&[aligned, program.last()]).expect("its inputs");
    program.concat(&[first, inner]).expect("its inputs");
    let graph = program.graph.clone().finish();
    check(&graph, &program, &graph.given_order()).expect("what was written");
    // The two of the inner one, which is copied, and the first of the outer one.
    assert_eq!(parts(&graph), 3);
}

#[test]
fn parts_of_one_whole_do_not_overlap() {
    let mut graph = GraphBuilder::new();
    let inputs = ["a", "b", "c"].map(|name| graph.planned_input(name, 512));
    let node = graph.node("concat", &inputs).expect("its values");
    let [one, other] = ["one", "other"].map(|name| graph.output(node, name, 1024).expect("its node"));
    assert_eq!(graph.part(inputs[0], one, 0), Ok(()));
    assert_eq!(graph.part(inputs[1], other, 0), Ok(()));
    let outside = GraphError::PartOutside { part: inputs[2], whole: one, offset: 0 };
    assert_eq!(graph.part(inputs[2], one, 0), Err(outside));
    assert_eq!(graph.part(inputs[2], one, 512), Ok(()));
}

#[test]
fn wrong_parts_are_refused() {
    let mut graph = GraphBuilder::new();
    let input = graph.planned_input("input", 1024);
    let node = graph.node("split", &[input]).expect("its value");
    let left = graph.output(node, "left", 512).expect("its node");
    let right = graph.output(node, "right", 512).expect("its node");
    assert_eq!(graph.part(left, right, 0), Err(GraphError::NotThrough { input: right, output: left }));
    let outside = |part, offset| Err(GraphError::PartOutside { part, whole: input, offset });
    assert_eq!(graph.part(left, input, 513), outside(left, 513));
    assert_eq!(graph.part(left, input, u64::MAX), outside(left, u64::MAX));
    assert_eq!(graph.part(left, input, 0), Ok(()));
    assert_eq!(graph.part(right, input, 511), outside(right, 511));
    assert_eq!(graph.part(right, input, 512), Ok(()));
    let graph = graph.finish();
    let found: Vec<_> = graph.parts(node).collect();
    assert_eq!(found, [(left, input, 0), (right, input, 512)]);
}
