//! Untrusted files: nothing panics, memory stays bounded, and written problems are read back.

use crate::buffer;
use orlop_plan::csv::MAX_LINE;
use orlop_plan::{Buffer, CsvError, Planner, Problem, ProblemBuilder, ProblemError, SearchBudget, verify};
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
