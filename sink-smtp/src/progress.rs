//! What is kept of a record between attempts: who has the mail, and who is refused for good.

use lettre::Address;
use outbox_core::{Receipt, Record, SendError};
use serde::{Deserialize, Serialize};

use crate::{
    OnRefused,
    dialogue::{Fate, Transaction},
    error::{Cause, Failure, Reply, Stage},
};

/// How many recipients an error or a receipt says something about.
const NAMED_MAX: usize = 5;

/// Kept as JSON in the outbox, beside the payload that holds the same addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Progress {
    /// Who has the mail.
    accepted: Vec<String>,
    /// Who is refused for good.
    refused: Vec<Refused>,
    /// What the server answered when it took the mail.
    replies: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Refused {
    to: String,
    reply: String,
}

impl Progress {
    /// What earlier attempts have left.
    pub(crate) fn of(record: &Record) -> Result<Self, SendError> {
        match &record.progress {
            // Read as empty it would mail everybody again.
            Some(kept) => Self::deserialize(kept).map_err(|_| {
                SendError::permanent(
                    "the record's progress is not one of this sink: nobody can tell who has the mail",
                )
            }),
            None => Ok(Self::default()),
        }
    }

    /// Whether nothing is left to do for this recipient.
    pub(crate) fn is_settled(&self, to: &Address) -> bool {
        let to: &str = to.as_ref();
        self.accepted.iter().any(|accepted| accepted == to)
            || self.refused.iter().any(|refused| refused.to == to)
    }

    /// Adds how a transaction ended for these recipients. Whether anything is new.
    pub(crate) fn add(&mut self, to: &[Address], ended: &Transaction) -> bool {
        let mut is_new = false;
        for (to, fate) in to.iter().zip(&ended.fates) {
            match fate {
                Fate::Accepted => self.accepted.push(to.to_string()),
                Fate::Refused(stage, reply) => {
                    self.refused.push(Refused { to: to.to_string(), reply: at_stage(*stage, reply) });
                }
                Fate::Later(..) | Fate::Undecided => continue,
            }
            is_new = true;
        }
        if let Some(reply) = ended.accepted.as_ref().filter(|_| self.replies.len() < NAMED_MAX) {
            self.replies.push(reply.to_string());
        }
        is_new
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// How the record ends once every recipient is settled.
    pub(crate) fn end(&self, everyone: &[Address], on_refused: OnRefused) -> Result<Receipt, SendError> {
        let refused = self.refused_text(everyone);
        if self.accepted.is_empty() || (!self.refused.is_empty() && on_refused == OnRefused::Dead) {
            return Err(SendError::permanent(refused));
        }
        let mut text = self.replies.join(" | ");
        if !self.refused.is_empty() {
            text.push_str("; ");
            text.push_str(&refused);
        }
        Ok(Receipt::new(text))
    }

    /// Recipients are named by their place: an address has no business in a log.
    fn refused_text(&self, everyone: &[Address]) -> String {
        let places = self.refused.iter().map(|refused| {
            let place = everyone.iter().position(|to| AsRef::<str>::as_ref(to) == refused.to);
            (place, refused.reply.clone())
        });
        summary("refused", everyone.len(), self.refused.len(), places)
    }
}

/// That some are to be tried again, and why.
pub(crate) fn later(everyone: &[Address], put_off: &[(Address, Failure)]) -> String {
    let places = put_off.iter().map(|(to, failure)| {
        let why = match &failure.cause {
            Cause::Refused(reply) => at_stage(failure.stage, reply),
            _ => failure.to_string(),
        };
        (everyone.iter().position(|known| known == to), why)
    });
    summary("put off", everyone.len(), put_off.len(), places)
}

fn at_stage(stage: Stage, reply: &Reply) -> String {
    format!("{reply} (at {stage})")
}

fn summary(
    what: &str,
    everyone: usize,
    some: usize,
    places: impl Iterator<Item = (Option<usize>, String)>,
) -> String {
    let mut text = format!("{some} of {everyone} recipients {what}");
    for (place, reply) in places.take(NAMED_MAX) {
        match place {
            Some(place) => text.push_str(&format!("; recipient {}: {reply}", place + 1)),
            None => text.push_str(&format!("; {reply}")),
        }
    }
    if some > NAMED_MAX {
        text.push_str("; …");
    }
    text
}
