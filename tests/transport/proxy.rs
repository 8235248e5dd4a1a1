//! An HTTP proxy that opens tunnels, and goes to one place whatever the name is.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub struct Proxy {
    pub port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Tunnels to this port of this machine.
    pub fn to(target: u16) -> Proxy {
        Proxy::new(move |client| {
            let _gone = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n");
            tunnel(client, &TcpStream::connect(("127.0.0.1", target)).unwrap());
        })
    }

    /// Lets nobody through, and says this.
    pub fn refusing(answer: &'static str) -> Proxy {
        Proxy::new(move |client| {
            let _gone = client.write_all(answer.as_bytes());
        })
    }

    fn new(serve: impl Fn(&mut TcpStream) + Send + 'static) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let asks = Arc::clone(&asked);
        // The thread ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                // A client says nothing more before it has its answer.
                let lines = BufReader::new(&client).lines().map_while(Result::ok);
                asks.lock().unwrap().push(lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"));
                serve(&mut client);
            }
        });
        Proxy { port, asked }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The head of each request.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn tunnel(client: &TcpStream, server: &TcpStream) {
    thread::scope(|scope| {
        scope.spawn(|| pour(client, server));
        pour(server, client);
    });
}

fn pour(mut from: &TcpStream, mut to: &TcpStream) {
    let _torn = std::io::copy(&mut from, &mut to);
    let _gone = to.shutdown(std::net::Shutdown::Write);
}
