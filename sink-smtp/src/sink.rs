//! The sink: one record is one mail, and each of its recipients has an end of its own.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lettre::{
    Address,
    transport::smtp::{
        client::{Certificate, TlsParameters},
        extension::ClientId,
    },
};
use outbox_core::{Outcomes, Receipt, Record, SendContext, SendError, Sink, SinkLimits, async_trait};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    SmtpConfig, SmtpError, Tls, TokenSource,
    dialogue::{Fate, Server, Transaction, after},
    dkim::Signer,
    error::{Failure, Reply, Stage},
    message::Outgoing,
    pool::{InUse, Pool},
    progress::{self, Progress},
    text,
};

/// How often one attempt opens another connection because the server closed the one in use.
const RECONNECTS_MAX: u32 = 3;

/// Sends records as mail through one SMTP server.
///
/// # Contract
///
/// A record is sent once every recipient is settled and at least one has the mail. Recipients that
/// have it are kept in [`Record::progress`] and are not mailed again; those refused for now are tried
/// again alone. See the crate's front page for what a crash can repeat.
pub struct SmtpSink {
    pool: Pool,
    config: SmtpConfig,
    signer: Option<Signer>,
}

impl SmtpSink {
    /// A sink for the server that `config` names. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// When the configuration cannot hold, such as credentials without TLS.
    pub fn connect(config: SmtpConfig) -> Result<Self, SmtpError> {
        if config.host.is_empty() {
            return Err(SmtpError::new("host is empty"));
        }
        if config.credentials.is_some() && config.tls == Tls::Off && !config.allow_plain_credentials {
            return Err(SmtpError::new("credentials would go over the wire in plain text"));
        }
        if config.connect_timeout.is_zero() {
            return Err(SmtpError::new("connect_timeout is zero"));
        }
        let hello = match &config.hello_name {
            Some(name) => {
                text::token("hello_name", name, 255).map_err(|error| SmtpError::new(error.to_string()))?;
                ClientId::Domain(name.clone())
            }
            None => ClientId::default(),
        };
        let tls_parameters = match config.tls {
            Tls::Off => None,
            Tls::StartTls | Tls::Implicit => Some(tls_parameters(&config)?),
        };
        let server = Server {
            host: config.host.clone(),
            port: config.port(),
            tls: config.tls,
            tls_parameters,
            hello,
            credentials: config.credentials.clone(),
            tokens: None,
            connect_timeout: config.connect_timeout,
        };
        let signer = config.dkim.as_ref().map(Signer::new).transpose()?;
        Ok(Self { pool: Pool::new(server, &config), config, signer })
    }

    /// Asks `tokens` for an access token at every new connection, instead of using that of
    /// [`Credentials::OAuth2`](crate::Credentials::OAuth2). Other logins ask for none.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Arc<dyn TokenSource>) -> Self {
        self.pool.server.tokens = Some(tokens);
        self
    }

    /// Sends one record; `keep` gets its progress as soon as there is any.
    async fn deliver(
        &self,
        record: &Record,
        cx: &SendContext,
        keep: &mut (dyn FnMut(Value) + Send),
    ) -> Result<Receipt, SendError> {
        // A little less than the relay allows: its own end of the send would not say where it stood.
        let deadline = after(cx.timeout - (cx.timeout / 10).min(Duration::from_millis(500)));
        let mut progress = Progress::of(record)?;
        let mail = Outgoing::of(record, self.signer.as_ref())?;
        let bytes = mail.bytes.len();
        if bytes > self.config.message_bytes_max {
            let bytes_max = self.config.message_bytes_max;
            return Err(SendError::permanent(format!(
                "the mail has {bytes} bytes, more than the {bytes_max} allowed"
            )));
        }
        let mut left: Vec<Address> = mail.to.iter().filter(|to| !progress.is_settled(to)).cloned().collect();
        let mut put_off: Vec<(Address, Failure)> = Vec::new();
        if !left.is_empty() {
            let mut lane = Lane { pool: &self.pool, deadline, in_use: None, mails: 0, reconnects: 0 };
            while !left.is_empty() {
                let next = &left[..left.len().min(self.config.recipients_max.get())];
                let ended = match lane.transact(&mail, next).await {
                    Ok(ended) => ended,
                    Err(failure) => return Err(with_progress(failure.into(), &progress)),
                };
                if progress.add(next, &ended) {
                    keep(progress.to_json());
                }
                let mut undecided = Vec::new();
                for (to, fate) in next.iter().zip(ended.fates) {
                    match fate {
                        Fate::Later(failure) => put_off.push((to.clone(), failure)),
                        Fate::Undecided => undecided.push(to.clone()),
                        Fate::Accepted | Fate::Refused(..) => {}
                    }
                }
                let offered = next.len();
                left.splice(..offered, undecided);
            }
            lane.end();
        }
        if put_off.is_empty() {
            progress.end(&mail.to, self.config.on_refused).map_err(|error| with_progress(error, &progress))
        } else {
            let error = SendError::transient(progress::later(&mail.to, &put_off));
            Err(with_progress(error, &progress))
        }
    }

    /// The records of one key, until one fails.
    async fn deliver_in_sequence(
        &self,
        lane: Vec<(usize, &Record)>,
        cx: &SendContext,
        outcomes: &Mutex<&mut Outcomes>,
    ) {
        let mut failed = false;
        for (at, record) in lane {
            if failed {
                locked(outcomes).not_attempted(at);
                continue;
            }
            let result = self.deliver(record, cx, &mut |kept| locked(outcomes).progress(at, kept)).await;
            failed = result.is_err();
            locked(outcomes).set(at, result);
        }
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_progress(error: SendError, progress: &Progress) -> SendError {
    match *progress == Progress::default() {
        true => error,
        false => error.with_progress(progress.to_json()),
    }
}

fn tls_parameters(config: &SmtpConfig) -> Result<TlsParameters, SmtpError> {
    let mut builder = TlsParameters::builder(config.host.clone());
    for pem in &config.root_certificates {
        let invalid =
            |error| SmtpError::new("root_certificates hold what is no certificate").with_source(error);
        builder = builder.add_root_certificate(Certificate::from_pem(pem.as_bytes()).map_err(invalid)?);
    }
    builder.build_rustls().map_err(|error| SmtpError::new("TLS cannot be set up").with_source(error))
}

/// The connection of one attempt, opened when it is needed and again when the server closes it.
struct Lane<'p> {
    pool: &'p Pool,
    deadline: Instant,
    in_use: Option<InUse<'p>>,
    mails: u32,
    reconnects: u32,
}

