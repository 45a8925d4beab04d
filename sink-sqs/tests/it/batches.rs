//! Which requests a call becomes, and what the answers to them do to each record.

use std::time::Duration;

use outbox_core::{ErrorScope, Outcome, Outcomes, Receipt, Record, SendContext, SendErrorKind, Sink};
use serde_json::Value;
use sink_sqs::{SqsConfig, SqsSink};

use crate::{scripted::Scripted, service::record};

const CX: SendContext = SendContext::new(Duration::from_secs(10));

fn ten() -> Vec<Record> {
    (0..10).map(|n| record(n.to_string())).collect()
}

async fn sent_by(config: SqsConfig, records: &[Record], cx: &SendContext) -> Outcomes {
    let sink = SqsSink::connect(config).unwrap();
    let mut outcomes = Outcomes::new(records.len());
    sink.send_batch(records, cx, &mut outcomes).await;
    outcomes
}

fn is_sent(outcomes: &Outcomes, at: usize) -> bool {
    matches!(outcomes.outcome(at), Outcome::Sent(_))
}

/// The bodies of each request, in order.
fn bodies(server: &Scripted) -> Vec<Vec<String>> {
    let body = |entry: &Value| entry["MessageBody"].as_str().unwrap().to_owned();
    server.book.lock().unwrap().batches.iter().map(|entries| entries.iter().map(body).collect()).collect()
}

#[tokio::test]
async fn two_refused_of_ten_are_those_two_and_eight_are_sent() {
    let server = Scripted::start().await;
    server.book.lock().unwrap().refuse_bodies =
        [("3".to_owned(), ("InvalidParameterValue", true)), ("7".to_owned(), ("InternalError", false))]
            .into();
    let records = ten();
    let outcomes = sent_by(server.config("orders"), &records, &CX).await;
    for at in 0..10 {
        match (at, outcomes.outcome(at)) {
            (3, Outcome::Failed(error)) => assert_eq!(error.kind(), SendErrorKind::Permanent),
            (7, Outcome::Failed(error)) => assert_eq!(error.kind(), SendErrorKind::Transient),
            (at, outcome) => assert!(matches!(outcome, Outcome::Sent(_)), "record {at}: {outcome:?}"),
        }
    }
    assert_eq!(bodies(&server).len(), 1);
}

#[tokio::test]
async fn a_batch_is_split_before_its_bytes_pass_the_limit() {
    let server = Scripted::start().await;
    let records: Vec<_> = (0..10).map(|n| record(n.to_string().repeat(30_000))).collect();
    // Three of them and their attributes fit, a fourth does not.
    let config = server.config("orders").with_message_bytes_max(100_000);
    let outcomes = sent_by(config, &records, &CX).await;
    assert!((0..10).all(|at| is_sent(&outcomes, at)), "{outcomes:?}");
    let mut sizes: Vec<_> = bodies(&server).iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 3, 3, 3]);
}

#[tokio::test]
async fn attributes_count_into_the_bytes_of_a_request() {
    let server = Scripted::start().await;
    let mut records: Vec<_> = (0..10).map(|n| record(n.to_string())).collect();
    for record in &mut records {
        record.headers.insert("note".into(), "x".repeat(900));
    }
    let outcomes = sent_by(server.config("orders").with_message_bytes_max(5_000), &records, &CX).await;
    assert!((0..10).all(|at| is_sent(&outcomes, at)), "{outcomes:?}");
    let mut sizes: Vec<_> = bodies(&server).iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [2, 4, 4]);
}

#[tokio::test]
async fn a_record_too_large_alone_is_dead_and_the_rest_of_its_batch_is_sent() {
    let server = Scripted::start().await;
    let mut records = ten();
    records[4] = record("4".repeat(300_000));
    let outcomes = sent_by(server.config("orders").with_message_bytes_max(262_144), &records, &CX).await;
    for at in 0..10 {
        assert_eq!(is_sent(&outcomes, at), at != 4, "record {at}");
    }
    let Outcome::Failed(error) = outcomes.outcome(4) else { panic!("{outcomes:?}") };
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Permanent, ErrorScope::Record));
    // It never went to the wire.
    assert!(bodies(&server).iter().flatten().all(|body| body.len() < 300_000));
}

