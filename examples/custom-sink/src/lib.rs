#![doc = include_str!("../README.md")]

use std::{io, path::PathBuf};

use outbox_core::{ErrorScope, Receipt, Record, SendContext, SendError, Sink, async_trait};
use serde::Serialize;
use tokio::{
    fs::{File, OpenOptions},
    io::AsyncWriteExt,
    sync::Mutex,
};

/// The longest payload that the journal takes, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// Appends each record to a file, one JSON object a line.
#[derive(Debug)]
pub struct JournalSink {
    path: PathBuf,
    /// One writer at a time, so that lines stay whole.
    file: Mutex<Option<File>>,
}

/// One line. The id comes first: it is what a reader drops second copies by.
#[derive(Serialize)]
struct Line<'a> {
    id: String,
    kind: &'a str,
    key: Option<&'a str>,
    payload: &'a str,
}

impl JournalSink {
    /// A sink that appends to the file at this path and makes it when it is missing.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: Mutex::new(None) }
    }

    async fn open(&self) -> Result<File, SendError> {
        OpenOptions::new().create(true).append(true).open(&self.path).await.map_err(|error| down(&error))
    }
}

#[async_trait]
impl Sink for JournalSink {
    async fn send(&self, record: &Record, _: &SendContext) -> Result<Receipt, SendError> {
        // What can never be accepted is said before anything is written.
        if record.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(SendError::permanent("the payload is longer than a line of the journal may be"));
        }
        let payload = std::str::from_utf8(record.payload.as_bytes())
            .map_err(|_| SendError::permanent("the payload is no text"))?;
        let line =
            Line { id: record.id.to_string(), kind: &record.kind, key: record.key.as_deref(), payload };
        let mut line =
            serde_json::to_vec(&line).map_err(|_| SendError::permanent("the record has no JSON form"))?;
        line.push(b'\n');

        // Taken out while it is written: a send that is dropped half-way leaves none behind, so the next
        // one opens the file anew. Its half line is the reader's to skip, as after a crash.
        let mut slot = self.file.lock().await;
        let mut file = match slot.take() {
            Some(file) => file,
            None => self.open().await?,
        };
        file.write_all(&line).await.map_err(|error| down(&error))?;
        file.flush().await.map_err(|error| down(&error))?;
        // The acknowledgement: what is on the disk is there.
        file.sync_data().await.map_err(|error| down(&error))?;
        *slot = Some(file);
        Ok(Receipt::none())
    }

    /// Does what a send does, short of writing.
    async fn check(&self) -> Result<(), SendError> {
        self.open().await.map(drop)
    }
}

/// A disk that fails is no record's fault: nothing is counted, and the relay probes until it is back.
fn down(error: &io::Error) -> SendError {
    SendError::unavailable(format!("the journal cannot be written: {}", error.kind()))
        .with_scope(ErrorScope::Sink)
}
