//! One connection to the server: from the greeting to a login, and one mail after the other.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use lettre::{
    Address,
    transport::smtp::{
        Error,
        client::{AsyncSmtpConnection, TlsParameters},
        commands::{Data, Ehlo, Mail, Noop, Quit, Rcpt, Rset},
        extension::{ClientId, Extension, MailBodyParameter, MailParameter},
        response::{Response, Severity},
    },
};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout_at},
};

use crate::{
    Credentials, Tls, TokenSource,
    error::{Cause, Failure, Reply, Stage, Verdict},
    message::Outgoing,
    wire::Wire,
};

/// What it takes to open a connection.
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Tls,
    /// None without TLS.
    pub(crate) tls_parameters: Option<TlsParameters>,
    pub(crate) hello: ClientId,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) tokens: Option<Arc<dyn TokenSource>>,
    pub(crate) connect_timeout: Duration,
}

/// How one recipient of a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The server has the mail for it.
    Accepted,
    /// Not now.
    Later(Failure),
    /// Refused for good, at this stage.
    Refused(Stage, Reply),
    /// The transaction ended before it was decided.
    Undecided,
}

/// How a transaction ended.
pub(crate) struct Transaction {
    /// For each recipient, in order.
    pub(crate) fates: Vec<Fate>,
    /// What the server answered to the final dot, when it has the mail.
    pub(crate) accepted: Option<Reply>,
    /// Whether the connection can take another.
    pub(crate) reusable: bool,
}

pub(crate) struct Connection {
    pub(crate) smtp: AsyncSmtpConnection,
    /// What the server says about sizes, once it was asked.
    size: Option<Size>,
    hello: ClientId,
}

#[derive(Clone, Copy)]
struct Size {
    /// Whether MAIL may name the size.
    declarable: bool,
    bytes_max: Option<usize>,
}

impl Connection {
    /// Opens a connection that is ready for a mail.
    pub(crate) async fn open(server: &Server, deadline: Instant) -> Result<Self, Failure> {
        let deadline = deadline.min(after(server.connect_timeout));
        let smtp = match (server.tls, &server.tls_parameters) {
            (Tls::Implicit, parameters) => {
                let opening = AsyncSmtpConnection::connect_tokio1(
                    (server.host.as_str(), server.port),
                    Some(server.connect_timeout / 2),
                    &server.hello,
                    parameters.clone(),
                    None,
                );
                // lettre connects and reads the greeting in one call.
                within(deadline, Stage::Connect, opening).await?
            }
            (_, parameters) => {
                let tcp = connect(server, deadline).await?;
                let opening =
                    AsyncSmtpConnection::connect_with_transport(Box::new(Wire::new(tcp)), &server.hello);
                let mut smtp = within(deadline, Stage::Greeting, opening).await?;
                if let Some(parameters) = parameters {
                    if !smtp.can_starttls() {
                        return Err(Failure::new(Stage::StartTls, Cause::Missing("STARTTLS")));
                    }
                    let turning = smtp.starttls(parameters.clone(), &server.hello);
                    within(deadline, Stage::StartTls, turning).await?;
                }
                smtp
            }
        };
        let mut connection = Self { smtp, size: None, hello: server.hello.clone() };
        if let Some(credentials) = &server.credentials {
            let logging_in = connection.log_in(credentials, server.tokens.as_deref(), deadline);
            logging_in.await?;
        }
        Ok(connection)
    }

    /// Whether the server still answers.
    pub(crate) async fn is_alive(&mut self, deadline: Instant) -> bool {
        self.command(deadline, Stage::Mail, Noop).await.is_ok()
    }

    pub(crate) async fn quit(mut self, deadline: Instant) {
        let _ = self.command(deadline, Stage::Mail, Quit).await;
    }

