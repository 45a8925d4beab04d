//! From rows to records, and from durations and dates to the milliseconds of the tables.

use std::time::{Duration, SystemTime};

use outbox_core::{Headers, Lease, Payload, Record, RecordView, State, Undecodable};
use sqlx::{Row, TypeInfo, ValueRef, sqlite::SqliteRow};
use uuid::Uuid;

/// Milliseconds, rounded up: no wait is ever cut short.
pub(crate) fn millis(duration: Duration) -> i64 {
    let rounded = duration.as_millis() + u128::from(!duration.subsec_nanos().is_multiple_of(1_000_000));
    // A quarter of the range: such waits can be added to any time of this age of the world.
    i64::try_from(rounded).unwrap_or(i64::MAX).min(i64::MAX / 4)
}

/// From `now` until `then`, both in milliseconds; zero when it has passed.
pub(crate) fn until(then: i64, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(then.saturating_sub(now)).unwrap_or(0))
}

/// A date of the tables. One that no calendar holds is cut to the years 1970 to 9999.
pub(crate) fn date(millis: i64) -> SystemTime {
    const FAR: u64 = 253_402_300_799_000;
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or(0).min(FAR))
}

/// The milliseconds of a date, rounded up: what is dated before it has fewer.
pub(crate) fn millis_of(date: SystemTime) -> i64 {
    date.duration_since(SystemTime::UNIX_EPOCH).map_or(0, millis)
}

/// A UUID as the tables hold it.
pub(crate) fn id_text(id: Uuid) -> String {
    id.as_hyphenated().to_string()
}

/// The identity of a row. The table takes no other text.
pub(crate) fn id_of(row: &SqliteRow) -> Result<Uuid, sqlx::Error> {
    let text: &str = row.try_get("id")?;
    text.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// A claimed row, as a sink receives it, or else what is wrong with it.
pub(crate) fn claimed(row: &SqliteRow) -> Result<Result<Record, Undecodable>, sqlx::Error> {
    let lease = Lease::new(row.try_get("seq")?, id_of(row)?, row.try_get("fence")?);
    Ok(record(row, lease).map_err(|reason| {
        let kind =
            bytes(row, "kind").map_or_else(String::new, |kind| String::from_utf8_lossy(kind).into_owned());
        Undecodable::new(lease, kind, reason)
    }))
}

fn record(row: &SqliteRow, lease: Lease) -> Result<Record, String> {
    let kind = text(row, "kind")?.unwrap_or_default();
    let mut record = Record::new(lease.seq, lease.id, kind, payload(row)?);
    record.destination = text(row, "destination")?;
    record.key = text(row, "key")?;
    record.content_type = text(row, "content_type")?.unwrap_or_default();
    record.headers = headers(row)?;
    record.attempts = count(row, "attempts")?;
    record.lapses = count(row, "lapses")?;
    record.fence = lease.fence;
    record.age = Duration::from_millis(u64::try_from(number(row, "age")?).unwrap_or(0));
    record.progress = match text(row, "progress")? {
        Some(progress) => {
            Some(serde_json::from_str(&progress).map_err(|_| "progress is not JSON".to_owned())?)
        }
        None => None,
    };
    record.created_at = date(number(row, "created_at")?);
    Ok(record)
}

/// A row as an operator sees it. What cannot be read is left empty: this is how a bad row is found.
pub(crate) fn view(row: &SqliteRow) -> Result<RecordView, sqlx::Error> {
    let lossy = |column| bytes(row, column).map(|text| String::from_utf8_lossy(text).into_owned());
    let kind = lossy("kind").unwrap_or_default();
    let mut view = RecordView::new(row.try_get("seq")?, id_of(row)?, kind, date(row.try_get("created_at")?));
    view.destination = lossy("destination");
    view.key = lossy("key");
    view.content_type = lossy("content_type").unwrap_or_default();
    view.headers = headers(row).unwrap_or_default();
    view.sent_at = row.try_get::<Option<i64>, _>("sent_at")?.map(date);
    view.dead_at = row.try_get::<Option<i64>, _>("dead_at")?.map(date);
    view.state = state(
        row.try_get::<Option<i64>, _>("owner")?.is_some(),
        view.sent_at.is_some(),
        view.dead_at.is_some(),
    );
    view.send_after = date(row.try_get("send_after")?);
    view.attempts = count(row, "attempts").unwrap_or_default();
    view.lapses = count(row, "lapses").unwrap_or_default();
    view.blocks_key = row.try_get::<i64, _>("blocks_key")? != 0;
    view.last_error = lossy("last_error");
    view.receipt = lossy("receipt");
    Ok(view)
}

/// Where a row stands.
pub(crate) fn state(is_owned: bool, is_sent: bool, is_dead: bool) -> State {
    match (is_sent, is_dead, is_owned) {
        (true, _, _) => State::Sent,
        (false, true, _) => State::Dead,
        (false, false, true) => State::Claimed,
        (false, false, false) => State::Pending,
    }
}

/// What a row carries: text is JSON, anything else is bytes.
pub(crate) fn payload(row: &SqliteRow) -> Result<Payload, String> {
    let raw = row.try_get_raw("payload").map_err(|_| "payload is missing")?;
    let is_text = raw.type_info().name() == "TEXT";
    let bytes = bytes(row, "payload").unwrap_or_default().to_vec();
    if !is_text {
        return Ok(Payload::Bytes(bytes));
    }
    String::from_utf8(bytes).map(Payload::Json).map_err(|_| "payload is text that is not UTF-8".to_owned())
}

fn headers(row: &SqliteRow) -> Result<Headers, String> {
    let text = text(row, "headers")?.unwrap_or_default();
    // The parser's own words may quote a value.
    serde_json::from_str(&text).map_err(|_| "headers are not a JSON object of text to text".to_owned())
}

fn bytes<'r>(row: &'r SqliteRow, column: &str) -> Option<&'r [u8]> {
    row.try_get_unchecked::<Option<&[u8]>, _>(column).ok().flatten()
}

fn text(row: &SqliteRow, column: &'static str) -> Result<Option<String>, String> {
    match bytes(row, column).map(std::str::from_utf8) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text.to_owned())),
        Some(Err(_)) => Err(format!("{column} is not UTF-8")),
    }
}

fn number(row: &SqliteRow, column: &'static str) -> Result<i64, String> {
    row.try_get(column).map_err(|_| format!("{column} is not a number"))
}

fn count(row: &SqliteRow, column: &'static str) -> Result<u32, String> {
    Ok(u32::try_from(number(row, column)?.max(0)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_never_cut_short() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_micros(1_500)), 2);
        assert_eq!(millis(Duration::MAX), i64::MAX / 4);
    }

    #[test]
    fn times_set_by_hand_are_dates_all_the_same() {
        assert_eq!(date(i64::MIN), SystemTime::UNIX_EPOCH);
        assert!(date(i64::MAX) > date(0));
        assert_eq!(until(i64::MIN, i64::MAX), Duration::ZERO);
        assert!(until(i64::MAX, i64::MIN) > Duration::ZERO);
    }
}
