//! Says what happens, when it happens.

use std::time::Instant;

#[derive(Clone, Debug)]
pub(crate) struct Timeline(Instant);

impl Timeline {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn say(&self, who: &str, what: &str) {
        println!("{:7.3} s  {who:<8}  {what}", self.0.elapsed().as_secs_f64());
    }
}
