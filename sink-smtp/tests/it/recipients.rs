//! Each recipient has an end of its own.

use std::{num::NonZeroUsize, time::Duration};

use outbox_core::{Outcome, Outcomes, Record, SendContext, SendErrorKind, Sink};
use sink_smtp::{OnRefused, SmtpSink};

use crate::scripted::{Act, At, Scripted, cx, email, record, usual};

/// Answers by the recipient's local part: `r550` is refused with 550, and so on.
fn by_recipient(at: &At) -> Act {
    match at.point.as_str() {
        "RCPT" if at.line.contains("<r550") => Act::Say("550 5.1.1 no such user"),
        "RCPT" if at.line.contains("<r451") => Act::Say("451 4.2.0 later"),
        "RCPT" if at.line.contains("<r421") => Act::SayAndCut("421 4.3.2 closing"),
        _ => Act::Usual,
    }
}

/// The record at its next attempt.
fn next_attempt(record: &Record, progress: Option<serde_json::Value>) -> Record {
    let mut next = record.clone();
    next.attempts += 1;
    next.fence += 1;
    next.progress = progress.or(next.progress);
    next
}

/// K2: the first is mailed once, the second reported, the third alone tried again.
#[tokio::test]
async fn accepted_refused_and_put_off_recipients_each_get_their_own() {
    let server = Scripted::start(by_recipient).await;
    let sink = server.sink();
    let first = record(&email(&["ok@example.com", "r550@example.com", "r451@example.com"]));
    let error = sink.send(&first, &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient);
    assert_eq!(error.to_string(), "1 of 3 recipients put off; recipient 3: 451 4.2.0 later (at RCPT)");
    let second = next_attempt(&first, error.progress().cloned());
    let error = sink.send(&second, &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient);
    assert_eq!(
        server.said("RCPT"),
        [
            "RCPT TO:<ok@example.com>",
            "RCPT TO:<r550@example.com>",
            "RCPT TO:<r451@example.com>",
            "RCPT TO:<r451@example.com>"
        ]
    );
    let taken = server.taken();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].to, ["ok@example.com"]);
}

#[tokio::test]
async fn once_the_put_off_are_taken_the_record_is_sent_and_reports_the_refused() {
    let server = Scripted::start(by_recipient).await;
    let before = record(&email(&["ok@example.com", "r550@example.com", "r451@example.com"]));
    let progress = server.sink().send(&before, &cx()).await.unwrap_err().progress().cloned();
    let willing = Scripted::start(usual).await;
    let receipt = willing.sink().send(&next_attempt(&before, progress), &cx()).await.unwrap();
    assert_eq!(willing.taken()[0].to, ["r451@example.com"]);
    assert_eq!(
        receipt.as_str().unwrap(),
        "250 2.0.0 queued as Q1 | 250 2.0.0 queued as Q1; 1 of 3 recipients refused; \
         recipient 2: 550 5.1.1 no such user (at RCPT)"
    );
}

