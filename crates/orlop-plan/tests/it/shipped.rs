//! The problems in `testdata/plan`: the figures of their README, and the quality of plans for them.

use flate2::read::GzDecoder;
use orlop_plan::{Plan, Planner, Problem, SearchBudget, Verdict, greedy_by_size, verify};
use std::fs::File;
use std::path::Path;

pub(crate) fn read(name: &str) -> Problem {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/plan");
    let file = File::open(folder.join(format!("{name}.csv.gz"))).expect("a file in testdata");
    Problem::read_csv(GzDecoder::new(file)).expect("a valid problem")
}

fn verified(problem: &Problem, plan: Plan) -> Plan {
    verify(problem, &plan).expect("plans are valid");
    plan
}

/// Name, number of buffers, maximum load, and the maximum ratios of the skyline and the greedy planner.
pub(crate) const PROBLEMS: [(&str, usize, u64, f64, f64); 9] = [
    ("idealloc/G_1", 816, 3_030_937_746, 1.0, 1.002),
    ("idealloc/resnet50", 1042, 1_515_472_556, 1.0, 1.007),
    ("idealloc/pangu_2.6B", 18692, 5_530_099_775, 1.0, 1.0076),
    ("minimalloc/A.1048576", 154, 1_048_576, 1.123, 1.32),
    ("minimalloc/B.1048576", 170, 1_048_576, 1.157, 1.37),
    ("minimalloc/C.1048576", 203, 1_039_360, 1.089, 1.37),
    ("minimalloc/D.1048576", 213, 986_112, 1.124, 1.36),
    ("minimalloc/E.1048576", 215, 1_048_576, 1.223, 1.45),
    ("minimalloc/F.1048576", 296, 1_048_576, 1.121, 1.37),
];

#[test]
fn the_problems_have_the_figures_of_their_readme() {
    for (name, buffers, load, ..) in PROBLEMS {
        let problem = read(name);
        assert_eq!((problem.len(), problem.lower_bound()), (buffers, load), "{name}");
        assert_eq!(problem.load_profile().peak().unwrap().bytes, load, "{name}");
        assert!(!problem.has_names(), "ids are indices");
    }
}

#[test]
fn plans_are_no_worse_than_before() {
    for (name, buffers, _, skyline, greedy) in PROBLEMS {
        let problem = read(name);
        let plan = verified(&problem, Planner::new().plan(&problem));
        assert!(plan.ratio() <= skyline, "{name}: {}", plan.verdict());
        assert_eq!(plan.verdict() == Verdict::Optimal, skyline <= 1.0, "{name}");
        if buffers > 10_000 {
            // Quadratic time is too long without optimisation.
            continue;
        }
        let plan = verified(&problem, greedy_by_size(&problem));
        assert!(plan.ratio() <= greedy, "{name}, greedy: {}", plan.verdict());
    }
}

#[test]
fn more_iterations_improve_plans_of_hard_problems() {
    // The maximum ratios after 300 and 1000 iterations.
    let ratios = [
        ("minimalloc/A.1048576", 1.0, 1.0),
        ("minimalloc/B.1048576", 1.05, 1.006),
        ("minimalloc/C.1048576", 1.0, 1.0),
        ("minimalloc/D.1048576", 1.081, 1.07),
        ("minimalloc/E.1048576", 1.057, 1.057),
        ("minimalloc/F.1048576", 1.011, 1.0),
    ];
    for (name, few, more) in ratios {
        let problem = read(name);
        for (iterations, ratio) in [(300, few), (1000, more)] {
            let plan = Planner::new().budget(SearchBudget::iterations(iterations)).plan(&problem);
            let plan = verified(&problem, plan);
            assert!(plan.ratio() <= ratio, "{name}, {iterations} iterations: {}", plan.verdict());
        }
    }
}
