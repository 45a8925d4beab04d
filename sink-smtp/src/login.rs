//! Logging in: `AUTH PLAIN`, `LOGIN` and `XOAUTH2`.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use lettre::transport::smtp::authentication::Mechanism;
use tokio::time::{Instant, timeout_at};

use crate::{
    Credentials, TokenSource,
    dialogue::Connection,
    error::{Cause, Failure, Stage},
};

impl Connection {
    pub(crate) async fn log_in(
        &mut self,
        credentials: &Credentials,
        tokens: Option<&dyn TokenSource>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let offers = |mechanism| self.smtp.server_info().supports_auth_mechanism(mechanism);
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let (first, answers) = match credentials {
            Credentials::Password { user, password } if offers(Mechanism::Plain) => {
                (format!("AUTH PLAIN {}", encode(&format!("\0{user}\0{password}"))), vec![])
            }
            // What the server asks for is not looked at: each spells it in its own way, and the order
            // is always the same.
            Credentials::Password { user, password } if offers(Mechanism::Login) => {
                ("AUTH LOGIN".to_owned(), vec![encode(user), encode(password)])
            }
            Credentials::Password { .. } => {
                return Err(Failure::new(Stage::Auth, Cause::Missing("AUTH PLAIN or LOGIN")));
            }
            Credentials::OAuth2 { user, token } if offers(Mechanism::Xoauth2) => {
                let fresh = match tokens {
                    Some(tokens) => match timeout_at(deadline, tokens.token()).await {
                        Ok(Ok(token)) => token,
                        _ => return Err(Failure::new(Stage::Auth, Cause::NoToken)),
                    },
                    None => token.clone(),
                };
                let response = encode(&format!("user={user}\x01auth=Bearer {fresh}\x01\x01"));
                // An error comes as a question; only an empty answer to it brings the refusal.
                (format!("AUTH XOAUTH2 {response}"), vec![String::new()])
            }
            Credentials::OAuth2 { .. } => {
                return Err(Failure::new(Stage::Auth, Cause::Missing("AUTH XOAUTH2")));
            }
        };
        let mut answers = answers.into_iter();
        let mut say = first;
        loop {
            let response = self.command(deadline, Stage::Auth, Line(&say)).await?;
            match (u16::from(response.code()), answers.next()) {
                (200..=299, _) => return Ok(()),
                (334, Some(answer)) => say = answer,
                _ => return Err(Failure::new(Stage::Auth, Cause::Garbled)),
            }
        }
    }
}

/// A line of text as a command.
struct Line<'a>(&'a str);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\r\n", self.0)
    }
}
