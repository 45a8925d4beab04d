//! The server that `cargo xtask test` has started, and what tests ask of it beside the sink.

use outbox_core::{Payload, Record, Uuid};
use sink_sqs::{
    SqsConfig, SqsCredentials,
    aws_sdk_sqs::{
        Client,
        config::{BehaviorVersion, Credentials, Region},
        types::{Message, MessageSystemAttributeName, QueueAttributeName},
    },
};

/// Where the server is. Without it the test is skipped, unless services are required.
pub(crate) fn url() -> Option<String> {
    const VARIABLE: &str = "OUTBOX_TEST_SQS_URL";
    let found = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    let is_set = |name: &str, to: &str| std::env::var(name).is_ok_and(|value| value == to);
    if found.is_none() {
        assert!(
            !is_set("CI", "true") && !is_set("OUTBOX_TEST_REQUIRE_SERVICES", "1"),
            "{VARIABLE} is not set, and services are required"
        );
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: {VARIABLE} is not set; `cargo xtask test` sets it\n"),
        );
    }
    found
}

/// A queue of a test's own.
pub(crate) struct OwnQueue {
    endpoint: String,
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) client: Client,
}

impl OwnQueue {
    pub(crate) async fn new(is_fifo: bool) -> Option<Self> {
        let endpoint = url()?;
        let config = sink_sqs::aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .endpoint_url(&endpoint)
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("AKIDEXAMPLE", "none", None, None, "test"))
            .build();
        let client = Client::from_conf(config);
        let name = format!("q-{}{}", Uuid::now_v7(), if is_fifo { ".fifo" } else { "" });
        let mut create = client.create_queue().queue_name(&name);
        if is_fifo {
            create = create.attributes(QueueAttributeName::FifoQueue, "true");
        }
        let url = create.send().await.unwrap().queue_url.unwrap();
        Some(Self { endpoint, name, url, client })
    }

    pub(crate) fn config(&self, queue: &str) -> SqsConfig {
        SqsConfig::new(queue)
            .with_endpoint(&self.endpoint)
            .with_region("eu-central-1")
            .with_credentials(SqsCredentials::new("AKIDEXAMPLE", crate::scripted::SECRET))
    }

    /// Takes all that the queue holds, in the order in which it hands it out.
    pub(crate) async fn take(&self) -> Vec<Message> {
        let mut taken = Vec::new();
        loop {
            let request = self.client.receive_message().queue_url(&self.url).max_number_of_messages(10);
            let request = request
                .message_attribute_names("All")
                .message_system_attribute_names(MessageSystemAttributeName::All);
            let messages = request.send().await.unwrap().messages.unwrap_or_default();
            if messages.is_empty() {
                return taken;
            }
            for message in messages {
                let handle = message.receipt_handle.clone().unwrap();
                self.client
                    .delete_message()
                    .queue_url(&self.url)
                    .receipt_handle(handle)
                    .send()
                    .await
                    .unwrap();
                taken.push(message);
            }
        }
    }
}

pub(crate) fn record(payload: impl Into<String>) -> Record {
    Record::new(1, Uuid::now_v7(), "order.placed", Payload::Json(payload.into()))
}

/// A text attribute of a message.
pub(crate) fn attribute<'m>(message: &'m Message, name: &str) -> Option<&'m str> {
    message.message_attributes.as_ref()?.get(name)?.string_value()
}

/// What SQS itself says of a message.
pub(crate) fn said(message: &Message, name: MessageSystemAttributeName) -> Option<&str> {
    message.attributes.as_ref()?.get(&name).map(String::as_str)
}
