//! `orlop completions`: completions of shells, and the manual page, both from the definition of the command
//! line.

use crate::arguments::Arguments;
use crate::output::{self, Failures};
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell, or man for the manual page
    #[arg(value_name = "SHELL")]
    shell: CompletionTarget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompletionTarget {
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
    /// The manual page, in the format of troff
    Man,
}

impl CompletionTarget {
    fn shell(self) -> Option<Shell> {
        Some(match self {
            Self::Bash => Shell::Bash,
            Self::Elvish => Shell::Elvish,
            Self::Fish => Shell::Fish,
            Self::PowerShell => Shell::PowerShell,
            Self::Zsh => Shell::Zsh,
            Self::Man => return None,
        })
    }
}

/// Runs `orlop completions`.
pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), Failures> {
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    match arguments.shell.shell() {
        Some(shell) => clap_complete::generate(shell, &mut command, name, &mut text),
        None => manual(command, &mut text).map_err(|error| format!("cannot write the page: {error}"))?,
    }
    output::print(&String::from_utf8_lossy(&text))
}

/// Writes the page of the program, followed by those of its commands.
fn manual(command: clap::Command, text: &mut Vec<u8>) -> std::io::Result<()> {
    let mut pages = vec![command];
    while let Some(mut page) = pages.pop() {
        page.build();
        let name = page.get_bin_name().unwrap_or(page.get_name()).to_owned();
        let visible = page.get_subcommands().filter(|sub| sub.get_name() != "help");
        let commands: Vec<clap::Command> =
            visible.map(|sub| sub.clone().bin_name(format!("{name} {}", sub.get_name()))).collect();
        pages.extend(commands.into_iter().rev());
        let title = name.replace(' ', "-");
        Man::new(page.display_name(title)).render(text)?;
    }
    Ok(())
}
