//! The hooks of Python libraries, on modules of their form: no library is needed.

use std::process::Command;

const HOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/site");

/// Runs a script with the hooks as `hooks`; returns what it prints, or `None` without a Python.
fn run(script: &str) -> Option<String> {
    let script = format!("import orlop_dry_run_hooks as hooks, types\n{script}");
    let mut command = Command::new("python3");
    command
        .args(["-B", "-c", &script])
        .env("PYTHONPATH", HOOKS)
        .env_remove("ORLOP_DRY_RUN_ALLOW_CHECKPOINTS");
    let Ok(done) = command.output() else {
        println!("skipped: no python3");
        return None;
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

#[test]
fn checkpoints_are_written_to_buffers_only() {
    let script = "
written = []
torch = types.SimpleNamespace(save=lambda value, f: written.append(f))
hooks.skip_checkpoints(torch)
torch.save(1, 'model.pt')
torch.save(1, f='model.pt')
torch.save(1, 7)
print(written)
";
    if let Some(printed) = run(script) {
        assert_eq!(printed, "[7]");
    }
}

#[test]
fn a_generation_ends_at_its_limit() {
    let script = "
class Criteria:
    max_length = 5
    def __call__(self, ids):
        return False
class Mixin:
    def _has_unfinished_sequences(self, is_finished, synced):
        return not is_finished
hooks.generate_to_the_limit(types.SimpleNamespace(GenerationMixin=Mixin, MaxLengthCriteria=Criteria))
def steps(length, finished):
    check, mixin, count = Criteria(), Mixin(), 0
    is_finished = False
    while mixin._has_unfinished_sequences(is_finished, False):
        length, count = length + 1, count + 1
        check(types.SimpleNamespace(shape=(2, length)))
        is_finished = finished
    return count
print(steps(2, False), steps(1, True), steps(4, True))
";
    if let Some(printed) = run(script) {
        assert_eq!(printed, "3 4 1");
    }
}
