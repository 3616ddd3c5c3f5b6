//! Random graphs for ranges of sizes: each size within them has room, and in place is only what has the same
//! sizes in each run.

use super::inference::{body, file, int, integers, untyped, with};
use super::*;
use crate::OnnxFile;

const RANGES: [(&str, u64); 2] = [("n", 6), ("m", 5)];

/// Makes a graph, step by step. Rows are tensors of one integer, from which shapes are computed.
struct RandomGraph {
    state: u64,
    nodes: Vec<NodeProto>,
    /// By name, with their ranks.
    tensors: Vec<(String, u64)>,
    rows: Vec<String>,
}

impl RandomGraph {
    fn new(seed: u64) -> Self {
        let tensors = vec![("x".to_owned(), 3), ("z".to_owned(), 2)];
        let mut made = Self { state: seed.wrapping_mul(2) + 1, nodes: Vec::new(), tensors, rows: Vec::new() };
        (0..4).for_each(|_| made.size());
        (0..12).for_each(|_| made.step());
        made
    }

    fn below(&mut self, end: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % end
    }

    fn any<T: Clone>(&mut self, of: &[T]) -> T {
        let count = u64::try_from(of.len()).expect("few");
        of[usize::try_from(self.below(count)).expect("few")].clone()
    }

    fn tensor(&mut self) -> (String, u64) {
        self.any(&self.tensors.clone())
    }

    /// A row, or sometimes a number.
    fn row(&mut self) -> String {
        let constant = ["one", "two", "three"];
        if self.below(4) == 0 { self.any(&constant).to_owned() } else { self.any(&self.rows.clone()) }
    }

    fn node(&mut self, operator: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let name = format!("{}{}", operator.to_lowercase(), self.nodes.len());
        self.nodes.push(with(node(operator, inputs, &[&name]), attributes));
        name
    }

    fn joint(&mut self, rows: &[&str]) -> String {
        self.node("Concat", rows, vec![int("axis", 0)])
    }

    /// A size of a tensor as a row.
    fn size(&mut self) {
        let (tensor, rank) = self.tensor();
        let axis = ["zero", "one", "two", "three"][usize::try_from(self.below(rank.min(4))).expect("few")];
        let shape = self.node("Shape", &[&tensor], vec![]);
        let row = self.node("Gather", &[&shape, axis], vec![]);
        self.rows.push(row);
    }

    fn step(&mut self) {
        let (tensor, rank) = self.tensor();
        let (one, other) = (self.row(), self.row());
        let (one, other) = (one.as_str(), other.as_str());
        let axis = int("axis", i64::try_from(self.below(rank.max(1))).expect("few"));
        match self.below(14) {
            0 | 1 => self.size(),
            2 | 3 => {
                let operator = self.any(&["Mul", "Mul", "Div", "Add", "Sub", "Min", "Max"]);
                let row = self.node(operator, &[one, other], vec![]);
                self.rows.push(row);
            }
            4..=6 => {
                let target: &[&str] = match self.below(6) {
                    0 => &[one, "rest"],
                    1 => &["rest", one],
                    2 => &[one, other, "rest"],
                    3 => &[one, "rest", other],
                    4 => &["zero", "rest"],
                    _ => &["rest"],
                };
                let shape = self.joint(target);
                let reshaped = self.node("Reshape", &[&tensor, &shape], vec![]);
                self.tensors.push((reshaped, u64::try_from(target.len()).expect("few")));
            }
            7 => {
                let turned = self.node("Transpose", &[&tensor], vec![]);
                self.tensors.push((turned, rank));
            }
            8 => {
                let other = if self.below(2) == 0 { tensor.clone() } else { self.tensor().0 };
                let [left, right] = [&tensor, &other].map(|of| self.node("Exp", &[of], vec![]));
                let sum = self.node("Add", &[&left, &right], vec![]);
                self.tensors.push((sum, rank));
            }
            9 => {
                let joined = self.node("Concat", &[&tensor, &tensor], vec![axis]);
                self.tensors.push((joined, rank));
            }
            10 => {
                let from = if self.below(2) == 0 { "zero" } else { other };
                let part = self.node("Slice", &[&tensor, from, one], vec![]);
                self.tensors.push((part, rank));
            }
            11 => {
                let own = self.node("Shape", &[&tensor], vec![]);
                let target = self.joint(&[one, &own]);
                let expanded = self.node("Expand", &[&tensor, &target], vec![]);
                self.tensors.push((expanded, rank + 1));
            }
            12 => {
                let (other_tensor, other_rank) = self.tensor();
                let name = format!("branch{}", self.nodes.len());
                let branch = |of: &str, result: &str| GraphProto {
                    node: vec![node("Exp", &[of], &[result])],
                    output: vec![untyped(result)],
                    ..GraphProto::default()
                };
                let is_same = self.node("Equal", &[one, other], vec![]);
                let branches = vec![
                    body("then_branch", branch(&tensor, &format!("{name}_then"))),
                    body("else_branch", branch(&other_tensor, &format!("{name}_else"))),
                ];
                let chosen = self.node("If", &[&is_same], branches);
                if rank == other_rank {
                    self.tensors.push((chosen, rank));
                }
            }
            _ => {
                let name = format!("loop{}", self.nodes.len());
                let [number, on, state, new, goes_on] =
                    ["number", "on", "state", "new", "goes_on"].map(|part| format!("{name}_{part}"));
                let repeated = GraphProto {
                    node: vec![
                        with(node("Concat", &[&state, &tensor], &[&new]), vec![axis]),
                        node("Identity", &[&on], &[&goes_on]),
                    ],
                    input: vec![untyped(&number), untyped(&on), untyped(&state)],
                    output: vec![untyped(&goes_on), untyped(&new)],
                    ..GraphProto::default()
                };
                let looped = self.node("Loop", &[one, "", &tensor], vec![body("body", repeated)]);
                self.tensors.push((looped, rank));
            }
        }
    }

