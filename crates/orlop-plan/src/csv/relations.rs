//! [`Relations`]: what a file says about two buffers, which may come later than one of them.

use super::read::{CsvHeader, CsvRow};
use crate::{CsvError, ProblemBuilder, ProblemColumn};

/// Parts, fixed offsets and exclusions, each with its line.
#[derive(Debug, Default)]
pub(super) struct Relations {
    /// The part, the whole, and the first byte there.
    parts: Vec<(u64, (usize, usize, u64))>,
    fixed: Vec<(u64, (usize, u64))>,
    exclusions: Vec<(u64, (usize, usize))>,
}

impl Relations {
    /// Notes what a line says about its buffer.
    pub(super) fn note(
        &mut self,
        index: usize,
        row: &CsvRow<'_>,
        header: &CsvHeader,
    ) -> Result<(), CsvError> {
        let text = row.text(header.part_of).unwrap_or_default();
        if !text.is_empty() {
            let place = text.split_once('@').and_then(|(whole, byte)| Some((digits(whole)?, digits(byte)?)));
            let place = place.and_then(|(whole, byte)| Some((index, usize::try_from(whole).ok()?, byte)));
            let place = place.ok_or_else(|| row.unexpected(ProblemColumn::PartOf, text))?;
            self.parts.push((row.line, place));
        }
        if let Some(offset) = row.optional(header.offset, ProblemColumn::Offset)? {
            self.fixed.push((row.line, (index, offset)));
        }
        let text = row.text(header.exclude).unwrap_or_default();
        for other in text.split_ascii_whitespace() {
            let other = digits(other).and_then(|other| usize::try_from(other).ok());
            let other = other.ok_or_else(|| row.unexpected(ProblemColumn::Exclude, text))?;
            self.exclusions.push((row.line, (index, other)));
        }
        Ok(())
    }

    /// Adds them to a problem that has all buffers. Parts come first, because what is fixed cannot become
    /// one.
    pub(super) fn add_to(self, builder: &mut ProblemBuilder) -> Result<(), CsvError> {
        let invalid = |line: u64| move |error| CsvError::Problem { line, error };
        for (line, (part, whole, byte)) in self.parts {
            builder.place_in(part, whole, byte).map_err(invalid(line))?;
        }
        let (lines, fixed): (Vec<u64>, Vec<_>) = self.fixed.into_iter().unzip();
        builder.fix_all(&fixed).map_err(|(number, error)| invalid(lines[number])(error))?;
        for (line, (index, other)) in self.exclusions {
            builder.exclude(index, other).map_err(invalid(line))?;
        }
        Ok(())
    }
}

/// Returns a number without a sign.
fn digits(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use crate::{CsvError, Plan, Planner, Problem, ProblemColumn, verify};

    fn read(text: &str) -> Result<Problem, CsvError> {
        Problem::read_csv(text.as_bytes())
    }

    #[test]
    fn parts_and_exclusions_are_read_and_written() {
        let text =
            "id,lower,upper,size,part_of,exclude\n0,0,2,8,2@0,\n1,1,2,4,2@8,\n2,2,4,12,,3\n3,8,9,5,,\n";
        let problem = read(text).unwrap();
        assert_eq!([0, 1, 2].map(|index| problem.part_of(index)), [Some((2, 0)), Some((2, 8)), None]);
        assert_eq!(problem.exclusions().collect::<Vec<_>>(), [(2, 3)]);
        let mut written = Vec::new();
        problem.write_csv(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), text);
        // A plan is a problem in which all that is no part is fixed.
        let plan = Planner::new().plan(&problem);
        verify(&problem, &plan).unwrap();
        let mut solution = Vec::new();
        plan.write_csv(&problem, &mut solution).unwrap();
        let fixed = read(&String::from_utf8(solution).unwrap()).unwrap();
        let offsets = [0, 1, 2, 3].map(|index| fixed.fixed_offset(index));
        assert_eq!(offsets, [None, None, plan.offset(2), plan.offset(3)]);
        assert_eq!(Planner::new().plan(&fixed), Plan::new(&fixed, plan.offsets().to_vec()).unwrap());
    }

    #[test]
    fn wrong_relations_have_their_line() {
        let error = |fields: &str| {
            read(&format!("lower,upper,size,part_of,exclude\n0,9,8,,\n0,9,4,{fields}\n")).unwrap_err()
        };
        for text in ["0", "0@", "@4", "a@0", "+0@4", "0@-4"] {
            let error = error(&format!("{text},"));
            let is_right =
                matches!(error, CsvError::Unexpected { line: 3, column: ProblemColumn::PartOf, .. });
            assert!(is_right, "{error}");
        }
        let refused = error(",1 x");
        let is_right =
            matches!(refused, CsvError::Unexpected { line: 3, column: ProblemColumn::Exclude, .. });
        assert!(is_right, "{refused}");
        for fields in ["0@5,", "7@0,", "1@0,", ",7", ",1", "0@0,0"] {
            let error = error(fields);
            assert!(matches!(error, CsvError::Problem { line: 3, .. }), "{fields}: {error}");
        }
    }
}
