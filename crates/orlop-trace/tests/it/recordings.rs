//! Compressed recordings, archives and folders. The files were made by zstd 1.5, xz 5, zip 3 and Python.

use flate2::read::GzEncoder;
use orlop_trace::formats::OtherFile;
use orlop_trace::history::History;
use orlop_trace::{Recordings, TraceError};
use std::fs::{self, File};
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

fn packed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/packed").join(name)
}

fn plain() -> History {
    History::read(packed("../snapshot/small.json")).expect("a snapshot")
}

/// The innermost error.
fn cause(error: TraceError) -> TraceError {
    match error {
        TraceError::InFile { error, .. } => cause(*error),
        error => error,
    }
}

#[test]
fn compressed_recordings_are_read() {
    for name in ["small.json.zst", "small.json.xz", "frames.json.zst", "streams.json.xz", "one.zip"] {
        assert_eq!(History::read(packed(name)).unwrap(), plain(), "{name}");
        // From a reader that cannot seek.
        let bytes = fs::read(packed(name)).unwrap();
        assert_eq!(History::parse(&bytes[..]).unwrap(), plain(), "{name}");
    }
}

#[test]
fn damaged_files_are_errors() {
    for name in ["small.json.zst", "small.json.xz", "frames.json.zst", "one.zip"] {
        let bytes = fs::read(packed(name)).unwrap();
        for end in [7, bytes.len() / 2, bytes.len() - 1] {
            assert!(History::parse(&bytes[..end]).is_err(), "{name}: {end} bytes");
        }
        for at in (0..bytes.len()).step_by(3) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            // Some bytes of headers have no meaning; no other contents may result.
            if let Ok(history) = History::parse(&damaged[..]) {
                assert_eq!(history, plain(), "{name}: byte {at}");
            }
        }
    }
}

#[test]
fn bombs_are_refused() {
    for name in ["bomb.zst", "bomb.xz", "bomb.zip"] {
        assert!(fs::metadata(packed(name)).unwrap().len() < 100 << 10);
        let error = cause(History::read(packed(name)).unwrap_err());
        assert!(matches!(error, TraceError::Bomb { .. }), "{name}: {error}");
    }
}

#[test]
fn a_member_that_is_compressed_twice_has_one_limit() {
    let archive = |comment: u64| {
        let text = b"a,0,1\n# ".chain(std::io::repeat(b'7').take(comment));
        let mut packer = GzEncoder::new(text, flate2::Compression::best());
        let mut member = Vec::new();
        packer.read_to_end(&mut member).expect("reading does not fail");
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.start_file("trace.csv.gz", SimpleFileOptions::default()).expect("memory takes all");
        zip.write_all(&member).expect("memory takes all");
        let bytes = zip.finish().expect("memory takes all").into_inner();
        (bytes, member.len())
    };
    let (small, _) = archive(1 << 20);
    assert_eq!(History::parse(&small[..]).unwrap().devices.len(), 1);
    // 19 MiB of text are 19 KiB as gzip, and less than 1 KiB in the archive.
    let (twice, member) = archive(19 << 20);
    assert!(member > 19 << 9 && twice.len() < 1 << 10, "{member} {}", twice.len());
    let error = cause(History::parse(&twice[..]).unwrap_err());
    assert!(matches!(error, TraceError::Bomb { .. }), "{error}");
}

/// Each of 16 members stays below its own limit of 16 MiB; 32 MiB are allowed for an archive of 64 KiB.
#[test]
fn members_have_a_limit_together() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let text = [b"a,0,1\n# ".to_vec(), vec![b'7'; 4 << 20]].concat();
    for rank in 0..16 {
        zip.start_file(format!("rank{rank}.csv"), SimpleFileOptions::default()).expect("memory takes all");
        zip.write_all(&text).expect("memory takes all");
    }
    let bytes = zip.finish().expect("memory takes all").into_inner();
    assert!((60 << 10..72 << 10).contains(&bytes.len()), "{}", bytes.len());
    let ranks = Recordings::from_reader("-", Cursor::new(bytes)).unwrap();
    assert_eq!(ranks.len(), 16);
    let (good, bad): (Vec<_>, Vec<_>) = ranks.map(|rank| rank.history).partition(Result::is_ok);
    assert!((6..10).contains(&good.len()), "{}", good.len());
    for error in bad {
        let error = cause(error.unwrap_err());
        assert!(matches!(error, TraceError::Bomb { .. }), "{error}");
        assert!(error.to_string().contains("its members decompress to more than 3"), "{error}");
    }
}