    fn file(self) -> OnnxFile {
        let of = |name: &str, sizes: Vec<Dimension>| info(name, FLOAT, sizes);
        let output = self.tensors.last().map(|(name, _)| untyped(name)).expect("an input");
        file(GraphProto {
            initializer: [("zero", 0), ("one", 1), ("two", 2), ("three", 3), ("rest", -1)]
                .map(|(name, number)| integers(name, &[number]))
                .to_vec(),
            node: self.nodes,
            input: vec![
                of("x", vec![symbol("n"), symbol("m"), size(4)]),
                of("z", vec![symbol("m"), symbol("n")]),
            ],
            output: vec![output],
            ..GraphProto::default()
        })
    }
}

/// Compares the model of a range with that of sizes within it.
fn check(range: &OnnxModel, exact: &OnnxModel, case: &str) {
    for value in range.graph.values() {
        let name = range.graph.value_name(value).expect("its name");
        let Some(of_run) = exact.find(name) else { continue };
        let bytes = |model: &OnnxModel, value| model.graph.value_size(value).expect("its size");
        let (needed, planned) = (bytes(exact, of_run), bytes(range, value));
        assert!(needed <= planned, "{case}: {name} has {planned} bytes and needs {needed}");
        for &source in range.graph.in_place_sources(value).iter().chain(&range.graph.view_source(value)) {
            let source = exact.find(range.graph.value_name(source).expect("its name")).expect("it is there");
            assert_eq!(bytes(exact, source), needed, "{case}: {name} is not where its input is");
        }
    }
}

#[test]
fn random_graphs_have_room_for_every_size_of_a_range() {
    let (mut ranges, mut runs) = (0, 0);
    for seed in 0..if cfg!(miri) { 5 } else { 400 } {
        let file = RandomGraph::new(seed).file();
        let reader =
            RANGES.iter().fold(OnnxReader::new(), |reader, &(name, max)| reader.bind_range(name, 1..=max));
        let range = reader.resolve(&file);
        ranges += u32::from(range.is_ok());
        for (n, m) in [(1, 1), (6, 5), (2, 5), (6, 1), (3, 3), (5, 2)] {
            let Ok(exact) = OnnxReader::new().bind("n", n).bind("m", m).resolve(&file) else { continue };
            runs += 1;
            let case = format!("seed {seed}, {n} and {m}");
            match &range {
                Ok(range) => check(range, &exact, &case),
                Err(error) => {
                    let is_limit = matches!(
                        error,
                        OnnxError::UnknownSizes { .. }
                            | OnnxError::InvalidSize { .. }
                            | OnnxError::TotalOverflow { .. }
                    );
                    assert!(is_limit, "{case}: {error}");
                }
            }
        }
    }
    assert!(ranges > 100 && runs > 500, "{ranges} ranges, {runs} runs");
    println!("{ranges} ranges, {runs} runs");
}
