//! An SMTP server that answers as a test says: replies at will, silence, and cut connections.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use outbox_core::{Payload, Record, SendContext, Uuid};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use sink_smtp::{Email, SmtpConfig, SmtpSink, Tls};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};

/// What the server does at one point.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Answers as a server does that takes everything.
    Usual,
    /// Says this.
    Say(&'static str),
    /// Says this and closes the connection.
    SayAndCut(&'static str),
    /// Closes the connection.
    Cut,
    /// Says nothing more.
    Hang,
}

/// A point at which the server acts: the first word of a command in capitals, `GREETING`, `DOT`, or
/// `ANSWER` for what answers a 334.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// Which connection, from 0.
    pub(crate) connection: usize,
    pub(crate) point: String,
    /// The command as it came, or the message.
    pub(crate) line: String,
}

/// A mail that the server has taken.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) to: Vec<String>,
    pub(crate) message: String,
    /// Whether the server has said so.
    pub(crate) acknowledged: bool,
}

type Script = dyn Fn(&At) -> Act + Send + Sync;

#[derive(Default)]
struct Seen {
    log: Mutex<Vec<At>>,
    taken: Mutex<Vec<Taken>>,
    connections: AtomicUsize,
}

pub(crate) struct Scripted {
    pub(crate) port: u16,
    pub(crate) certificate: String,
    seen: Arc<Seen>,
    script: Arc<Script>,
    acceptor: TlsAcceptor,
    implicit: bool,
    /// The listener and its connections; none while it is down.
    serving: Mutex<Option<JoinSet<()>>>,
}

/// Takes everything.
pub(crate) fn usual(_: &At) -> Act {
    Act::Usual
}

impl Scripted {
    pub(crate) async fn start(script: impl Fn(&At) -> Act + Send + Sync + 'static) -> Self {
        Self::started(script, false).await
    }

    /// Speaks TLS from the first byte.
    pub(crate) async fn start_tls(script: impl Fn(&At) -> Act + Send + Sync + 'static) -> Self {
        Self::started(script, true).await
    }

    async fn started(script: impl Fn(&At) -> Act + Send + Sync + 'static, implicit: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let tls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let server = Self {
            port,
            certificate: cert.pem(),
            seen: Arc::default(),
            script: Arc::new(script),
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            implicit,
            serving: Mutex::new(None),
        };
        server.serve(listener);
        server
    }

    fn serve(&self, listener: TcpListener) {
        let (seen, script) = (self.seen.clone(), self.script.clone());
        let (acceptor, implicit) = (self.acceptor.clone(), self.implicit);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut sessions = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let connection = seen.connections.fetch_add(1, Ordering::SeqCst);
                let session = Session { connection, script: script.clone(), seen: seen.clone() };
                let acceptor = acceptor.clone();
                sessions.spawn(async move {
                    if implicit {
                        let tls = acceptor.accept(tcp).await?;
                        session.run(BufReader::new(tls), true).await?;
                    } else if let Some(rest) = session.run(BufReader::new(tcp), true).await? {
                        let tls = acceptor.accept(rest.into_inner()).await?;
                        session.run(BufReader::new(tls), false).await?;
                    }
                    io::Result::Ok(())
                });
            }
        });
        *self.serving.lock().unwrap() = Some(serving);
    }

    /// Closes the port and every connection, until [`up`](Self::up).
    pub(crate) async fn down(&self) {
        let serving = self.serving.lock().unwrap().take();
        if let Some(mut serving) = serving {
            serving.shutdown().await;
        }
    }

    pub(crate) async fn up(&self) {
        if self.serving.lock().unwrap().is_none() {
            self.serve(TcpListener::bind(("127.0.0.1", self.port)).await.unwrap());
        }
    }

    /// A configuration without TLS for this server.
    pub(crate) fn config(&self) -> SmtpConfig {
        SmtpConfig::new("127.0.0.1").with_port(self.port).with_tls(Tls::Off)
    }

    pub(crate) fn sink(&self) -> SmtpSink {
        SmtpSink::connect(self.config()).unwrap()
    }

    pub(crate) fn taken(&self) -> Vec<Taken> {
        self.seen.taken.lock().unwrap().clone()
    }

    /// Everything that was said at this point.
    pub(crate) fn said(&self, point: &str) -> Vec<String> {
        let log = self.seen.log.lock().unwrap();
        log.iter().filter(|at| at.point == point).map(|at| at.line.clone()).collect()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }
}

struct Session {
    connection: usize,
    script: Arc<Script>,
    seen: Arc<Seen>,
}

