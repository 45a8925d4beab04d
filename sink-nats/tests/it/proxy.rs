//! Stands between client and server, and fails as networks do.

use std::sync::Mutex;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// What becomes of the bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Weather {
    Fair,
    /// What the server says is kept back.
    Silent,
    /// Connections are cut, and new ones refused.
    Down,
}

pub(crate) struct Proxy {
    port: u16,
    server: String,
    weather: watch::Sender<Weather>,
    listening: Mutex<JoinHandle<()>>,
}

impl Proxy {
    pub(crate) async fn before(url: &str) -> Self {
        let server = url.trim_start_matches("nats://").to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let weather = watch::Sender::new(Weather::Fair);
        let listening = tokio::spawn(listen(listener, server.clone(), weather.subscribe()));
        Self { port, server, weather, listening: Mutex::new(listening) }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) async fn set(&self, weather: Weather) {
        let was_down = *self.weather.borrow() == Weather::Down;
        self.weather.send_replace(weather);
        if weather == Weather::Down {
            self.listening.lock().unwrap().abort();
        } else if was_down {
            let listener = loop {
                match TcpListener::bind(("127.0.0.1", self.port)).await {
                    Ok(listener) => break listener,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            let task = tokio::spawn(listen(listener, self.server.clone(), self.weather.subscribe()));
            *self.listening.lock().unwrap() = task;
        }
    }
}

async fn listen(listener: TcpListener, server: String, weather: watch::Receiver<Weather>) {
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(&server).await else { continue };
        tokio::spawn(carry(client, server, weather.clone()));
    }
}

async fn carry(client: TcpStream, server: TcpStream, mut weather: watch::Receiver<Weather>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async { tokio::io::copy(&mut from_client, &mut to_server).await.map(drop) };
    let mut seen = weather.clone();
    let down = async {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let read = from_server.read(&mut bytes).await?;
            if read == 0 {
                return Ok(());
            }
            let _ = seen.wait_for(|weather| *weather != Weather::Silent).await;
            to_client.write_all(&bytes[..read]).await?;
        }
    };
    let cut = async { drop(weather.wait_for(|weather| *weather == Weather::Down).await) };
    tokio::select! {
        _ = up => {}
        _ = async { down.await as std::io::Result<()> } => {}
        () = cut => {}
    }
}
