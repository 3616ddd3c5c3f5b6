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
fn kernels_are_chosen_without_times_unless_the_program_says_which() {
    let script = "
environment = {'TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS': 'TRITON'}
hooks.choose_without_times(environment)
print(*environment.values())
";
    if let Some(printed) = run(script) {
        assert_eq!(printed, "TRITON ATEN");
    }
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
hooks.skip_checkpoints(types.SimpleNamespace())
print(written)
";
    if let Some(printed) = run(script) {
        assert_eq!(printed, "[7]");
    }
}

#[test]
fn checkpoints_are_not_written_through_file_objects() {
    let script = "
import io, os, tempfile
torch = types.SimpleNamespace(save=lambda value, f: f.write(b'noise'))
hooks.skip_checkpoints(torch)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'model.pt')
    with open(path, 'wb') as file:
        file.write(b'weights')
    for mode in ('r+b', 'ab'):
        for buffering in (0, -1):
            with open(path, mode, buffering) as file:
                torch.save(1, file)
                torch.save(1, f=file)
    with open(path, 'rb') as file:
        print(file.read().decode())
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        torch.save(1, file)
        print(file.tell())
    try:
        torch.save(1, open(path, 'rb'))
    except io.UnsupportedOperation:
        print('not writable')
buffer = io.BytesIO()
torch.save(1, buffer)
read, write = os.pipe()
with open(write, 'wb') as pipe:
    torch.save(1, pipe)
print(buffer.getvalue().decode(), os.read(read, 9).decode())
";
    if let Some(printed) = run(script) {
        assert_eq!(printed.lines().collect::<Vec<_>>(), ["weights", "0", "not writable", "noise noise"]);
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

#[test]
fn cudnn_has_the_version_that_pytorch_requires() {
    let script = "
versions = []
torch_2_0 = ['nvidia-cudnn-cu12 (==8.9.2.26)']
for each in (['sympy', 'nvidia-cudnn-cu13==9.20.0.48; sys_platform == \\'linux\\''], torch_2_0, None):
    hooks.match_cudnn(each, versions.append)
print(versions)
";
    if let Some(printed) = run(script) {
        assert_eq!(printed, "[92000, 8902]");
    }
}

#[test]
fn the_innermost_line_of_the_program_is_named() {
    let script = "
import os, sys, tempfile
import orlop_dry_run_lines as lines
def run(folder, name, code):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    scope = {'lines': lines, 'sys': sys}
    exec(compile(code, path, 'exec'), scope)
    return scope
with tempfile.TemporaryDirectory() as folder:
    library = run(folder, 'site-packages/torch/nn.py', 'def call(): return lines.line_of(sys._getframe())')
    program = run(folder, 'train.py', '\\n\\ndef forward(call):\\n    return call()')
    print(program['forward'](library['call']))
    # Of this folder's code alone, the line is that of the backward pass for which another thread waits.
    here = os.path.dirname(lines.__file__)
    own = run(here, 'values.py', 'def call(): return lines.line_of(sys._getframe())')
    print(program['forward'](own['call']))
    engine = run(folder, 'site-packages/torch/autograd/graph.py', '''
import threading
named = []
def _engine_run_backward():
    engine = threading.Thread(target=lambda: named.append(lines.line_of(None)))
    engine.start(), engine.join()
    return named[0]
''')
    print(program['forward'](engine['_engine_run_backward']))
print(lines.line_of(None) == '')
import ctypes
buffer = ctypes.create_string_buffer(8)
lines.write_line(ctypes.addressof(buffer), 8)
print(len(buffer.value))
";
    if let Some(printed) = run(script) {
        assert_eq!(
            printed.lines().collect::<Vec<_>>(),
            ["train.py:4 forward", "train.py:4 forward", "train.py:4 forward", "True", "7"]
        );
    }
}

#[test]
fn objects_are_broadcast_through_the_store() {
    let script = "
class Store(dict):
    set, get = dict.__setitem__, dict.__getitem__
store = Store()
def rank_of(rank):
    c10d = types.SimpleNamespace(
        GroupMember=types.SimpleNamespace(WORLD=[0, 1, 2], NON_GROUP_MEMBER=-100),
        get_process_group_ranks=lambda group: group, get_rank=lambda: rank, _get_default_store=lambda: store,
        broadcast_object_list=lambda objects, src, group: print('PyTorch', objects, src, group))
    hooks.broadcast_through_store(c10d)
    return c10d.broadcast_object_list
zero, one, two = map(rank_of, range(3))
first, second = [7, 'seven'], [None, None]
zero(first)
one(second, src=0)
print(first, second)
one(['one'], group_src=0, group=[1, 2], device='cuda')
last = [None]
two(last, group_src=0, group=[1, 2])
# A rank of no group keeps what it has.
zero(first, group=[1, 2])
print(last, first)
# What `new_group` returns to a rank outside of the group.
zero(first, group_src=0, group=-100)
hooks.broadcast_through_store(types.SimpleNamespace())
";
    if let Some(printed) = run(script) {
        assert_eq!(
            printed.lines().collect::<Vec<_>>(),
            ["[7, 'seven'] [7, 'seven']", "['one'] [7, 'seven']", "PyTorch [7, 'seven'] 0 -100"]
        );
    }
}

#[test]
fn what_is_printed_raises_no_doubts() {
    let script = "
silence = [0]
def swap(value):
    silence[0], before = value, silence[0]
    return before
def text_of(tensor, tensor_contents=None):
    if tensor == 'invalid':
        raise ValueError
    return tensor, tensor_contents, silence[0]
torch = types.SimpleNamespace(_tensor_str=types.SimpleNamespace(_str=text_of))
hooks.print_without_doubts(torch, swap)
print(*torch._tensor_str._str('tensor', tensor_contents='contents'), silence[0])
try:
    torch._tensor_str._str('invalid')
except ValueError:
    print(silence[0])
hooks.print_without_doubts(types.SimpleNamespace(), swap)
";
    if let Some(printed) = run(script) {
        assert_eq!(printed.lines().collect::<Vec<_>>(), ["tensor contents 1 0", "0"]);
    }
}