    /// Offers the mail to these recipients. It is with those that are [`Fate::Accepted`], and with
    /// nobody else: a recipient counts once the server has answered the final dot.
    pub(crate) async fn transact(
        &mut self,
        mail: &Outgoing,
        to: &[Address],
        deadline: Instant,
    ) -> Result<Transaction, Failure> {
        let parameters = match self.parameters(mail, deadline).await? {
            Ok(parameters) => parameters,
            Err(refusal) => return Ok(Transaction::refused(to.len(), Stage::Mail, refusal)),
        };
        let mut fates = vec![Fate::Undecided; to.len()];
        match self.command(deadline, Stage::Mail, Mail::new(mail.from.clone(), parameters)).await {
            Ok(response) if is_done(&response) => {}
            Ok(_) => return Err(Failure::new(Stage::Mail, Cause::Garbled)),
            Err(failure) => return Transaction::decided(fates, failure),
        }
        for (at, address) in to.iter().enumerate() {
            let response = self.command(deadline, Stage::Rcpt, Rcpt::new(address.clone(), vec![])).await;
            let failure = match response {
                Ok(response) if is_done(&response) => continue,
                Ok(_) => Failure::new(Stage::Rcpt, Cause::Garbled),
                Err(failure) => failure,
            };
            // It may be this recipient's doing: the others go by another connection, without it.
            let ends = failure.ends_connection();
            fates[at] = Fate::of(failure)?;
            if ends {
                return Ok(Transaction { fates, accepted: None, reusable: false });
            }
        }
        if fates.iter().all(|fate| *fate != Fate::Undecided) {
            let reusable = self.command(deadline, Stage::Mail, Rset).await.is_ok();
            return Ok(Transaction { fates, accepted: None, reusable });
        }
        match self.command(deadline, Stage::Data, Data).await {
            Ok(response) if response.has_code(354) => {}
            Ok(_) => return Err(Failure::new(Stage::Data, Cause::Garbled)),
            Err(failure) => {
                let mut ended = Transaction::decided(fates, failure)?;
                ended.reusable = ended.reusable && self.command(deadline, Stage::Mail, Rset).await.is_ok();
                return Ok(ended);
            }
        }
        let sent = match std::str::from_utf8(&mail.bytes) {
            Ok(message) => self.command(deadline, Stage::Dot, Content(message)).await,
            Err(_) => within(deadline, Stage::Dot, self.smtp.message(&mail.bytes)).await,
        };
        match sent {
            Ok(response) if is_done(&response) => {
                for fate in fates.iter_mut().filter(|fate| **fate == Fate::Undecided) {
                    *fate = Fate::Accepted;
                }
                Ok(Transaction { fates, accepted: Some(reply(&response)), reusable: true })
            }
            Ok(_) => Err(Failure::new(Stage::Dot, Cause::Garbled)),
            Err(failure) => Transaction::decided(fates, failure),
        }
    }

    /// What MAIL says about the message; a text when the server cannot take it.
    async fn parameters(
        &mut self,
        mail: &Outgoing,
        deadline: Instant,
    ) -> Result<Result<Vec<MailParameter>, Reply>, Failure> {
        /// What every server must take (RFC 5321 section 4.5.3.1.7): below it, sizes are not asked for.
        const UNASKED_BYTES: usize = 64 * 1024;
        let mut parameters = Vec::new();
        let refused = |text: &str| Ok(Err(Reply::new(554, text)));
        let info = self.smtp.server_info();
        if mail.needs_utf8 && !info.supports_feature(Extension::SmtpUtfEight) {
            return refused("not asked: an address or header is beyond ASCII, and the server lacks SMTPUTF8");
        }
        if mail.needs_8bit && !info.supports_feature(Extension::EightBitMime) {
            return refused("not asked: the body is beyond ASCII, and the server lacks 8BITMIME");
        }
        if (mail.needs_8bit || mail.needs_utf8) && info.supports_feature(Extension::EightBitMime) {
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        if mail.needs_utf8 {
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if mail.bytes.len() > UNASKED_BYTES {
            let size = self.size(deadline).await?;
            if let Some(bytes_max) = size.bytes_max.filter(|bytes_max| mail.bytes.len() > *bytes_max) {
                let bytes = mail.bytes.len();
                return refused(&format!("not asked: {bytes} bytes, and the server takes {bytes_max}"));
            }
            if size.declarable {
                parameters.push(MailParameter::Size(mail.bytes.len()));
            }
        }
        Ok(Ok(parameters))
    }

    /// lettre keeps of the answer to EHLO what it uses itself, which SIZE is not.
    async fn size(&mut self, deadline: Instant) -> Result<Size, Failure> {
        if let Some(size) = self.size {
            return Ok(size);
        }
        let response = self.command(deadline, Stage::Mail, Ehlo::new(self.hello.clone())).await?;
        let mut size = Size { declarable: false, bytes_max: None };
        for line in response.message() {
            let mut words = line.split_ascii_whitespace();
            if words.next().is_some_and(|word| word.eq_ignore_ascii_case("SIZE")) {
                size.declarable = true;
                size.bytes_max = words.next().and_then(|word| word.parse().ok()).filter(|bytes| *bytes > 0);
            }
        }
        self.size = Some(size);
        Ok(size)
    }

    pub(crate) async fn command<C: fmt::Display>(
        &mut self,
        deadline: Instant,
        stage: Stage,
        command: C,
    ) -> Result<Response, Failure> {
        within(deadline, stage, self.smtp.command(command)).await
    }
}

impl Fate {
    /// The fate that a failure means for a recipient; an error when it says nothing about one, or
    /// leaves no time for the others.
    fn of(failure: Failure) -> Result<Self, Failure> {
        match (failure.verdict(), failure) {
            (Verdict::Never, Failure { stage, cause: Cause::Refused(reply) }) => {
                Ok(Self::Refused(stage, reply))
            }
            (Verdict::Later, failure) if failure.cause != Cause::Slow => Ok(Self::Later(failure)),
            (_, failure) => Err(failure),
        }
    }
}

impl Transaction {
    /// Everybody is refused for good, and nothing was said.
    fn refused(recipients: usize, stage: Stage, reply: Reply) -> Self {
        let fates = vec![Fate::Refused(stage, reply); recipients];
        Self { fates, accepted: None, reusable: true }
    }

    /// What is undecided is decided by a failure of the whole transaction.
    fn decided(mut fates: Vec<Fate>, failure: Failure) -> Result<Self, Failure> {
        let reusable = !failure.ends_connection();
        let decision = Fate::of(failure)?;
        for fate in fates.iter_mut().filter(|fate| **fate == Fate::Undecided) {
            *fate = decision.clone();
        }
        Ok(Self { fates, accepted: None, reusable })
    }
}

/// A message with its final dot, in one write: lettre makes two, of which over TLS the second waits for
/// the acknowledgement of the first, 40 ms on many systems.
struct Content<'a>(&'a str);

impl fmt::Display for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.0.split("\r\n") {
            if line.starts_with('.') {
                f.write_str(".")?;
            }
            f.write_str(line)?;
            f.write_str("\r\n")?;
        }
        f.write_str(".\r\n")
    }
}