#[test]
fn members_come_in_the_order_of_their_numbers() {
    for mut ranks in [
        Recordings::open(packed("ranks.zip")).unwrap(),
        Recordings::from_reader("-", File::open(packed("ranks.zip")).unwrap()).unwrap(),
    ] {
        let skipped: Vec<String> = ranks.skipped().iter().map(ToString::to_string).collect();
        assert!(skipped.len() == 1 && skipped[0].contains("config.json"), "{skipped:?}");
        assert_eq!(ranks.size_hint(), (2, Some(2)));
        let first = ranks.next().unwrap();
        assert!(first.path.ends_with("ranks/rank2.json.gz"), "{:?}", first.path);
        assert_eq!(first.history.unwrap(), plain());
        let second = ranks.next().unwrap();
        assert!(second.path.ends_with("ranks/rank10.pickle"));
        assert!(second.history.is_ok() && ranks.next().is_none());
    }
}

#[test]
fn one_of_several_recordings_must_be_named() {
    let path = packed("ranks.zip");
    let error = cause(History::read(&path).unwrap_err());
    let TraceError::SeveralRecordings { first, count: 2 } = error else { panic!("{error}") };
    assert_eq!(History::read(&first).unwrap(), plain());
    assert!(matches!(History::read(path.join("ranks/rank3")), Err(TraceError::Open { .. })));
    let bytes = fs::read(&path).unwrap();
    assert!(matches!(History::parse(&bytes[..]), Err(TraceError::SeveralRecordings { count: 2, .. })));
}

#[test]
fn folders_are_searched() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    let copies =
        [("rank10.zst", "small.json.zst"), ("sub/rank1.xz", "small.json.xz"), ("more.zip", "ranks.zip")];
    for (name, from) in copies {
        fs::copy(packed(from), folder.path().join(name)).unwrap();
    }
    for (name, text) in [
        ("pointer.pickle", "version https://git-lfs.github.com/spec/v1\noid sha256:1"),
        (".hidden", "a,0,1\n"),
        ("empty", ""),
        ("README.md", "# Recordings\n\nText\n"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let found = Recordings::open(folder.path()).unwrap();
    let mut skipped: Vec<String> =
        found.skipped().iter().map(|error| error.to_string().split(": ").skip(1).collect()).collect();
    skipped.sort();
    assert_eq!(skipped.len(), 4);
    assert!(skipped.iter().any(|reason| reason.contains("Git LFS")), "{skipped:?}");
    let found: Vec<_> = found.map(|recording| (recording.path, recording.history.unwrap())).collect();
    assert!(found[0].0.ends_with("rank10.zst") && found[1].0.ends_with("sub/rank1.xz"));
    assert!(found.len() == 2 && found.iter().all(|(_, history)| *history == plain()));
}

#[test]
fn what_is_no_recording_has_a_remedy() {
    let error = |name| cause(History::read(packed(name)).unwrap_err());
    assert!(matches!(error("bzip2.zip"), TraceError::NoRecordings { files: 1, first: Some(_) }));
    assert!(error("bzip2.zip").to_string().contains("method 12"), "{}", error("bzip2.zip"));
    assert!(error("encrypted.zip").to_string().contains("it is encrypted: unzip it"));
    let model = error("model.zip");
    assert!(matches!(model, TraceError::NotARecording { file: OtherFile::TorchModel }), "{model}");
    let none = error("none.zip").to_string();
    assert!(none.starts_with("no recording is in it, in files: 1; ") && none.contains("README.md"), "{none}");
    let twice = [&fs::read(packed("small.json.zst")).unwrap()[..]].concat();
    let mut packer = GzEncoder::new(&twice[..], flate2::Compression::fast());
    let mut bytes = Vec::new();
    packer.read_to_end(&mut bytes).unwrap();
    let twice = History::parse(&bytes[..]).unwrap_err();
    assert!(matches!(twice, TraceError::NotARecording { file: OtherFile::CompressedTwice }), "{twice}");
}