#[tokio::test]
async fn a_request_refused_as_too_long_goes_record_by_record() {
    let server = Scripted::start().await;
    server.book.lock().unwrap().bytes_max = Some(1_000);
    let records = [record("1".repeat(600)), record("2".repeat(600)), record("3".repeat(1_001))];
    let outcomes = sent_by(server.config("orders"), &records, &CX).await;
    assert!(is_sent(&outcomes, 0) && is_sent(&outcomes, 1), "{outcomes:?}");
    let Outcome::Failed(error) = outcomes.outcome(2) else { panic!("{outcomes:?}") };
    assert_eq!(error.kind(), SendErrorKind::Permanent);
    assert_eq!(bodies(&server).len(), 4);
}

#[tokio::test]
async fn a_fifo_request_holds_one_record_of_a_group_even_when_keys_are_pipelined() {
    let server = Scripted::start().await;
    let mut records = ten();
    for (at, record) in records.iter_mut().enumerate() {
        record.key = Some(["a", "b"][at % 2].into());
    }
    let outcomes = sent_by(server.config("orders.fifo"), &records, &CX.with_pipelined_keys()).await;
    assert!((0..10).all(|at| is_sent(&outcomes, at)), "{outcomes:?}");
    assert_eq!(bodies(&server), [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"], ["8", "9"]]);
}

#[tokio::test]
async fn pipelined_keys_fill_a_request_of_a_standard_queue() {
    let server = Scripted::start().await;
    let mut records = ten();
    for record in &mut records {
        record.key = Some("a".into());
    }
    let outcomes = sent_by(server.config("orders"), &records, &CX.with_pipelined_keys()).await;
    assert!((0..10).all(|at| is_sent(&outcomes, at)), "{outcomes:?}");
    assert_eq!(bodies(&server).len(), 1);
}

#[tokio::test]
async fn a_record_dead_before_it_is_sent_holds_back_its_key() {
    let server = Scripted::start().await;
    let mut records = [record("0"), record(""), record("2"), record("3")];
    for record in &mut records[..3] {
        record.key = Some("k".into());
    }
    let outcomes = sent_by(server.config("orders"), &records, &CX).await;
    assert!(is_sent(&outcomes, 0) && is_sent(&outcomes, 3), "{outcomes:?}");
    assert!(matches!(outcomes.outcome(1), Outcome::Failed(_)));
    assert!(matches!(outcomes.outcome(2), Outcome::NotAttempted));
}

#[tokio::test]
async fn an_entry_without_a_word_stays_unknown_and_holds_back_its_key() {
    let server = Scripted::start().await;
    server.book.lock().unwrap().silent_on = vec!["0".into()];
    let mut records = [record("0"), record("1"), record("2")];
    for record in &mut records[..2] {
        record.key = Some("k".into());
    }
    let outcomes = sent_by(server.config("orders"), &records, &CX).await;
    assert!(!outcomes.is_settled(0) && is_sent(&outcomes, 2), "{outcomes:?}");
    assert!(matches!(outcomes.outcome(1), Outcome::NotAttempted));
}

/// K4: the SDK repeats nothing by itself.
#[tokio::test]
async fn a_failure_is_asked_for_once() {
    for (status, code) in
        [(500, "InternalFailure"), (503, "ServiceUnavailable"), (400, "ThrottlingException")]
    {
        let server = Scripted::start().await;
        server.book.lock().unwrap().refuse = Some((status, code));
        let own = SqsSink::connect(server.config("orders")).unwrap();
        let retrying = sink_sqs::aws_sdk_sqs::Client::from_conf(
            sink_sqs::aws_sdk_sqs::Config::builder()
                .behavior_version(sink_sqs::aws_sdk_sqs::config::BehaviorVersion::v2026_01_12())
                .endpoint_url(format!("http://{}", server.address))
                .region(sink_sqs::aws_sdk_sqs::config::Region::new("eu-central-1"))
                .credentials_provider(sink_sqs::aws_sdk_sqs::config::Credentials::new(
                    "a", "b", None, None, "t",
                ))
                .build(),
        );
        let given = SqsSink::from_client(&retrying, SqsConfig::new("orders")).unwrap();
        for (so_far, sink) in [own, given].into_iter().enumerate() {
            sink.send(&record("1"), &CX).await.expect_err(code);
            assert_eq!(server.book.lock().unwrap().batches.len(), so_far + 1, "{code}");
        }
    }
}

#[tokio::test]
async fn refused_credentials_and_a_throttled_queue_cost_no_attempt() {
    for (code, kind, scope) in [
        ("InvalidClientTokenId", SendErrorKind::Unavailable, ErrorScope::Sink),
        ("AccessDeniedException", SendErrorKind::Unavailable, ErrorScope::Destination),
        ("RequestThrottled", SendErrorKind::Throttled, ErrorScope::Destination),
        ("QueueDoesNotExist", SendErrorKind::Unavailable, ErrorScope::Destination),
    ] {
        let server = Scripted::start().await;
        server.book.lock().unwrap().refuse = Some((403, code));
        let sink = SqsSink::connect(server.config("orders")).unwrap();
        for error in
            [sink.send(&record("1"), &CX).await.expect_err(code), sink.check().await.expect_err(code)]
        {
            assert_eq!((error.kind(), error.scope()), (kind, scope), "{error}");
            assert!(!error.to_string().contains("said with"), "{error}");
        }
    }
}

#[tokio::test]
async fn without_time_nothing_is_sent() {
    let server = Scripted::start().await;
    let outcomes = sent_by(server.config("orders"), &ten(), &SendContext::new(Duration::ZERO)).await;
    assert!((0..10).all(|at| matches!(outcomes.outcome(at), Outcome::NotAttempted)), "{outcomes:?}");
    assert_eq!(server.book.lock().unwrap().asked, 0);
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_counted_and_one_that_was_never_asked_for_is_not() {
    let server = Scripted::start().await;
    server.book.lock().unwrap().fault = Some(outbox_core::conformance::sink::Fault::Held);
    let sink = SqsSink::connect(server.config("orders")).unwrap();
    let short = SendContext::new(Duration::from_millis(300));
    let error = sink.send(&record("1"), &short).await.expect_err("no answer");
    assert_eq!(error.kind(), SendErrorKind::Transient, "{error}");

    server.down().await;
    let error = sink.send(&record("1"), &CX).await.expect_err("no connection");
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Sink), "{error}");
    assert_eq!(sink.check().await.expect_err("no connection").kind(), SendErrorKind::Unavailable);
}

#[tokio::test]
async fn credentials_that_cannot_be_had_cost_no_attempt() {
    use sink_sqs::aws_sdk_sqs::{
        Client, Config,
        config::{BehaviorVersion, Region},
    };
    let server = Scripted::start().await;
    let without = Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .endpoint_url(format!("http://{}", server.address))
        .region(Region::new("eu-central-1"))
        .build();
    let sink = SqsSink::from_client(&Client::from_conf(without), SqsConfig::new("orders")).unwrap();
    let error = sink.send(&record("1"), &CX).await.expect_err("no credentials");
    assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Sink), "{error}");
    assert_eq!(server.book.lock().unwrap().asked, 0);
}

#[tokio::test]
async fn the_receipt_is_the_message_id() {
    let server = Scripted::start().await;
    let sink = SqsSink::connect(server.config("http://sqs.example/1/orders")).unwrap();
    assert_eq!(sink.send(&record("1"), &CX).await.unwrap(), Receipt::new("message m-\"0\""));
    // The URL was given, so none was asked for.
    assert_eq!(server.book.lock().unwrap().asked, 1);
}