/// This long from now; a day for what is longer, since a clock ends somewhere.
pub(crate) fn after(wait: Duration) -> Instant {
    Instant::now() + wait.min(Duration::from_secs(24 * 3600))
}

/// TCP to the first of the server's addresses that answers; each has its share of the time.
async fn connect(server: &Server, deadline: Instant) -> Result<TcpStream, Failure> {
    let lost = |why: String| Failure::new(Stage::Connect, Cause::Lost(why));
    let resolving = lookup_host((server.host.as_str(), server.port));
    let addresses: Vec<_> = match timeout_at(deadline, resolving).await {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => return Err(lost(error.to_string())),
        Err(_) => return Err(Failure::new(Stage::Connect, Cause::Slow)),
    };
    let mut failure = lost("the name has no address".to_owned());
    for (at, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = Instant::now() + left / u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
        match timeout_at(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                // A dialogue of small writes: none may wait for the acknowledgement of the one before.
                let _ = tcp.set_nodelay(true);
                return Ok(tcp);
            }
            Ok(Err(error)) => failure = lost(error.to_string()),
            Err(_) => failure = Failure::new(Stage::Connect, Cause::Slow),
        }
    }
    Err(failure)
}

async fn within<T>(
    deadline: Instant,
    stage: Stage,
    step: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failure> {
    match timeout_at(deadline, step).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(failure(stage, &error)),
        Err(_) => Err(Failure::new(stage, Cause::Slow)),
    }
}

/// Whether it is a 2xx: lettre passes 3xx as well.
fn is_done(response: &Response) -> bool {
    response.code().severity == Severity::PositiveCompletion
}

fn reply(response: &Response) -> Reply {
    Reply::new(response.code().into(), &response.message().collect::<Vec<_>>().join(" "))
}

fn failure(stage: Stage, error: &Error) -> Failure {
    let source = std::error::Error::source(error);
    let text = || source.map(ToString::to_string).unwrap_or_default();
    if let Some(code) = error.status() {
        // A server could repeat the login.
        let reply = match stage {
            Stage::Auth => Reply::code_only(code.into()),
            _ => Reply::new(code.into(), &text()),
        };
        // lettre reads the greeting as part of connecting with TLS.
        let stage = if stage == Stage::Connect { Stage::Greeting } else { stage };
        return Failure::refused(stage, reply);
    }
    let is_io = source.is_some_and(|source| source.is::<std::io::Error>());
    match (is_io, error.is_response()) {
        // What the library says of a reply that it cannot read repeats the reply; of an end of the
        // stream it says the same.
        (false, true) => Failure::new(stage, Cause::Garbled),
        _ => Failure::new(stage, Cause::Lost(text())),
    }
}
