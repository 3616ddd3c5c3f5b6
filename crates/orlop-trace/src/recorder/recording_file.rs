//! A recording that is written to a file while the program runs.
//!
//! A thread drains the recorder every few milliseconds and writes what is new as whole blocks, so that the
//! file can be read whenever the program ends: after a panic, whose unwinding ends the recording, everything
//! is in it; after a kill or an abort, everything but the last interval. What is lost is written beside the
//! events.

use super::{DrainReport, Recorder, RecorderBuilder};
use crate::formats::Format;
use crate::formats::binary::{BinaryWriter, EventOrder};
use crate::history::HistoryWarning;
use crate::{Result, TraceError};
use orlop_alloc::Observer;
use std::fs::File;
use std::io::{self, Sink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{mem, process};

/// The time between two drains: a ring of the default capacity then takes three million events per second.
const INTERVAL: Duration = Duration::from_millis(20);

/// A recording into a file ([`Recorder::to_file`]). It ends when it is dropped; [`RecordingFile::finish`]
/// also returns what was written, or the error.
///
/// In the child of a `fork` the end of the recording changes nothing: the file is the parent's.
///
/// Observers that are still added to a context or an allocator then record into memory only: remove them.
#[derive(Debug)]
pub struct RecordingFile {
    recorder: Recorder,
    /// Dropped to end the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<DrainReport>>>,
    /// The process that has the thread: the child of a `fork` does not.
    process: u32,
}

impl RecordingFile {
    pub(super) fn create(builder: RecorderBuilder, path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| TraceError::Open { path: path.to_owned(), error })?;
        let recorder = builder.build();
        let writer = FileWriter::new(recorder.clone(), file, builder.max_file_bytes)?;
        let (end, ended) = channel();
        let thread = thread::Builder::new().name("orlop-recording".to_owned());
        let thread = thread.spawn(move || writer.run(&ended)).map_err(TraceError::write(Format::Binary))?;
        Ok(Self { recorder, end: Some(end), thread: Some(thread), process: process::id() })
    }

    /// Returns the recorder. Its [`drain`](Recorder::drain) would take events away from the file.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Returns the recorder as an observer, to be added to contexts and allocators.
    #[must_use]
    pub fn observer(&self) -> Arc<dyn Observer> {
        self.recorder.observer()
    }

    /// Records a text of the program, such as the number of a step.
    pub fn annotate(&self, text: &str) {
        self.recorder.annotate(text);
    }

    /// Ends the recording. Returns the number of events in the file, of those that were lost (overwritten
    /// before they were written, or beyond the file's maximum size), and of the recorder's own blocks.
    ///
    /// # Errors
    ///
    /// [`TraceError::Write`]: the file ends before the failure and can be read up to there; or this is the
    /// child of a `fork`.
    pub fn finish(mut self) -> Result<DrainReport> {
        self.end()
    }

    fn end(&mut self) -> Result<DrainReport> {
        let (end, thread) = (self.end.take(), self.thread.take());
        if self.process != process::id() {
            // Neither can be used: the thread may have had the lock of the channel.
            mem::forget((end, thread));
            let error =
                io::Error::other("the recording belongs to the process that this one was forked from");
            return Err(TraceError::write(Format::Binary)(error));
        }
        drop(end);
        let Some(thread) = thread else { return Ok(DrainReport::default()) };
        let failed = |_| TraceError::write(Format::Binary)(io::Error::other("the writing thread panicked"));
        thread.join().map_err(failed)?
    }
}

impl Drop for RecordingFile {
    fn drop(&mut self) {
        // The caller did not ask for the result; a file that could not be completed says so when it is read.
        let _ = self.end();
    }
}

/// What the thread writes.
struct FileWriter {
    recorder: Recorder,
    /// `None` when the file is complete, and after an error.
    file: Option<BinaryWriter<File>>,
    /// Takes the events that the file does not.
    beyond: BinaryWriter<Sink>,
    max_bytes: u64,
    report: DrainReport,
    failed: Option<TraceError>,
}

impl FileWriter {
    fn new(recorder: Recorder, file: File, max_bytes: u64) -> Result<Self> {
        Ok(Self {
            recorder,
            file: Some(BinaryWriter::new(file, EventOrder::Nearly)?),
            beyond: BinaryWriter::new(io::sink(), EventOrder::Nearly)?,
            max_bytes,
            report: DrainReport::default(),
            failed: None,
        })
    }

    fn run(mut self, ended: &Receiver<()>) -> Result<DrainReport> {
        loop {
            let is_last = ended.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout);
            let written = self.write(is_last);
            self.keep(written);
            if is_last {
                let finished = self.file.take().map_or(Ok(()), |file| file.finish().map(drop));
                self.keep(finished);
                return self.failed.map_or(Ok(self.report), Err);
            }
        }
    }

    /// Writes the events since the last call, and how many were lost.
    fn write(&mut self, is_last: bool) -> Result<()> {
        if let Some(file) = self.file.as_mut().filter(|file| file.bytes() < self.max_bytes) {
            let written = self.recorder.drain_into(file, is_last)?;
            self.report.events += written.events;
            self.report.own += written.own;
        } else {
            let beyond = self.recorder.drain_into(&mut self.beyond, is_last)?;
            self.recorder.inner.lost.fetch_add(beyond.events, Ordering::Relaxed);
            self.report.own += beyond.own;
        }
        let lost = self.recorder.lost();
        if let Some(file) = &mut self.file {
            if lost > self.report.lost {
                file.warning(HistoryWarning::EventsLost { count: lost - self.report.lost })?;
            }
            file.flush()?;
        }
        self.report.lost = lost;
        Ok(())
    }

    /// Keeps the first error. Nothing is written after it.
    fn keep(&mut self, written: Result<()>) {
        if let Err(error) = written {
            self.failed.get_or_insert(error);
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The child of a `fork` has neither the thread nor the file.
    #[test]
    fn another_process_cannot_finish_a_recording() {
        let folder = tempfile::tempdir().unwrap();
        let mut recording = Recorder::to_file(folder.path().join("run.orlop")).unwrap();
        let ours = mem::replace(&mut recording.process, 0);
        assert_ne!(ours, 0);
        assert!(matches!(recording.finish(), Err(TraceError::Write { .. })));
    }
}