impl Session {
    /// Until the connection ends; or, after a STARTTLS, until TLS begins.
    async fn run<S>(&self, mut stream: BufReader<S>, greets: bool) -> io::Result<Option<BufReader<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if greets && !self.act(&mut stream, "GREETING", "", "220 scripted ESMTP\r\n").await? {
            return Ok(None);
        }
        let mut to = Vec::new();
        let mut answers_left = 0;
        let mut in_transaction = false;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(None);
            }
            let line = line.trim_end();
            let word = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
            let point = if answers_left > 0 { "ANSWER" } else { word.as_str() };
            let usual = match point {
                "EHLO" => {
                    "250-scripted\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-STARTTLS\r\n250-SIZE 100000\r\n250 AUTH PLAIN LOGIN XOAUTH2\r\n"
                }
                "STARTTLS" => "220 go\r\n",
                "AUTH" if line == "AUTH LOGIN" => "334 dXNlcg==\r\n",
                "AUTH" => "235 ok\r\n",
                "ANSWER" if answers_left == 2 => "334 cGFzcw==\r\n",
                "ANSWER" => "235 ok\r\n",
                "MAIL" if in_transaction => "503 5.5.1 nested MAIL\r\n",
                "DATA" => "354 go\r\n",
                "QUIT" => "221 bye\r\n",
                _ => "250 ok\r\n",
            };
            answers_left = match point {
                "AUTH" if line == "AUTH LOGIN" => 2,
                "AUTH" if matches!(self.decide("AUTH", line), Act::Say(say) if say.starts_with("334")) => 1,
                "ANSWER" => answers_left - 1,
                _ => 0,
            };
            if !self.act(&mut stream, point, line, usual).await? {
                return Ok(None);
            }
            match point {
                "STARTTLS" => return Ok(Some(stream)),
                "MAIL" => {
                    to.clear();
                    in_transaction = matches!(self.decide("MAIL", line), Act::Usual);
                }
                "RSET" | "EHLO" => in_transaction = false,
                "RCPT" if matches!(self.decide("RCPT", line), Act::Usual) => {
                    to.push(line.trim_start_matches("RCPT TO:<").trim_end_matches('>').to_owned());
                }
                "DATA" if matches!(self.decide("DATA", line), Act::Usual) => {
                    let message = message(&mut stream).await?;
                    in_transaction = false;
                    let decided = self.decide("DOT", &message);
                    let (accepts, acknowledged) = match decided {
                        Act::Usual => (true, true),
                        Act::Say(say) | Act::SayAndCut(say) => (say.starts_with('2'), true),
                        // As a server that loses its connection before the answer can leave.
                        Act::Cut | Act::Hang => (true, false),
                    };
                    if accepts {
                        let taken = Taken { to: to.clone(), message: message.clone(), acknowledged };
                        self.seen.taken.lock().unwrap().push(taken);
                    }
                    let goes_on =
                        self.act(&mut stream, "DOT", &message, "250 2.0.0 queued as Q1\r\n").await?;
                    if !goes_on {
                        return Ok(None);
                    }
                }
                "QUIT" => return Ok(None),
                _ => {}
            }
        }
    }

    fn decide(&self, point: &str, line: &str) -> Act {
        (self.script)(&At { connection: self.connection, point: point.into(), line: line.into() })
    }

    /// Whether the connection goes on.
    async fn act<S>(
        &self,
        stream: &mut BufReader<S>,
        point: &str,
        line: &str,
        usual: &str,
    ) -> io::Result<bool>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let at = At { connection: self.connection, point: point.into(), line: line.into() };
        let act = (self.script)(&at);
        self.seen.log.lock().unwrap().push(at);
        match act {
            Act::Usual => stream.write_all(usual.as_bytes()).await?,
            Act::Say(say) => stream.write_all(format!("{say}\r\n").as_bytes()).await?,
            Act::SayAndCut(say) => {
                stream.write_all(format!("{say}\r\n").as_bytes()).await?;
                stream.flush().await?;
                stream.shutdown().await?;
                return Ok(false);
            }
            Act::Cut => return Ok(false),
            Act::Hang => std::future::pending().await,
        }
        stream.flush().await?;
        Ok(true)
    }
}

/// The message up to the final dot, without the dots that were added.
async fn message<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> io::Result<String> {
    let mut message = Vec::new();
    loop {
        let mut line = Vec::new();
        if stream.read_until(b'\n', &mut line).await? == 0 {
            let _ = stream.read(&mut [0]).await?;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line == b".\r\n" {
            return Ok(String::from_utf8_lossy(&message).into_owned());
        }
        message.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
    }
}

/// A mail to these recipients.
pub(crate) fn email(to: &[&str]) -> Email {
    let mut email = Email::new("Shop <shop@example.com>").subject("Hello").text("Hi.\r\n.\r\n..dots\r\n");
    for to in to {
        email = email.to(*to);
    }
    email
}

/// The email as a relay would hand it over at its first attempt.
pub(crate) fn record(email: &Email) -> Record {
    unchecked(&serde_json::to_string(email).unwrap())
}

/// As [`record`], of JSON that nobody has checked.
pub(crate) fn unchecked(json: &str) -> Record {
    Record::new(1, Uuid::now_v7(), "mail.test", Payload::Json(json.to_owned()))
}

pub(crate) fn cx() -> SendContext {
    SendContext::new(std::time::Duration::from_secs(5))
}
