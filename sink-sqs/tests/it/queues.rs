//! What arrives in queues of a server that others have written.

use std::time::Duration;

use outbox_core::{
    ErrorScope, MemoryStore, NewRecord, Operate, Payload, SendContext, SendErrorKind, Sink, State,
    relay::Relay,
};
use sink_sqs::{SqsConfig, SqsErrorKind, SqsSink, aws_sdk_sqs::types::MessageSystemAttributeName};

use crate::service::{OwnQueue, attribute, record, said};

const CX: SendContext = SendContext::new(Duration::from_secs(10));

#[tokio::test]
async fn payload_and_headers_arrive_as_they_were() {
    let Some(queue) = OwnQueue::new(false).await else { return };
    let sink = SqsSink::connect(queue.config(&queue.name)).unwrap();
    let mut json = record("{\"n\": 1.10, \"text\": \"grün 📦 \\\"<&>\\\"\"}");
    json.headers.insert("traceparent".into(), "00-1".into());
    sink.send(&json, &CX).await.unwrap();
    let [message] = &queue.take().await[..] else { panic!("one message") };
    assert_eq!(message.body().unwrap().as_bytes(), json.payload.as_bytes());
    for (name, value) in [
        ("outbox-id", json.id.to_string().as_str()),
        ("outbox-kind", "order.placed"),
        ("content-type", "application/json"),
        ("traceparent", "00-1"),
    ] {
        assert_eq!(attribute(message, name), Some(value), "{name}");
    }

    let mut bytes = record("");
    bytes.payload = Payload::Bytes(vec![0, 1, 254, 255]);
    sink.send(&bytes, &CX).await.unwrap();
    let [message] = &queue.take().await[..] else { panic!("one message") };
    assert_eq!((message.body(), attribute(message, "outbox-encoding")), (Some("AAH+/w=="), Some("base64")));
}

#[tokio::test]
async fn a_fifo_queue_drops_what_is_sent_again_and_keeps_the_order_of_a_key() {
    let Some(queue) = OwnQueue::new(true).await else { return };
    let sink = SqsSink::connect(queue.config(&queue.url)).unwrap();
    let mut records: Vec<_> = (0..6).map(|n| record(n.to_string())).collect();
    for record in &mut records {
        record.key = Some("order 17".into());
    }
    for _ in 0..2 {
        let mut outcomes = outbox_core::Outcomes::new(records.len());
        sink.send_batch(&records, &CX, &mut outcomes).await;
        assert!(
            (0..6).all(|at| matches!(outcomes.outcome(at), outbox_core::Outcome::Sent(_))),
            "{outcomes:?}"
        );
    }
    let messages = queue.take().await;
    let bodies: Vec<_> = messages.iter().filter_map(|message| message.body()).collect();
    assert_eq!(bodies, ["0", "1", "2", "3", "4", "5"]);
    let group = said(&messages[0], MessageSystemAttributeName::MessageGroupId).unwrap();
    assert_eq!(group.len(), 64, "the key holds a blank, which no group may: {group}");
}

#[tokio::test]
async fn each_record_goes_to_the_queue_that_is_its_destination() {
    let (Some(one), Some(other)) = (OwnQueue::new(false).await, OwnQueue::new(true).await) else { return };
    let sink = SqsSink::connect(one.config(&one.name)).unwrap();
    let mut records: Vec<_> = (0..9).map(|n| record(n.to_string())).collect();
    for (at, record) in records.iter_mut().enumerate() {
        record.destination = [None, Some(other.name.clone()), Some(other.url.clone())][at % 3].clone();
    }
    let mut outcomes = outbox_core::Outcomes::new(records.len());
    sink.send_batch(&records, &CX, &mut outcomes).await;
    for (queue, expected) in [(&one, vec!["0", "3", "6"]), (&other, vec!["1", "2", "4", "5", "7", "8"])] {
        let messages = queue.take().await;
        let mut bodies: Vec<_> = messages.iter().filter_map(|message| message.body()).collect();
        bodies.sort_unstable();
        assert_eq!(bodies, expected);
    }
}

