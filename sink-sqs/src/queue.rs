//! Queues: what names one, and the URLs that names were found to stand for.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// The most names whose URLs are kept; at more, all are looked up again.
const NAMES_MAX: usize = 1_024;

/// A queue as a record or the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    named: String,
    pub(crate) is_fifo: bool,
}

impl Queue {
    /// Reads a name, or a URL that ends with one.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let name = match text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) {
            Some(rest) => {
                if !rest.bytes().all(|byte| byte.is_ascii_graphic()) || rest.contains(['?', '#', '@']) {
                    return Err("the queue's URL is none");
                }
                rest.rsplit_once('/').map(|(_, name)| name).ok_or("the queue's URL names no queue")?
            }
            None => text,
        };
        let is_fifo = name.ends_with(".fifo");
        let stem = name.strip_suffix(".fifo").unwrap_or(name);
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if stem.is_empty() || name.len() > 80 || !stem.bytes().all(allowed) {
            return Err(
                "the queue's name is none: 1 to 80 letters, digits, `-` and `_`, with `.fifo` for FIFO",
            );
        }
        Ok(Self { named: text.to_owned(), is_fifo })
    }

    /// The URL, when that is what was given.
    pub(crate) fn url(&self) -> Option<&str> {
        self.named.contains("://").then_some(&*self.named)
    }

    /// The name, when that is what was given.
    pub(crate) fn name(&self) -> &str {
        &self.named
    }
}

/// URLs that were looked up, by the queue's name.
#[derive(Debug, Default)]
pub(crate) struct Urls(Mutex<HashMap<String, String>>);

impl Urls {
    pub(crate) fn get(&self, queue: &Queue) -> Option<String> {
        match queue.url() {
            Some(url) => Some(url.to_owned()),
            None => self.0.lock().unwrap_or_else(PoisonError::into_inner).get(queue.name()).cloned(),
        }
    }

    pub(crate) fn keep(&self, queue: &Queue, url: &str) {
        let mut urls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if urls.len() >= NAMES_MAX {
            urls.clear();
        }
        urls.insert(queue.name().to_owned(), url.to_owned());
    }

    /// The queue is gone: one made anew may have another URL.
    pub(crate) fn forget(&self, queue: &Queue) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(queue.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_a_name_or_a_url_that_ends_with_one() {
        for (text, is_url, is_fifo) in [
            ("orders", false, false),
            ("orders.fifo", false, true),
            ("https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo", true, true),
            ("http://127.0.0.1:5000/123456789012/orders_v-2", true, false),
        ] {
            let queue = Queue::parse(text).unwrap();
            assert_eq!((queue.url().is_some(), queue.is_fifo), (is_url, is_fifo), "{text}");
        }
        let long = "q".repeat(81);
        for text in [
            "",
            ".fifo",
            "a.b",
            "a b",
            "a/b",
            "ö",
            &long,
            "https://",
            "https://x/",
            "https://x/a b/c",
            "https://x/?/c",
        ] {
            assert!(Queue::parse(text).is_err(), "{text:?}");
        }
    }
}
