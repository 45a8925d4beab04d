//! From the driver's rows to records.

use std::time::{Duration, SystemTime};

use outbox_core::{
    Headers, Lease, Payload, Record, RecordView, State, StoreError, StoreErrorKind, Undecodable,
};
use sqlx::{
    Decode, Encode, Postgres, Row, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgRow, PgTypeInfo, PgValueRef},
};
use uuid::Uuid;

use crate::error::doing;

/// Microseconds from 1970 to the start of the database's count, 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
/// The year 9999 or so: what an infinite time is shown as.
const FAR_MICROS: u64 = 253_402_300_799_000_000;

/// A `timestamptz`, as the driver sends it: microseconds since 2000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(i64);

impl Timestamp {
    pub(crate) fn to_time(self) -> SystemTime {
        let micros = self.0.saturating_add(EPOCH_MICROS);
        let apart = Duration::from_micros(micros.unsigned_abs().min(FAR_MICROS));
        let date = if micros < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(apart)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(apart)
        };
        date.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    pub(crate) fn from_time(time: SystemTime) -> Self {
        let since = |apart: Duration| i64::try_from(apart.as_micros()).unwrap_or(i64::MAX / 4);
        let micros = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => since(after).min(i64::MAX / 4),
            Err(before) => -since(before.duration()).min(i64::MAX / 4),
        };
        Self(micros.saturating_sub(EPOCH_MICROS).max(-210_000_000_000_000_000))
    }
}

impl Type<Postgres> for Timestamp {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("timestamptz")
    }
}

impl<'r> Decode<'r, Postgres> for Timestamp {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        <i64 as Decode<Postgres>>::decode(value).map(Self)
    }
}

impl Encode<'_, Postgres> for Timestamp {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        <i64 as Encode<Postgres>>::encode_by_ref(&self.0, buffer)
    }
}

/// A duration as the statements take it, cut to what an interval holds.
pub(crate) fn micros(duration: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 24 * 3600 * 1_000_000;
    i64::try_from(duration.as_micros()).unwrap_or(CENTURY).min(CENTURY)
}

fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or_default()
}

fn headers(text: &str) -> Result<Headers, String> {
    if text == "{}" {
        return Ok(Headers::new());
    }
    serde_json::from_str(text).map_err(|_| "its headers are no object of text".to_owned())
}

pub(crate) fn payload(row: &PgRow) -> Result<Payload, sqlx::Error> {
    match row.try_get::<Option<String>, _>("payload")? {
        Some(text) => Ok(Payload::Json(text)),
        None => Ok(Payload::Bytes(row.try_get::<Option<Vec<u8>>, _>("payload_bytes")?.unwrap_or_default())),
    }
}

/// A claimed row as a sink receives it, or what is wrong with it.
pub(crate) fn claimed(row: &PgRow) -> Result<Result<Record, Undecodable>, StoreError> {
    read_claimed(row).map_err(doing("read a claimed record"))
}

fn read_claimed(row: &PgRow) -> Result<Result<Record, Undecodable>, sqlx::Error> {
    let (seq, id, fence): (i64, Uuid, i64) = (row.try_get("seq")?, row.try_get("id")?, row.try_get("fence")?);
    let kind: String = row.try_get("kind")?;
    let headers = match headers(row.try_get::<&str, _>("headers")?) {
        Ok(headers) => headers,
        Err(reason) => return Ok(Err(Undecodable::new(Lease::new(seq, id, fence), kind, reason))),
    };
    let mut record = Record::new(seq, id, kind, payload(row)?);
    record.destination = row.try_get("destination")?;
    record.key = row.try_get("key")?;
    record.content_type = row.try_get("content_type")?;
    record.headers = headers;
    record.attempts = count(row.try_get("attempts")?);
    record.lapses = count(row.try_get("lapses")?);
    record.fence = fence;
    let age: i64 = row.try_get("age_micros")?;
    record.age = Duration::from_micros(u64::try_from(age).unwrap_or_default());
    let progress: Option<&str> = row.try_get("progress")?;
    record.progress = progress.and_then(|text| serde_json::from_str(text).ok());
    record.created_at = row.try_get::<Timestamp, _>("created_at")?.to_time();
    Ok(Ok(record))
}

/// A row as an operator sees it.
pub(crate) fn view(row: &PgRow) -> Result<RecordView, StoreError> {
    read_view(row).map_err(|error| StoreError::new(StoreErrorKind::Other, "read a record").with_source(error))
}

fn read_view(row: &PgRow) -> Result<RecordView, sqlx::Error> {
    let time = |name| row.try_get::<Timestamp, _>(name).map(Timestamp::to_time);
    let maybe = |name| row.try_get::<Option<Timestamp>, _>(name).map(|at| at.map(Timestamp::to_time));
    let kind: String = row.try_get("kind")?;
    let mut view = RecordView::new(row.try_get("seq")?, row.try_get("id")?, kind, time("created_at")?);
    view.destination = row.try_get("destination")?;
    view.key = row.try_get("key")?;
    view.content_type = row.try_get("content_type")?;
    view.headers = headers(row.try_get::<&str, _>("headers")?).unwrap_or_default();
    view.send_after = time("send_after")?;
    view.attempts = count(row.try_get("attempts")?);
    view.lapses = count(row.try_get("lapses")?);
    view.blocks_key = row.try_get("blocks_key")?;
    view.sent_at = maybe("sent_at")?;
    view.dead_at = maybe("dead_at")?;
    view.last_error = row.try_get("last_error")?;
    view.receipt = row.try_get("receipt")?;
    view.state = match (view.sent_at, view.dead_at, row.try_get::<bool, _>("owned")?) {
        (Some(_), _, _) => State::Sent,
        (None, Some(_), _) => State::Dead,
        (None, None, true) => State::Claimed,
        (None, None, false) => State::Pending,
    };
    Ok(view)
}