#[tokio::test]
async fn a_missing_or_deleted_queue_is_a_destination_that_is_down_until_it_is_made() {
    let Some(queue) = OwnQueue::new(false).await else { return };
    let named = SqsSink::connect(queue.config(&queue.name)).unwrap();
    let by_url = SqsSink::connect(queue.config(&queue.url)).unwrap();
    for sink in [&named, &by_url] {
        sink.check().await.unwrap();
        sink.send(&record("1"), &CX).await.unwrap();
    }
    queue.client.delete_queue().queue_url(&queue.url).send().await.unwrap();
    for sink in [&named, &by_url] {
        // Twice: with the URL still known, and after it was forgotten.
        for _ in 0..2 {
            let error = sink.send(&record("2"), &CX).await.expect_err("there is no queue");
            assert_eq!((error.kind(), error.scope()), (SendErrorKind::Unavailable, ErrorScope::Destination));
        }
        let error = sink.check().await.expect_err("there is no queue");
        assert_eq!(error.kind(), SendErrorKind::Unavailable, "{error}");
    }
    queue.client.create_queue().queue_name(&queue.name).send().await.unwrap();
    for sink in [&named, &by_url] {
        sink.check().await.unwrap();
        sink.send(&record("3"), &CX).await.unwrap();
    }
}

#[tokio::test]
async fn a_delay_hides_messages() {
    let Some(queue) = OwnQueue::new(false).await else { return };
    let config = queue.config(&queue.name).with_delay(Duration::from_secs(600));
    SqsSink::connect(config).unwrap().send(&record("1"), &CX).await.unwrap();
    assert!(queue.take().await.is_empty());
}

#[tokio::test]
async fn a_relay_sends_through_it_and_waits_for_a_queue_that_is_not_there() {
    let Some(queue) = OwnQueue::new(false).await else { return };
    let outbox = MemoryStore::new();
    let mut ids = Vec::new();
    for n in 0..50 {
        let missing = n == 0;
        let record = NewRecord::json("order", &n).unwrap().key((n % 7).to_string());
        let record = if missing { record.destination("not-there").key("alone") } else { record };
        ids.push(record.id);
        let mut tx = outbox.begin();
        outbox.enqueue(&mut tx, record).await.unwrap();
        tx.commit();
    }
    let (last, watched) = (ids.clone(), outbox.clone());
    let sink = SqsSink::connect(queue.config(&queue.name)).unwrap();
    let done = async move {
        for _ in 0..400 {
            let mut sent = 0;
            for id in &last {
                let (view, _) = watched.show(*id).await.unwrap().unwrap();
                sent += usize::from(view.state == State::Sent);
            }
            if sent == 49 {
                return;
            }
            // real time: the server is another process.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    Relay::new(outbox.clone()).route("order", sink).run(done).await.unwrap();
    let (view, _) = outbox.show(ids[0]).await.unwrap().unwrap();
    assert_eq!((view.state, view.attempts), (State::Pending, 0));
    assert_eq!(queue.take().await.len(), 49);
}

#[test]
fn a_configuration_out_of_range_is_refused() {
    let second = Duration::from_secs(1);
    for (config, kind) in [
        (SqsConfig::new("or ders"), SqsErrorKind::Queue),
        (SqsConfig::new("orders").with_message_bytes_max(1_048_577), SqsErrorKind::Setting),
        (SqsConfig::new("orders").with_message_bytes_max(1_023), SqsErrorKind::Setting),
        (SqsConfig::new("orders").with_delay(901 * second), SqsErrorKind::Setting),
        (SqsConfig::new("orders").with_delay(second / 2), SqsErrorKind::Setting),
        (SqsConfig::new("orders.fifo").with_delay(second), SqsErrorKind::Setting),
    ] {
        assert_eq!(SqsSink::connect(config).expect_err("out of range").kind(), kind);
    }
}
