//! The TCP stream beneath the dialogue, which lets nothing said in plain text pass for TLS.
//!
//! lettre reads replies through a buffer that outlives STARTTLS. Someone on the way could append
//! replies to the server's `220`, and they would be read as if they had come through TLS: a mail
//! would count as accepted that the server never saw. So until TLS begins this stream hands out one
//! line at a time, and refuses to begin while anything is left.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::{
    io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf},
    net::TcpStream,
};

/// The first byte of every TLS handshake, and of no SMTP command.
const TLS_HANDSHAKE: u8 = 0x16;

#[derive(Debug)]
pub(crate) struct Wire {
    tcp: BufReader<TcpStream>,
    encrypted: bool,
}

impl Wire {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self { tcp: BufReader::new(tcp), encrypted: false }
    }
}

impl AsyncTokioStream for Wire {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.get_ref().peer_addr()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.encrypted {
            return Pin::new(&mut self.tcp).poll_read(cx, into);
        }
        let available = ready!(Pin::new(&mut self.tcp).poll_fill_buf(cx))?;
        let line = available.iter().position(|byte| *byte == b'\n').map_or(available.len(), |at| at + 1);
        let taken = line.min(into.remaining());
        into.put_slice(&available[..taken]);
        Pin::new(&mut self.tcp).consume(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.encrypted && bytes.first() == Some(&TLS_HANDSHAKE) {
            if !self.tcp.buffer().is_empty() {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the server said more before TLS than its reply",
                )));
            }
            self.encrypted = true;
        }
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
