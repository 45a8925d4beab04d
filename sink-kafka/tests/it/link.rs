//! A broker of the test's own behind a link that can be cut.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use crate::broker::service;

/// What the link does to all that comes over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Passes it on.
    Open,
    /// Passes requests on and keeps answers until it is open again.
    Held,
    /// Passes requests on and closes at the first answer.
    Cut,
    /// Refuses connections.
    Down,
}

/// A broker that tells its clients to come over the link.
pub(crate) struct LinkedBroker {
    program: PathBuf,
    arguments: Vec<String>,
    process: Option<Child>,
    own: SocketAddr,
    link: watch::Sender<Link>,
    address: SocketAddr,
    forwarding: JoinHandle<()>,
}

impl LinkedBroker {
    /// A new broker, with more arguments; none when its program is not known.
    pub(crate) async fn start(more: &[&str]) -> Option<Self> {
        let program = service("OUTBOX_TEST_KAFKA_TANSU")?.into();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        // Free now, and given out again by the system only after many others.
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let (link, mode) = watch::channel(Link::Open);
        let mut arguments: Vec<String> = [
            "broker",
            "--listener-url",
            &format!("tcp://{own}"),
            "--advertised-listener-url",
            &format!("tcp://{address}"),
            "--storage-engine",
            "memory://tansu/",
        ]
        .map(str::to_owned)
        .into();
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let forwarding = tokio::spawn(forward(Some(listener), address, own, mode));
        let mut broker = Self { program, arguments, process: None, own, link, address, forwarding };
        broker.run().await;
        Some(broker)
    }

    async fn run(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        for _ in 0..500 {
            if TcpStream::connect(self.own).await.is_ok() {
                return;
            }
            // real time: another process starts.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the broker does not answer");
    }

    /// Where clients find it, over the link.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

impl Drop for LinkedBroker {
    fn drop(&mut self) {
        self.forwarding.abort();
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

async fn forward(
    mut listener: Option<TcpListener>,
    address: SocketAddr,
    to: SocketAddr,
    mut mode: watch::Receiver<Link>,
) {
    let mut connections = JoinSet::new();
    loop {
        if *mode.borrow_and_update() == Link::Down {
            listener = None;
            connections.shutdown().await;
            if mode.changed().await.is_err() {
                return;
            }
            continue;
        }
        let listening = match listener.take() {
            Some(listening) => listening,
            None => TcpListener::bind(address).await.unwrap(),
        };
        tokio::select! {
            changed = mode.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            accepted = listening.accept() => {
                let (client, _) = accepted.unwrap();
                client.set_nodelay(true).unwrap();
                connections.spawn(carry(client, to, mode.clone()));
            }
        }
        listener = Some(listening);
    }
}

async fn carry(client: TcpStream, to: SocketAddr, mode: watch::Receiver<Link>) {
    let Ok(server) = TcpStream::connect(to).await else { return };
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Whichever ends first ends both.
    tokio::select! {
        () = requests(from_client, to_server) => {}
        () = answers(from_server, to_client, mode) => {}
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut mode: watch::Receiver<Link>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(bytes @ 1..) = from.read(&mut buffer).await else { return };
        let Ok(link) = mode.wait_for(|link| *link != Link::Held).await.map(|link| *link) else { return };
        if link != Link::Open || to.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
    }
}