impl Lane<'_> {
    async fn transact(&mut self, mail: &Outgoing, to: &[Address]) -> Result<Transaction, Failure> {
        let mut in_use = match self.in_use.take() {
            Some(in_use) => in_use,
            None => self.pool.take(self.deadline).await?,
        };
        let ended = loop {
            match in_use.connection.transact(mail, to, self.deadline).await {
                Err(failure) if in_use.was_idle && failure.is_stale() => {
                    in_use = self.pool.replace(in_use, self.deadline).await?;
                }
                ended => break ended?,
            }
        };
        in_use.was_idle = false;
        self.mails += 1;
        if ended.reusable {
            self.in_use = Some(in_use);
        } else if ended.fates.contains(&Fate::Undecided) {
            self.reconnects += 1;
            if self.reconnects > RECONNECTS_MAX {
                return Ok(give_up(ended));
            }
        }
        Ok(ended)
    }

    /// Gives the connection to the next mail.
    fn end(self) {
        if let Some(in_use) = self.in_use {
            self.pool.put_back(in_use, self.mails);
        }
    }
}

/// Puts off whoever is undecided.
fn give_up(mut ended: Transaction) -> Transaction {
    for fate in ended.fates.iter_mut().filter(|fate| **fate == Fate::Undecided) {
        *fate = Fate::Later(Failure::refused(Stage::Rcpt, Reply::code_only(421)));
    }
    ended
}

#[async_trait]
impl Sink for SmtpSink {
    async fn send(&self, record: &Record, cx: &SendContext) -> Result<Receipt, SendError> {
        self.deliver(record, cx, &mut |_| {}).await
    }

    /// As the default, with each record's progress besides.
    async fn send_batch(&self, records: &[Record], cx: &SendContext, outcomes: &mut Outcomes) {
        let mut lanes: Vec<Vec<(usize, &Record)>> = Vec::new();
        let mut lane_of = HashMap::new();
        for (at, record) in records.iter().enumerate() {
            match record.key.as_deref().filter(|_| !cx.pipelined_keys) {
                Some(key) => {
                    let lane = *lane_of.entry(key).or_insert(lanes.len());
                    if lane == lanes.len() {
                        lanes.push(Vec::new());
                    }
                    lanes[lane].push((at, record));
                }
                None => lanes.push(vec![(at, record)]),
            }
        }
        let outcomes = Mutex::new(outcomes);
        let under_way: FuturesUnordered<_> =
            lanes.into_iter().map(|lane| self.deliver_in_sequence(lane, cx, &outcomes)).collect();
        under_way.collect::<()>().await;
    }

    /// One mail a call, as many calls as there are connections.
    fn limits(&self) -> SinkLimits {
        SinkLimits::default().with_batches_in_flight(self.config.connections_max)
    }

    /// Connects and logs in, or asks a connection that is there whether it still answers.
    async fn check(&self) -> Result<(), SendError> {
        let deadline = after(self.config.connect_timeout);
        let mut in_use = self.pool.take(deadline).await?;
        if in_use.was_idle && !in_use.connection.is_alive(deadline).await {
            in_use = self.pool.replace(in_use, deadline).await?;
        }
        self.pool.put_back(in_use, 0);
        Ok(())
    }

    async fn close(&self, grace: Duration) {
        self.pool.close(grace).await;
    }

    fn name(&self) -> &str {
        "smtp"
    }
}

/// Shows the server and nothing secret.
impl fmt::Debug for SmtpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpSink").field("config", &self.config).finish_non_exhaustive()
    }
}
