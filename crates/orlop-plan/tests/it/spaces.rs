//! Several memories: the least cost, by enumeration of all assignments and all plans.

use crate::buffer;
use crate::tiny::lowest;
use orlop_core::SplitMix64;
use orlop_plan::{
    Buffer, GraphBuilder, GraphError, Problem, ProblemBuilder, Space, SpaceError, SpacePlanner, Verdict,
};
use proptest::prelude::*;

/// Returns problems whose buffers have accesses, and may be in some spaces only.
fn preferring() -> impl Strategy<Value = Problem> {
    let of = (buffer(4, 6, 1), 0..4_u64, 0..4_usize);
    prop::collection::vec(of, 1..5).prop_map(|buffers| {
        let mut builder = ProblemBuilder::new();
        for (buffer, accesses, allowed) in buffers {
            let index = builder.push(buffer).expect("sizes are small");
            builder.accesses(index, accesses).expect("there is such a buffer");
            let names = [&[][..], &["a"], &["b", "c"], &["a", "b", "c"]][allowed];
            builder.allow_spaces(index, names.iter().copied()).expect("there is such a buffer");
        }
        builder.finish()
    })
}

/// Returns the least cost of all assignments that have a plan.
fn least_cost(problem: &Problem, spaces: &[Space]) -> Option<u64> {
    let count = u32::try_from(problem.len()).expect("a few");
    let assignments = (0..spaces.len().pow(count)).filter_map(|mut number| {
        let mut in_space: Vec<Vec<Buffer>> = vec![Vec::new(); spaces.len()];
        let mut cost = 0;
        for (index, &buffer) in problem.buffers().iter().enumerate() {
            let space = number % spaces.len();
            number /= spaces.len();
            let allowed = problem.spaces(index);
            if !allowed.is_empty() && !allowed.contains(&spaces[space].name) {
                return None;
            }
            in_space[space].push(buffer);
            cost += buffer.size * problem.accesses(index) * spaces[space].cost;
        }
        let fits = |(space, buffers): (&Space, Vec<Buffer>)| {
            lowest(&Problem::new(buffers).expect("a part")) <= space.capacity
        };
        spaces.iter().zip(in_space).all(fits).then_some(cost)
    });
    assignments.min()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn small_problems_have_the_least_cost(
        problem in preferring(),
        capacities in (0..9_u64, 0..9_u64, 0..20_u64),
        costs in (0..4_u64, 0..4_u64, 0..9_u64),
    ) {
        let spaces = [
            Space::new("a", capacities.0, costs.0),
            Space::new("b", capacities.1, costs.1),
            Space::new("c", capacities.2, costs.2),
        ];
        let expected = least_cost(&problem, &spaces);
        match SpacePlanner::new(spaces.clone()).plan(&problem) {
            Ok(plan) => {
                plan.verify(&problem).unwrap();
                prop_assert_eq!(Some(plan.cost()), expected);
                prop_assert_eq!(plan.verdict(), Verdict::Optimal);
            }
            Err(SpaceError::NoRoom { is_proven }) => prop_assert!(is_proven && expected.is_none()),
            Err(SpaceError::TooLarge { .. }) => prop_assert_eq!(expected, None),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

#[test]
fn many_buffers_are_spilled_at_little_cost() {
    let mut random = SplitMix64::new(6);
    let mut builder = ProblemBuilder::new();
    for _ in 0..150 {
        let start = random.below(200) as u64;
        let lifetime = start..start + 1 + random.below(40) as u64;
        let index = builder.push(Buffer::new(lifetime, 1 + random.below(5000) as u64)).unwrap();
        builder.accesses(index, 1 + random.below(9) as u64).unwrap();
    }
    let problem = builder.finish();
    let half = problem.lower_bound() / 2;
    let spaces = [Space::new("sram", half, 1), Space::new("dram", u64::MAX, 10)];
    let plan = SpacePlanner::new(spaces.clone()).plan(&problem).unwrap();
    plan.verify(&problem).unwrap();
    let all = |cost: u64| -> u64 {
        let costs = problem.buffers().iter().enumerate();
        costs.map(|(index, buffer)| buffer.size * problem.accesses(index) * cost).sum()
    };
    assert!(all(1) < plan.lower_bound() && plan.lower_bound() <= plan.cost());
    // Less than a quarter of the accesses go to the second space.
    assert!(plan.cost() < all(1) + 9 * all(1) / 4, "{} of {} to {}", plan.cost(), all(1), all(10));
    // Without room for what is spilled, nothing fits.
    let spaces = [Space::new("sram", half, 1), Space::new("dram", half / 2, 10)];
    let error = SpacePlanner::new(spaces).plan(&problem).unwrap_err();
    assert_eq!(error, SpaceError::NoRoom { is_proven: false });
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let mut builder = ProblemBuilder::new();
    builder.push_named("x", Buffer::unaligned(0..1, 8)).unwrap();
    let plan = |builder: &ProblemBuilder, spaces: &[Space]| {
        SpacePlanner::new(spaces.iter().cloned()).plan(&builder.clone().finish()).unwrap_err().to_string()
    };
    let sram = Space::new("sram", 4, 1);
    assert_eq!(plan(&builder, &[]), "there are no spaces");
    assert_eq!(plan(&builder, &[sram.clone(), sram.clone()]), "two spaces have the name \"sram\"");
    let large = "buffer 0 (\"x\") of 8 bytes is larger than each space in which it may be";
    assert_eq!(plan(&builder, std::slice::from_ref(&sram)), large);
    builder.allow_spaces(0, ["flash"]).unwrap();
    let unknown = "buffer 0 (\"x\") may be in the space \"flash\", which does not exist";
    assert_eq!(plan(&builder, std::slice::from_ref(&sram)), unknown);
    builder.accesses(0, u64::MAX).unwrap();
    let flash = Space::new("flash", 8, 9);
    assert_eq!(plan(&builder, std::slice::from_ref(&flash)), "the costs of all buffers may exceed 2^64");
    builder.fix(0, 0).unwrap();
    assert!(plan(&builder, &[sram]).starts_with("fixed offsets"));
}

#[test]
fn the_buffers_of_a_graph_are_accessed_by_nodes_and_have_no_parts() -> Result<(), GraphError> {
    let mut graph = GraphBuilder::new();
    let image = graph.input("image", 256);
    let first = graph.node("first", &[image])?;
    let left = graph.output(first, "left", 256)?;
    let right = graph.output(first, "right", 256)?;
    let reshape = graph.node("reshape", &[left])?;
    let flat = graph.output(reshape, "flat", 256)?;
    graph.view(left, flat)?;
    let concat = graph.node("concat", &[left, right])?;
    let both = graph.output(concat, "both", 512)?;
    graph.part(left, both, 0)?;
    graph.part(right, both, 256)?;
    let relu = graph.node("relu", &[both, flat])?;
    let active = graph.output(relu, "active", 512)?;
    graph.in_place(both, active)?;
    graph.scratch(relu, 256)?;
    graph.keep(active)?;
    let graph = graph.finish();
    let lifetimes = graph.lifetimes(&graph.given_order())?;
    let has_parts = |problem: &Problem| (0..problem.len()).any(|buffer| problem.part_of(buffer).is_some());
    assert!(has_parts(lifetimes.problem()), "something is in place");
    let problem = lifetimes.divisible(&graph);
    assert_eq!(problem.buffers(), lifetimes.problem().buffers());
    assert!(!has_parts(&problem));
    let accesses = |value| lifetimes.buffer(value).map(|buffer| problem.accesses(buffer));
    // The reshape only makes a view; relu is written over what it reads.
    assert_eq!([left, right, both, active].map(accesses), [Some(3), Some(2), Some(3), Some(3)]);
    let scratch = lifetimes.scratch(relu).map(|buffer| problem.accesses(buffer));
    assert_eq!(scratch, Some(1));
    Ok(())
}
