//! Untrusted files: nothing panics, memory stays bounded, and written problems are read back.

use crate::buffer;
use orlop_plan::csv::MAX_LINE;
use orlop_plan::{
    Buffer, CsvError, Plan, Planner, Problem, ProblemBuilder, ProblemError, SearchBudget, verify,
};
use proptest::prelude::*;
use std::io::Read;

#[test]
fn endless_lines_are_refused() {
    let header = "lower,upper,size\n";
    for filler in *b"7,\"\n " {
        let endless = header.as_bytes().chain(std::io::repeat(filler).take(1 << 20));
        match (filler, Problem::read_csv(endless)) {
            (b'\n', Ok(problem)) => assert!(problem.is_empty()),
            (_, Err(CsvError::LineTooLong { line: 2, limit: MAX_LINE })) => {}
            (_, other) => panic!("{filler}: {other:?}"),
        }
    }
}

#[test]
fn an_error_of_the_reader_has_the_line() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
    }
    let error = Problem::read_csv("lower,upper,size\n0,1,2\n".as_bytes().chain(Fails)).unwrap_err();
    assert!(matches!(error, CsvError::Read { line: 3, .. }), "{error}");
}

#[test]
fn sizes_whose_sum_overflows_are_refused() {
    let text = format!("lower,upper,size\n0,1,{0}\n1,2,{0}\n2,3,{0}\n", u64::MAX / 2);
    let error = Problem::read_csv(text.as_bytes()).unwrap_err();
    let expected = ProblemError::TotalOverflow { index: 2, size: u64::MAX / 2 };
    assert!(matches!(error, CsvError::Problem { line: 4, error } if error == expected), "{error}");
}

/// Every problem that can be read can be planned.
fn plan(text: &[u8]) {
    if let Ok(problem) = Problem::read_csv(text) {
        verify(&problem, &Planner::new().budget(SearchBudget::iterations(10)).plan(&problem))
            .expect("plans are valid");
    }
}

/// Lines that are buffers, or nearly.
const ROWS: &str =
    "([a\" ]?,?[0-9]{1,3},[0-9]{1,20},[0-9]{0,20}(,(1|4|256|9223372036854775808))?,?[\r]?\n){0,20}";

proptest! {
    #[test]
    fn arbitrary_bytes_are_a_problem_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        plan(&bytes);
        plan(&[b"id,lower,upper,size\n", &bytes[..]].concat());
    }

    #[test]
    fn almost_valid_text_is_a_problem_or_an_error(
        header in "(id,)?(lower|start|begin),(upper|end),size(,alignment)?(,gaps)?",
        rows in ROWS,
    ) {
        plan(format!("{header}\n{rows}").as_bytes());
    }

    #[test]
    fn problems_survive_the_format(
        buffers in proptest::collection::vec((buffer(1 << 40, 1 << 40, 20), "[a-z\", ß\u{a0}]{0,6}"), 0..40),
        named: bool,
    ) {
        let mut builder = ProblemBuilder::new();
        for (buffer, name) in &buffers {
            let added = if named { builder.push_named(name, *buffer) } else { builder.push(*buffer) };
            added.unwrap();
        }
        let problem = builder.finish();
        let mut text = Vec::new();
        problem.write_csv(&mut text).unwrap();
        prop_assert_eq!(&Problem::read_csv(&text[..]).unwrap(), &problem);
    }
}

/// Most of the space is of buffers that live for the whole time, which no region of time can move.
#[test]
fn a_search_that_can_move_nothing_ends() {
    let long = (0..3).map(|_| Buffer::new(0..1200, 300));
    let short = (0..1200).map(|at| Buffer::unaligned(at..at + 1, 1 + at % 2));
    let problem = Problem::new(long.chain(short)).unwrap();
    let plan = Planner::new().budget(SearchBudget::iterations(100)).plan(&problem);
    verify(&problem, &plan).unwrap();
    assert!(plan.height() > problem.lower_bound());
}

/// What is fixed needs no room above itself.
#[test]
fn solutions_of_more_than_half_of_the_address_space_are_read() {
    let problem = Problem::new([Buffer::unaligned(0..1, (1 << 63) + 1)]).unwrap();
    let mut text = Vec::new();
    Planner::new().plan(&problem).write_csv(&problem, &mut text).unwrap();
    let solution = Problem::read_csv(&text[..]).unwrap();
    assert_eq!(solution.fixed_offset(0), Some(0));
    verify(&solution, &Planner::new().plan(&solution)).unwrap();
    let aligned = format!("lower,upper,size,alignment,offset\n0,1,{},256,0\n", u64::MAX - 256);
    plan(aligned.as_bytes());
    let above = format!("lower,upper,size,offset\n0,1,{0},1\n0,1,{0},\n", 1_u64 << 62);
    plan(above.as_bytes());
    let none = format!("lower,upper,size,offset\n0,1,2,{}\n0,1,2,\n", u64::MAX - 3);
    let error = Problem::read_csv(none.as_bytes()).unwrap_err();
    assert!(matches!(error, CsvError::Problem { error: ProblemError::TotalOverflow { .. }, .. }), "{error}");
}

/// A square of their number would take hours.
#[test]
fn long_chains_of_nested_parts_are_planned() {
    let count = 100_000;
    let mut builder = ProblemBuilder::new();
    for number in 0..count {
        let size = 2 * count + 2 * number;
        builder.push(Buffer::unaligned(number..2 * count - number, size)).unwrap();
    }
    // Each is placed in the next one, from the inside and from the outside.
    let indices = 0..usize::try_from(count).unwrap() - 1;
    for part in
        indices.clone().step_by(2).chain(indices.skip(1).step_by(2).collect::<Vec<_>>().into_iter().rev())
    {
        builder.place_in(part, part + 1, 1).unwrap();
    }
    let problem = builder.finish();
    assert_eq!(problem.part_of(0), Some((99_999, 99_999)));
    let plan = Planner::new().plan(&problem);
    assert_eq!((plan.height(), plan.lower_bound()), (4 * count - 2, 4 * count - 2));
    verify(&problem, &plan).unwrap();
}

/// Parts whose lifetimes are inside of each other, beside each other in space, and many reserved ranges.
#[test]
fn many_parts_and_reserved_ranges_are_planned() {
    let mut builder = ProblemBuilder::new();
    let count = 20_000;
    let whole = builder.push(Buffer::unaligned(2 * count..2 * count + 1, 2 * count)).unwrap();
    for number in 0..count {
        let part = builder.push(Buffer::unaligned(number..4 * count - number, 1)).unwrap();
        builder.place_in(part, whole, 2 * number).unwrap();
    }
    for number in (0..count).rev() {
        builder.reserve(3 * number..3 * number + 1).unwrap();
        builder.reserve(3 * number..3 * number + 1).unwrap();
    }
    let other = builder.push(Buffer::unaligned(0..4 * count, 1)).unwrap();
    builder.fix(other, 1).unwrap();
    let problem = builder.finish();
    assert_eq!(problem.reserved().len(), usize::try_from(count).unwrap());
    let offsets = |whole: u64| (0..count).map(|number| whole + 2 * number).collect::<Vec<_>>();
    let at = 3 * count;
    let plan = Plan::new(&problem, [vec![at], offsets(at), vec![1]].concat()).unwrap();
    verify(&problem, &plan).unwrap();
}
