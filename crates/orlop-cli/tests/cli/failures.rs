//! The messages of all commands for files that are no recordings.

use super::{Folder, complaint, json, orlop, shipped, stdout, testdata};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Placeholders in the arguments below for an invalid input and for the output.
const INPUT: &str = "INPUT";
const OUTPUT: &str = "OUTPUT";

/// A placeholder for a valid run.
const GOOD: &str = "GOOD";

/// All commands that read files, and whether they read only plain traces.
const COMMANDS: [(&[&str], bool); 15] = [
    (&["snapshot", "info", INPUT], false),
    (&["snapshot", "info", "--json", INPUT], false),
    (&["what-if", INPUT], false),
    (&["what-if", "--quick", "--json", INPUT], false),
    (&["report", INPUT, "-o", OUTPUT], false),
    (&["plan", INPUT, "-o", OUTPUT], false),
    (&["convert", INPUT, OUTPUT, "--to", "csv"], false),
    (&["diff", INPUT, GOOD], false),
    (&["diff", GOOD, INPUT], false),
    (&["gate", INPUT, "--write-baseline", OUTPUT], false),
    (&["gate", INPUT, "--baseline", GOOD], false),
    (&["gate", GOOD, "--baseline", INPUT], false),
    (&["replay", "--policy", "torch", INPUT], false),
    (&["replay", "--repeat", "1", INPUT], true),
    (&["trace", "info", INPUT], true),
];

fn snapshot() -> String {
    testdata().join("torch-snapshots/gpt-medium_256_inference.pickle.gz").display().to_string()
}

/// Writes the first half of a gzip file.
fn cut(whole: &[u8], folder: &Folder, name: &str) {
    fs::write(folder.path(name), &whole[..whole.len() / 2]).expect("room");
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes).expect("room");
    packed.finish().expect("room")
}

#[test]
fn other_files_give_a_message_of_one_line() {
    let folder =
        Folder::with(&[("empty", ""), ("noise", "hello\nworld\n"), ("half.json", "{\"segments\": [")]);
    fs::create_dir(folder.path("directory")).expect("room");
    fs::write(folder.path("nothing.gz"), packed(b"")).expect("room");
    cut(&fs::read(snapshot()).expect("it is shipped"), &folder, "cut.pickle.gz");
    cut(&fs::read(shipped("vit_b16_infer_b4")).expect("it is shipped"), &folder, "cut.csv.gz");
    let ours = folder.path("ours.orlop");
    stdout(&orlop(&["convert", &snapshot(), &ours]));
    // No block of it is complete.
    let ours = packed(&fs::read(ours).expect("it was written"));
    fs::write(folder.path("cut.orlop.gz"), &ours[..9000]).expect("room");
    let output = folder.path("output");
    // The file, its message, and the message of commands that read plain traces.
    for (file, words, by_lines) in [
        ("missing", "cannot be opened", "cannot be opened"),
        ("directory", "no recording is in it", "no *.csv in this directory"),
        ("empty", "the file is empty", "this trace has no operations"),
        ("nothing.gz", "the file is empty", "this trace has no operations"),
        ("noise", "neither a memory snapshot", "orlop snapshot info"),
        ("half.json", "EOF", "orlop snapshot info"),
        ("cut.pickle.gz", "cannot be read", "orlop snapshot info"),
        ("cut.csv.gz", "cannot be read", "cannot be read"),
        ("cut.orlop.gz", "the file is cut off", "orlop snapshot info"),
    ] {
        let input = folder.path(file);
        for (command, lines) in COMMANDS {
            let arguments = command.iter().map(|&word| match word {
                INPUT => input.clone(),
                OUTPUT => output.clone(),
                GOOD => snapshot(),
                word => word.to_owned(),
            });
            let arguments: Vec<String> = arguments.collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let told = complaint(&orlop(&arguments), 1);
            let words = if lines { by_lines } else { words };
            assert!(told.starts_with(&format!("orlop: {input}: ")), "{command:?}: {told}");
            assert!(told.contains(words), "{command:?}: {words:?} in {told}");
            assert_eq!(told.lines().count(), 1, "{command:?}: {told}");
            assert!(!fs::exists(&output).expect("a folder"), "{command:?} {file}: nothing is written");
        }
    }
}

