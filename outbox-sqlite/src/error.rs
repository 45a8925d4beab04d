//! From SQLite's codes to what a caller can do about them.

use outbox_core::{StoreError, StoreErrorKind};

use crate::schema::WrongVersion;

/// The error of a call that was `doing` something.
pub(crate) fn store_error(doing: &'static str, error: sqlx::Error) -> StoreError {
    StoreError::new(kind(&error), doing).with_source(error)
}

/// What can be done about an error.
pub(crate) fn kind(error: &sqlx::Error) -> StoreErrorKind {
    match error {
        sqlx::Error::Database(database) => kind_of(code(error), database.message()),
        sqlx::Error::Configuration(cause) if cause.is::<WrongVersion>() => StoreErrorKind::Schema,
        sqlx::Error::Configuration(_) => StoreErrorKind::Config,
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Other,
    }
}

/// By the extended code: its low byte is the primary one.
fn kind_of(code: i32, message: &str) -> StoreErrorKind {
    match (code, code & 0xff) {
        // SQLITE_BUSY_SNAPSHOT: the transaction has read what another has changed since.
        (517, _) => StoreErrorKind::Conflict,
        // BUSY, LOCKED, IOERR, CORRUPT-free trouble that may pass: INTERRUPT, PROTOCOL, FULL, CANTOPEN.
        (_, 5 | 6 | 9 | 10 | 13 | 14 | 15) => StoreErrorKind::Unavailable,
        // PERM, READONLY, AUTH.
        (_, 3 | 8 | 23) => StoreErrorKind::Denied,
        // SQLITE_CONSTRAINT_UNIQUE, and only one column of ours has it.
        (2067, _) => StoreErrorKind::DuplicateId,
        // SQLITE_ERROR says more only in words.
        (_, 1)
            if ["no such table", "no such column", "no such index", "has no column"]
                .iter()
                .any(|words| message.contains(words)) =>
        {
            StoreErrorKind::Schema
        }
        _ => StoreErrorKind::Other,
    }
}

/// Whether somebody else has the lock for the moment, and trying again may help.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    matches!((code(error), code(error) & 0xff), (code, 5 | 6 | 15) if code != 517)
}

fn code(error: &sqlx::Error) -> i32 {
    let sqlx::Error::Database(database) = error else { return 0 };
    database.code().and_then(|code| code.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_kind() {
        let rows = [
            (5, "database is locked", StoreErrorKind::Unavailable),
            (261, "database is locked", StoreErrorKind::Unavailable),
            (517, "database is locked", StoreErrorKind::Conflict),
            (6, "database table is locked", StoreErrorKind::Unavailable),
            (262, "database table is locked", StoreErrorKind::Unavailable),
            (9, "interrupted", StoreErrorKind::Unavailable),
            (522, "disk I/O error", StoreErrorKind::Unavailable),
            (13, "database or disk is full", StoreErrorKind::Unavailable),
            (14, "unable to open database file", StoreErrorKind::Unavailable),
            (15, "locking protocol", StoreErrorKind::Unavailable),
            (3, "access permission denied", StoreErrorKind::Denied),
            (8, "attempt to write a readonly database", StoreErrorKind::Denied),
            (23, "not authorized", StoreErrorKind::Denied),
            (2067, "UNIQUE constraint failed: outbox.id", StoreErrorKind::DuplicateId),
            (275, "CHECK constraint failed", StoreErrorKind::Other),
            (1, "no such table: outbox", StoreErrorKind::Schema),
            (1, "no such column: held", StoreErrorKind::Schema),
            (1, "near \"x\": syntax error", StoreErrorKind::Other),
            (11, "database disk image is malformed", StoreErrorKind::Other),
        ];
        for (code, message, expected) in rows {
            assert_eq!(kind_of(code, message), expected, "{code} {message}");
        }
    }

    #[test]
    fn every_error_of_the_driver_has_its_kind() {
        let rows = [
            (sqlx::Error::PoolTimedOut, StoreErrorKind::Unavailable),
            (sqlx::Error::PoolClosed, StoreErrorKind::Unavailable),
            (sqlx::Error::WorkerCrashed, StoreErrorKind::Unavailable),
            (sqlx::Error::Io(std::io::ErrorKind::Other.into()), StoreErrorKind::Unavailable),
            (sqlx::Error::Configuration("odd".into()), StoreErrorKind::Config),
            (
                sqlx::Error::Configuration(WrongVersion { found: Some(9), known: 1 }.into()),
                StoreErrorKind::Schema,
            ),
            (sqlx::Error::RowNotFound, StoreErrorKind::Other),
        ];
        for (error, expected) in rows {
            assert_eq!(kind(&error), expected, "{error}");
        }
    }
}
