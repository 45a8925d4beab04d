//! Tests of the SMTP sink: against a scripted server for every answer, and against a real MTA.

mod auth;
mod hostile;
mod pool;
mod recipients;
mod replies;
mod scripted;
mod sizes;