#[test]
fn a_dash_is_the_standard_input_and_no_output() {
    let folder = Folder::with(&[]);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(arguments).current_dir(folder.all()).stdin(Stdio::null()).output().expect("it starts")
    };
    let good = snapshot();
    for (command, _) in COMMANDS {
        let dash = command.iter().map(|&word| match word {
            INPUT => "-",
            OUTPUT => "output",
            GOOD => &good,
            word => word,
        });
        let told = complaint(&run(&dash.collect::<Vec<_>>()), 1);
        assert!(told.starts_with("orlop: -: ") && told.lines().count() == 1, "{command:?}: {told}");
        assert!(
            told.contains("the file is empty") || told.contains("this trace has no operations"),
            "{command:?}: {told}"
        );
    }
    for command in [
        &["report", &good, "-o", "-"][..],
        &["gate", &good, "--write-baseline", "-"],
        &["convert", &good, "-", "--to", "csv"],
    ] {
        let told = complaint(&run(command), 1);
        assert_eq!(
            told,
            "orlop: -: write /dev/stdout for the standard output, or ./- for a file of this name\n"
        );
    }
    assert_eq!(fs::read_dir(folder.all()).expect("a folder").count(), 0, "nothing is written");
}

#[test]
fn a_failed_write_names_the_file() {
    let folder = Folder::with(&[]);
    fs::create_dir(folder.path("directory")).expect("room");
    let good = snapshot();
    for target in [folder.path("directory"), folder.path("no/such/file")] {
        for command in [
            &["report", &good, "-o", &target][..],
            &["gate", &good, "--write-baseline", &target],
            &["convert", &good, &target, "--to", "csv"],
        ] {
            let told = complaint(&orlop(command), 1);
            assert!(told.starts_with(&format!("orlop: {target}: cannot be written: ")), "{told}");
            assert_eq!(told.lines().count(), 1, "{told}");
        }
    }
}

/// Each of several runs is a process, and a pipe can be read only once.
#[cfg(unix)]
#[test]
fn a_trace_from_a_pipe_is_replayed_once_or_not_at_all() {
    let replay = |allocators: &str| {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(b"a,0,64\nf,0\n").expect("the pipe holds more");
        drop(writer);
        let arguments = ["replay", "--repeat", "1", "--allocator", allocators, "/dev/stdin"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(arguments).stdin(reader).output().expect("it starts")
    };
    assert!(stdout(&replay("bfc")).contains("stdin"));
    let told = complaint(&replay("bfc,pool"), 1);
    assert!(told.contains("/dev/stdin: this can be read only once") && told.lines().count() == 1, "{told}");
}

/// The message alone, from a file or through a pipe.
#[test]
fn messages_of_failed_requests_are_explained() {
    let log = "step 17\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 35.60 GiB. GPU 0 has a \
               total capacity of 79.33 GiB of which 26.16 GiB is free. Process 1 has 53.16 GiB memory in \
               use. \
               Of the allocated memory 11.97 GiB is allocated by PyTorch, and 40.69 GiB is reserved by \
               PyTorch \
               but unallocated.\n";
    let folder = Folder::with(&[("run.log", log), ("quiet.log", "all is well\n")]);
    let wrapped = stdout(&orlop(&["why-oom", &folder.path("run.log")]));
    assert!(wrapped.lines().all(|line| line.chars().count() <= 80), "{wrapped}");
    let text = wrapped.replace("\n  ", " ");
    assert_eq!(text.lines().count(), 3);
    assert!(
        text.contains("\n66.8 GiB were free, but not in one piece: set PYTORCH_CUDA_ALLOC_CONF="),
        "{text}"
    );
    let answers = json(&orlop(&["why-oom", "--json", &folder.path("run.log")]));
    assert_eq!((&answers[0]["device"], &answers[0]["framework"]), (&"GPU 0".into(), &"torch".into()));
    let mut piped = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["why-oom", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    piped.stdin.take().expect("a pipe").write_all(log.as_bytes()).expect("it reads");
    assert_eq!(stdout(&piped.wait_with_output().expect("it ends")), wrapped);
    let told = complaint(&orlop(&["why-oom", &folder.path("quiet.log")]), 1);
    assert!(told.contains("no message about memory that is known"));
    assert!(complaint(&orlop(&["info", &folder.path("run.log")]), 1).contains("orlop why-oom"));
}
