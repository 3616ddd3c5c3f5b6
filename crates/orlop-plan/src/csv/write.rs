//! Writing a problem, with or without the offsets of a plan.

use crate::buffer::alignment_bytes;
use crate::{Plan, Problem};
use orlop_core::Alignment;
use std::fmt;
use std::io::{self, Write};

/// A name, quoted if necessary.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let special = |character: char| matches!(character, ',' | '"') || character.is_control();
        if !self.0.contains(special) && self.0.trim() == self.0 {
            return f.write_str(self.0);
        }
        f.write_str("\"")?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\"\"")?,
                // A buffer is one line.
                _ if character.is_control() => f.write_str(" ")?,
                _ => write!(f, "{character}")?,
            }
        }
        f.write_str("\"")
    }
}

impl Problem {
    /// Writes the problem as CSV that [`read_csv`](Self::read_csv) and minimalloc read:
    /// `id,lower,upper,size`, `alignment` if any buffer is aligned, `gaps` if any has some, `offset` if any
    /// is fixed, and `hint`, `accesses`, `spaces`, `part_of` and `exclude` if any has them. Without names,
    /// the ids are the indices. Control characters in names become spaces.
    ///
    /// # Errors
    ///
    /// Those of `writer`; [`InvalidInput`](io::ErrorKind::InvalidInput) if the problem has reserved ranges or
    /// blocks of limited size, which the format does not have.
    pub fn write_csv(&self, writer: impl Write) -> io::Result<()> {
        write(self, None, writer)
    }
}

impl Plan {
    /// Writes the problem as [`Problem::write_csv`] does, with the column `offset`: the solution format of
    /// minimalloc. Parts have none: they are where their whole has them.
    ///
    /// # Errors
    ///
    /// Those of [`Problem::write_csv`]. If the plan is of another problem, buffers without an offset are
    /// written with 0.
    pub fn write_csv(&self, problem: &Problem, writer: impl Write) -> io::Result<()> {
        write(problem, Some(self), writer)
    }
}

fn write(problem: &Problem, plan: Option<&Plan>, writer: impl Write) -> io::Result<()> {
    let constraints = &problem.constraints;
    if !constraints.reserved.is_empty() || problem.block_limit().is_some() {
        let text = "reserved ranges and blocks cannot be written as CSV";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut writer = io::BufWriter::new(writer);
    let aligned = problem.buffers().iter().any(|buffer| buffer.alignment > Alignment::ONE);
    let alignment = if aligned { ",alignment" } else { "" };
    let gaps = if constraints.gaps.is_empty() { "" } else { ",gaps" };
    let has_offsets = plan.is_some() || !constraints.fixed.is_empty();
    let has_hints = plan.is_none() && !problem.hints.is_empty();
    let (offset, hint) = (if has_offsets { ",offset" } else { "" }, if has_hints { ",hint" } else { "" });
    let has_accesses = plan.is_none() && problem.has_accesses();
    let has_spaces = plan.is_none() && problem.prefers_spaces();
    let accesses = if has_accesses { ",accesses" } else { "" };
    let spaces = if has_spaces { ",spaces" } else { "" };
    let part_of = if constraints.parts.is_empty() { "" } else { ",part_of" };
    let exclude = if constraints.exclusions.is_empty() { "" } else { ",exclude" };
    let columns = [alignment, gaps, offset, hint, accesses, spaces, part_of, exclude].concat();
    writeln!(writer, "id,lower,upper,size{columns}")?;
    for (index, buffer) in problem.buffers().iter().enumerate() {
        if problem.has_names() {
            write!(writer, "{}", Quoted(problem.name(index).unwrap_or_default()))?;
        } else {
            write!(writer, "{index}")?;
        }
        write!(writer, ",{},{},{}", buffer.start, buffer.end, buffer.size)?;
        if aligned {
            write!(writer, ",{}", alignment_bytes(buffer.alignment))?;
        }
        if !gaps.is_empty() {
            let gaps = problem.gaps(index).iter().map(|gap| format!("{}-{}", gap.start, gap.end));
            write!(writer, ",{}", gaps.collect::<Vec<_>>().join(" "))?;
        }
        let number = |offset: Option<u64>| offset.map_or_else(String::new, |offset| offset.to_string());
        if has_offsets {
            let is_part = problem.part_of(index).is_some();
            let planned = plan.filter(|_| !is_part).map(|plan| plan.offset(index).unwrap_or(0));
            write!(writer, ",{}", number(planned.or_else(|| problem.fixed_offset(index))))?;
        }
        if has_hints {
            write!(writer, ",{}", number(problem.hint(index)))?;
        }
        if has_accesses {
            write!(writer, ",{}", number(problem.accesses_if_set(index)))?;
        }
        if has_spaces {
            write!(writer, ",{}", Quoted(&problem.spaces(index).join(" ")))?;
        }
        if !part_of.is_empty() {
            let place = problem.part_of(index).map(|(whole, byte)| format!("{whole}@{byte}"));
            write!(writer, ",{}", place.unwrap_or_default())?;
        }
        if !exclude.is_empty() {
            let others = constraints.exclusions.range((index, 0)..=(index, usize::MAX));
            let others: Vec<String> = others.map(|(_, other)| other.to_string()).collect();
            write!(writer, ",{}", others.join(" "))?;
        }
        writeln!(writer)?;
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, ProblemBuilder};

    fn text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn with_and_without_optional_columns() {
        let one = Buffer::unaligned(2..5, 7);
        let plain = Problem::new([one]).unwrap();
        assert_eq!(text(|out| plain.write_csv(out)), "id,lower,upper,size\n0,2,5,7\n");
        let mut builder = ProblemBuilder::new();
        builder.push_named(" a,\n\"b\" ", one.aligned(Alignment::PLANNED)).unwrap();
        builder.push(one).unwrap();
        let problem = builder.finish();
        let mut placed = ProblemBuilder::new();
        let [first, second] = [placed.push(one).unwrap(), placed.push(one).unwrap()];
        placed.fix(first, 9).unwrap();
        placed.hint(second, 3).unwrap();
        placed.gap(first, 3..4).unwrap();
        let expected = "id,lower,upper,size,gaps,offset,hint\n0,2,5,7,3-4,9,\n1,2,5,7,,,3\n";
        let placed = placed.finish();
        assert_eq!(text(|out| placed.write_csv(out)), expected);
        assert_eq!(Problem::read_csv(expected.as_bytes()).unwrap(), placed);
        let mut divided = ProblemBuilder::new();
        divided.push(one).unwrap();
        divided.reserve(3..4).unwrap();
        let divided = divided.finish();
        let plan = Plan::new(&divided, vec![8]).unwrap();
        let limited = plain.clone().limit_blocks(8).unwrap().write_csv(Vec::new());
        for result in [divided.write_csv(Vec::new()), plan.write_csv(&divided, Vec::new()), limited] {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let plan = Plan::new(&problem, vec![256, 0]).unwrap();
        let expected = "id,lower,upper,size,alignment,offset\n\" a, \"\"b\"\" \",2,5,7,256,256\n,2,5,7,1,0\n";
        assert_eq!(text(|out| plan.write_csv(&problem, out)), expected);
    }
}
