//! A server of the tests' own that reads the JSON protocol of SQS by itself and fails as it is told.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use outbox_core::{
    Uuid,
    conformance::sink::{Fault, Received},
};
use serde_json::{Value, json};
use sink_sqs::{SqsConfig, SqsCredentials};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

pub(crate) const SECRET: &str = "secret-key-not-to-be-shown";

/// What the server has seen and is told to do.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) received: Vec<Received>,
    /// The entries of each batch that was asked for, taken or not.
    pub(crate) batches: Vec<Vec<Value>>,
    /// Requests of any kind.
    pub(crate) asked: usize,
    pub(crate) fault: Option<Fault>,
    pub(crate) fault_of: HashMap<Uuid, Fault>,
    /// Status and code with which every batch is refused.
    pub(crate) refuse: Option<(u16, &'static str)>,
    /// The code with which these bodies are refused, each in its entry.
    pub(crate) refuse_bodies: HashMap<String, (&'static str, bool)>,
    /// The most bytes of bodies in a request; more, and the whole request is refused.
    pub(crate) bytes_max: Option<usize>,
    /// Says nothing about these bodies.
    pub(crate) silent_on: Vec<String>,
}

pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    pub(crate) book: Arc<Mutex<Book>>,
    /// The listener and its connections; none while it is down.
    serving: Mutex<Option<JoinSet<()>>>,
}

impl Scripted {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, book) = (listener.local_addr().unwrap(), Arc::default());
        let serving = Mutex::new(Some(serve(listener, Arc::clone(&book))));
        Self { address, book, serving }
    }

    pub(crate) fn config(&self, queue: &str) -> SqsConfig {
        SqsConfig::new(queue)
            .with_endpoint(format!("http://{}", self.address))
            .with_region("eu-central-1")
            .with_credentials(SqsCredentials::new("AKIDEXAMPLE", SECRET))
    }

    pub(crate) async fn down(&self) {
        let serving = self.serving.lock().unwrap().take();
        if let Some(mut serving) = serving {
            // Waits until the sockets are closed.
            serving.shutdown().await;
        }
    }

    pub(crate) async fn up(&self) {
        if self.serving.lock().unwrap().is_none() {
            let listener = TcpListener::bind(self.address).await.unwrap();
            *self.serving.lock().unwrap() = Some(serve(listener, Arc::clone(&self.book)));
        }
    }
}

/// Dropping what it returns closes the listener and every connection.
fn serve(listener: TcpListener, book: Arc<Mutex<Book>>) -> JoinSet<()> {
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(converse(stream, Arc::clone(&book)));
        }
    });
    serving
}

/// Answers the requests of one connection until one of the two has enough.
async fn converse(stream: TcpStream, book: Arc<Mutex<Book>>) {
    let mut stream = BufReader::new(stream);
    while let Some((operation, body)) = request(&mut stream).await {
        let answer = match operation.as_str() {
            "AmazonSQS.SendMessageBatch" => batch(&body, &mut book.lock().unwrap()),
            _ => asked(&operation, &body, &mut book.lock().unwrap()),
        };
        let (status, answer) = match answer {
            Answer::Is(status, answer) => (status, answer.to_string()),
            Answer::Held => std::future::pending().await,
            Answer::Cut => return,
        };
        let head = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        if stream.get_mut().write_all(format!("{head}{answer}").as_bytes()).await.is_err() {
            return;
        }
    }
}

enum Answer {
    Is(u16, Value),
    Held,
    Cut,
}

fn refusal(status: u16, code: &str) -> Answer {
    Answer::Is(
        status,
        json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": "said with the payload"}),
    )
}

/// Look-ups, which fail only when everything does.
fn asked(operation: &str, body: &Value, book: &mut Book) -> Answer {
    book.asked += 1;
    match operation {
        "AmazonSQS.GetQueueUrl" => {
            let name = body["QueueName"].as_str().unwrap_or_default();
            if name.starts_with("missing") {
                return refusal(400, "QueueDoesNotExist");
            }
            Answer::Is(200, json!({"QueueUrl": format!("http://sqs.example/123456789012/{name}")}))
        }
        "AmazonSQS.GetQueueAttributes" => match book.refuse {
            Some((status, code)) => refusal(status, code),
            None => Answer::Is(200, json!({"Attributes": {"QueueArn": "arn:aws:sqs:::orders"}})),
        },
        _ => refusal(400, "UnsupportedOperation"),
    }
}

/// A batch, answered entry by entry.
fn batch(body: &Value, book: &mut Book) -> Answer {
    book.asked += 1;
    let entries = body["Entries"].as_array().cloned().unwrap_or_default();
    book.batches.push(entries.clone());
    if let Some((status, code)) = book.refuse {
        return refusal(status, code);
    }
    match book.fault {
        Some(Fault::RefusedForever) => return refusal(400, "InvalidMessageContents"),
        Some(Fault::RefusedForNow) => return refusal(500, "InternalFailure"),
        Some(Fault::Throttled) => return refusal(400, "RequestThrottled"),
        Some(Fault::Held) => return Answer::Held,
        Some(_) => return Answer::Cut,
        None => {}
    }
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let bytes: usize = entries.iter().map(|entry| text(entry, "MessageBody").len()).sum();
    if book.bytes_max.is_some_and(|max| bytes > max) {
        return refusal(400, "BatchRequestTooLong");
    }
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for entry in &entries {
        let (id, body) = (entry["Id"].clone(), text(entry, "MessageBody"));
        let attributes = entry["MessageAttributes"].as_object().cloned().unwrap_or_default();
        let record = entry["MessageDeduplicationId"]
            .as_str()
            .or_else(|| attributes.get("outbox-id")?["StringValue"].as_str())
            .and_then(|id| id.parse::<Uuid>().ok());
        let fault = match record.and_then(|id| book.fault_of.get(&id)) {
            Some(Fault::RefusedForever) => Some(("InvalidParameterValue", true)),
            Some(Fault::Throttled) => Some(("RequestThrottled", true)),
            Some(_) => Some(("InternalError", false)),
            None => book.refuse_bodies.get(&body).copied(),
        };
        if let Some((code, senders)) = fault {
            failed.push(json!({"Id": id, "Code": code, "SenderFault": senders, "Message": body}));
        } else if !book.silent_on.contains(&body) {
            book.received.push(Received::new(record, attributes.keys().cloned()));
            successful.push(json!({"Id": id, "MessageId": format!("m-{id}"), "MD5OfMessageBody": "0"}));
        }
    }
    Answer::Is(200, json!({"Successful": successful, "Failed": failed}))
}

/// One request: its operation and its body. None when the connection ends, or what comes is no such request.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, Value)> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    if line != "POST / HTTP/1.1\r\n" {
        return None;
    }
    let (mut operation, mut length) = (String::new(), None);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        if line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "x-amz-target" => operation = value.trim().to_owned(),
            "content-length" => length = value.trim().parse().ok(),
            _ => {}
        }
    }
    let mut body = vec![0; length?];
    stream.read_exact(&mut body).await.ok()?;
    Some((operation, serde_json::from_slice(&body).ok()?))
}
