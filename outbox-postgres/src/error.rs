//! What the driver's errors mean to a caller.

use outbox_core::{StoreError, StoreErrorKind};

/// A function that turns the driver's error, met while `doing`, into the store's.
pub(crate) fn doing(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError + Copy {
    move |error| StoreError::new(kind(&error), doing).with_source(error)
}

/// Whether a transaction of the store's own is worth another run at once.
pub(crate) fn met_another(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Conflict
}

fn kind(error: &sqlx::Error) -> StoreErrorKind {
    match error {
        sqlx::Error::Database(error) => of_code(error.code().as_deref().unwrap_or_default()),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Other,
    }
}

fn of_code(code: &str) -> StoreErrorKind {
    match code {
        "40001" | "40P01" => StoreErrorKind::Conflict,
        "23505" => StoreErrorKind::DuplicateId,
        "42501" => StoreErrorKind::Denied,
        "42P01" | "42703" | "3F000" | "42883" => StoreErrorKind::Schema,
        "25006" | "57014" | "55P03" => StoreErrorKind::Unavailable,
        _ if ["08", "53", "57"].iter().any(|class| code.starts_with(class)) => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_kind() {
        let check = |code, expected| assert_eq!(of_code(code), expected, "{code}");
        check("40001", StoreErrorKind::Conflict);
        check("40P01", StoreErrorKind::Conflict);
        check("23505", StoreErrorKind::DuplicateId);
        check("42501", StoreErrorKind::Denied);
        check("42P01", StoreErrorKind::Schema);
        check("57P01", StoreErrorKind::Unavailable);
        check("53300", StoreErrorKind::Unavailable);
        check("22012", StoreErrorKind::Other);
    }
}
