//! The command that comes next in the verdict of `orlop plan`: a line that a shell executes as it is.

use crate::plan_arguments::PlanArguments;
use crate::plan_input::is_onnx;
use crate::table;
use orlop::lab::verdict::quoted;

/// Returns the last sentence of a verdict: the command that writes the plan with all that was given, or the
/// one that checks the plan that was written.
pub(crate) fn next(arguments: &PlanArguments) -> String {
    match &arguments.output {
        Some(output) if !arguments.writes_csv() => {
            let file = is_onnx(&arguments.file).then_some(&arguments.file);
            let paths = [output].into_iter().chain(file).map(|path| path.display().to_string());
            let words = ["plan", "--verify"].map(str::to_owned).into_iter().chain(paths);
            sentence(words, "checks the plan again.")
        }
        _ => sentence(writing(&arguments.words), "writes the offsets."),
    }
}

/// Returns the arguments without the program's name, with `-o plan.json` in place of another output.
fn writing(words: &[String]) -> Vec<String> {
    let mut rest = words.iter().skip(1).cloned();
    let (mut options, mut files) = (Vec::new(), Vec::new());
    while let Some(word) = rest.next() {
        match &*word {
            "--json" => {}
            "--" => files.extend([word].into_iter().chain(rest.by_ref())),
            "-o" | "--output" => drop(rest.next()),
            other if other.starts_with("-o") || other.starts_with("--output=") => {}
            _ => options.push(word),
        }
    }
    options.extend(["-o".to_owned(), "plan.json".to_owned()]);
    options.extend(files);
    options
}

/// Formats a command and what it does. Lines that are too long go on as a shell reads them.
fn sentence(words: impl IntoIterator<Item = String>, effect: &str) -> String {
    let mut text = "orlop".to_owned();
    let mut width = text.len();
    for word in words {
        let word = quoted(&word);
        let length = word.chars().count();
        // One column is for the space before the word, two are for what continues the line.
        if width + 1 + length + 2 > usize::from(table::WIDTH) {
            text += " \\\n ";
            width = 1;
        }
        text = text + " " + &word;
        width += 1 + length;
    }
    let is_long = width + 1 + effect.len() > usize::from(table::WIDTH);
    text + if is_long { "\n  " } else { " " } + effect
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> String {
        let words: Vec<_> = words.split('|').map(str::to_owned).collect();
        sentence(writing(&words), "writes.")
    }

    #[test]
    fn a_command_has_all_that_was_given_but_its_output() {
        let all = "orlop|plan|a b.onnx|--input|x=1x3|--bind=it's=8|--budget|1s|--space|sram=1MiB@2";
        assert_eq!(
            line(all),
            "orlop plan 'a b.onnx' --input x=1x3 '--bind=it'\\''s=8' --budget 1s --space \\\n  \
             sram=1MiB@2 -o plan.json writes."
        );
        for output in ["-o|b.csv", "-ob.csv", "--output|b.csv", "--output=b.csv", "--json"] {
            let words = format!("orlop|plan|{output}|a.csv");
            assert_eq!(line(&words), "orlop plan a.csv -o plan.json writes.");
        }
        let after = line("orlop|plan|--device|0|--|-o.csv");
        assert_eq!(after, "orlop plan --device 0 -o plan.json -- -o.csv writes.");
    }
}
