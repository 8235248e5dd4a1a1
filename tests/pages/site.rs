//! The pages at their addresses, served as a collector serves them: with the policy in the header.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nodegate::collector::page;

/// A server of loopback for as long as it lives.
pub struct Site {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Site {
    pub fn serve(pages: HashMap<String, String>) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let stop = ended.clone();
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                // One that goes away in the middle is no fault of ours.
                let _ = answer(stream, &pages);
            }
        });
        Site { address, ended, server: Some(server) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

fn answer(mut stream: TcpStream, pages: &HashMap<String, String>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let path = request.split(' ').nth(1).unwrap_or("/");
    let asset = path.strip_prefix("/static/").and_then(page::asset);
    let (status, media_type, body) = match (asset, pages.get(path)) {
        (Some((media_type, bytes)), _) => (200, media_type, bytes.to_vec()),
        (None, Some(page)) => (200, "text/html; charset=utf-8", page.clone().into_bytes()),
        (None, None) => (404, "text/html; charset=utf-8", page::failure(404, path).into_bytes()),
    };
    write!(
        stream,
        "HTTP/1.1 {status} .\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nContent-Security-Policy: {}\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len(),
        page::CONTENT_SECURITY_POLICY
    )?;
    stream.write_all(&body)
}
