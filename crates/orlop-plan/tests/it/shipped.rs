//! The problems in `testdata/plan`: that they are what their README says, and how good plans for them are.

use flate2::read::GzDecoder;
use orlop_plan::{OrderKey, Plan, Problem, SearchBudget, Skyline, Verdict, greedy_by_size, verify};
use std::fs::File;
use std::path::Path;

fn read(name: &str) -> Problem {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/plan");
    let file = File::open(folder.join(format!("{name}.csv.gz"))).expect("it is shipped");
    Problem::read_csv(GzDecoder::new(file)).expect("shipped problems are well-formed")
}

fn verified(problem: &Problem, plan: Plan) -> Plan {
    verify(problem, &plan).expect("plans are right");
    plan
}

/// Name, buffers, greatest load, and how many times that skyline and greedy by size need at most.
const PROBLEMS: [(&str, usize, u64, f64, f64); 9] = [
    ("idealloc/G_1", 816, 3_030_937_746, 1.0, 1.002),
    ("idealloc/resnet50", 1042, 1_515_472_556, 1.0, 1.007),
    ("idealloc/pangu_2.6B", 18692, 5_530_099_775, 1.0076, 1.0076),
    ("minimalloc/A.1048576", 154, 1_048_576, 1.123, 1.32),
    ("minimalloc/B.1048576", 170, 1_048_576, 1.157, 1.37),
    ("minimalloc/C.1048576", 203, 1_039_360, 1.263, 1.37),
    ("minimalloc/D.1048576", 213, 986_112, 1.124, 1.36),
    ("minimalloc/E.1048576", 215, 1_048_576, 1.223, 1.45),
    ("minimalloc/F.1048576", 296, 1_048_576, 1.203, 1.37),
];

#[test]
fn they_are_what_their_readme_says() {
    for (name, buffers, load, ..) in PROBLEMS {
        let problem = read(name);
        assert_eq!((problem.len(), problem.lower_bound()), (buffers, load), "{name}");
        assert_eq!(problem.load_profile().peak().unwrap().bytes, load, "{name}");
        assert!(!problem.has_names(), "ids count the buffers");
    }
}

#[test]
fn plans_are_as_good_as_they_were() {
    for (name, buffers, _, skyline, greedy) in PROBLEMS {
        let problem = read(name);
        let plan = verified(&problem, Skyline::new().plan(&problem));
        assert!(plan.ratio() <= skyline, "{name}: {}", plan.verdict());
        assert_eq!(plan.verdict() == Verdict::Optimal, skyline <= 1.0, "{name}");
        if buffers > 10_000 {
            // The square of that takes too long without optimisation.
            continue;
        }
        let plan = verified(&problem, greedy_by_size(&problem));
        assert!(plan.ratio() <= greedy, "{name}, greedy: {}", plan.verdict());
    }
}

#[test]
fn one_order_is_enough_for_two_of_the_large_ones() {
    for (name, order) in [
        ("idealloc/G_1", [OrderKey::Area, OrderKey::Size, OrderKey::Load]),
        ("idealloc/resnet50", [OrderKey::Load, OrderKey::Width, OrderKey::Area]),
    ] {
        let problem = read(name);
        let plan = Skyline::new().orders([order]).plan(&problem);
        assert_eq!(verified(&problem, plan).verdict(), Verdict::Optimal, "{name}");
    }
}

#[test]
fn more_iterations_help_with_the_hard_ones() {
    let skyline = Skyline::new().budget(SearchBudget::iterations(300));
    let gained = PROBLEMS.iter().filter(|(name, ..)| name.starts_with("minimalloc")).filter(|(name, ..)| {
        let problem = read(name);
        let plan = verified(&problem, skyline.plan(&problem));
        plan.ratio() + 0.01 < Skyline::new().plan(&problem).ratio()
    });
    assert!(gained.count() >= 5);
}