#[tokio::test]
async fn a_record_is_dead_when_nobody_has_it_and_all_are_refused_or_by_policy() {
    let server = Scripted::start(by_recipient).await;
    let error = server.sink().send(&record(&email(&["r550@example.com"])), &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);

    let both = record(&email(&["ok@example.com", "r550@example.com"]));
    assert!(server.sink().send(&both, &cx()).await.is_ok());
    let strict = SmtpSink::connect(server.config().with_on_refused(OnRefused::Dead)).unwrap();
    let error = strict.send(&both, &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
    // Redriven, it goes to nobody who has it.
    let taken = server.taken().len();
    let redriven = next_attempt(&both, error.progress().cloned());
    assert!(strict.send(&redriven, &cx()).await.is_err());
    assert_eq!(server.taken().len(), taken);
}

/// A recipient that makes the server close holds back nobody else.
#[tokio::test]
async fn a_421_at_one_recipient_reconnects_for_the_others() {
    let server = Scripted::start(by_recipient).await;
    let to = ["a@example.com", "r421@example.com", "b@example.com"];
    let error = server.sink().send(&record(&email(&to)), &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient);
    assert_eq!(server.taken()[0].to, ["a@example.com", "b@example.com"]);
    assert_eq!((server.connections(), server.taken().len()), (2, 1));

    let many: Vec<String> = (0..10).map(|n| format!("r421-{n}@example.com")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let error = server.sink().send(&record(&email(&many)), &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient);
    assert!(server.connections() < 8, "{} connections", server.connections());
}

/// The same for one at which it closes without a word.
#[tokio::test]
async fn a_connection_cut_at_one_recipient_is_made_again_for_the_others() {
    let server = Scripted::start(|at| match at.point.as_str() {
        "RCPT" if at.line.contains("<cut") => Act::Cut,
        "RCPT" if at.line.contains("<garbled") => Act::Say("what?"),
        _ => Act::Usual,
    })
    .await;
    let to = ["a@example.com", "cut@example.com", "garbled@example.com", "b@example.com"];
    let error = server.sink().send(&record(&email(&to)), &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Transient);
    assert!(
        error.to_string().starts_with("2 of 4 recipients put off; recipient 2: the server hung up"),
        "{error}"
    );
    assert_eq!(server.taken()[0].to, ["a@example.com", "b@example.com"]);
    assert_eq!((server.connections(), server.taken().len()), (3, 1));
}

/// What the server has taken is kept though the send is dropped afterwards.
#[tokio::test]
async fn a_dropped_send_keeps_who_has_the_mail() {
    let server =
        Scripted::start(
            |at| {
                if at.point == "RCPT" && at.line.contains("<slow") { Act::Hang } else { Act::Usual }
            },
        )
        .await;
    let config = server.config().with_recipients_max(NonZeroUsize::MIN);
    let sink = SmtpSink::connect(config).unwrap();
    let records = [record(&email(&["ok@example.com", "slow@example.com"]))];
    let mut outcomes = Outcomes::new(1);
    // The relay's own end of the send, long before the sink's.
    let cx = SendContext::new(Duration::from_secs(60));
    let sending = sink.send_batch(&records, &cx, &mut outcomes);
    assert!(tokio::time::timeout(Duration::from_millis(500), sending).await.is_err());
    let (outcome, progress) = outcomes.take(0);
    assert!(matches!(outcome, Outcome::Unknown));
    let willing = Scripted::start(usual).await;
    willing.sink().send(&next_attempt(&records[0], progress), &cx).await.unwrap();
    assert_eq!(willing.taken().len(), 1);
    assert_eq!(willing.taken()[0].to, ["slow@example.com"]);
}

#[tokio::test]
async fn a_mail_to_more_than_one_transaction_takes_goes_in_several() {
    let server = Scripted::start(usual).await;
    let to: Vec<String> = (0..250).map(|n| format!("r{n}@example.com")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    server.sink().send(&record(&email(&to)), &cx()).await.unwrap();
    let sizes: Vec<usize> = server.taken().iter().map(|taken| taken.to.len()).collect();
    assert_eq!(sizes, [100, 100, 50]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_recipient_named_twice_is_mailed_once_and_a_bcc_is_in_no_header() {
    let server = Scripted::start(usual).await;
    let email = email(&["ann@example.com"]).cc("Ann <ann@example.com>").bcc("Eve <eve@example.com>");
    server.sink().send(&record(&email), &cx()).await.unwrap();
    let taken = &server.taken()[0];
    assert_eq!(taken.to, ["ann@example.com", "eve@example.com"]);
    assert!(!taken.message.to_lowercase().contains("eve"), "{}", taken.message);
}

#[tokio::test]
async fn a_progress_that_nobody_can_read_mails_nobody() {
    let server = Scripted::start(usual).await;
    let mut odd = record(&email(&["ann@example.com"]));
    odd.progress = Some(serde_json::json!({"accepted": 3}));
    let error = server.sink().send(&odd, &cx()).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Permanent);
    assert_eq!(server.connections(), 0);
}

/// K8: a failure stops its key and nothing else.
#[tokio::test]
async fn in_a_batch_a_failure_stops_its_key_alone() {
    let server = Scripted::start(by_recipient).await;
    let keyed = |to: &str, key: &str| {
        let mut record = record(&email(&[to]));
        record.key = Some(key.to_owned());
        record
    };
    let records =
        [keyed("r451@example.com", "a"), keyed("ok@example.com", "a"), keyed("ok@example.com", "b")];
    let mut outcomes = Outcomes::new(3);
    server.sink().send_batch(&records, &cx(), &mut outcomes).await;
    assert!(matches!(outcomes.outcome(0), Outcome::Failed(_)));
    assert!(matches!(outcomes.outcome(1), Outcome::NotAttempted));
    assert!(matches!(outcomes.outcome(2), Outcome::Sent(_)));
    assert_eq!(server.taken().len(), 1);
}
