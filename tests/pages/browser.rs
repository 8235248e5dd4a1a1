//! Chromium, driven over WebDriver by chromedriver, which is spoken to in plain HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What keeps Chromium from the network and from a display.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// A browser with one page. Dropping it ends the session and then the driver, by its process id.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

impl Browser {
    pub fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new("chromedriver")
            .args(["--port=0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is needed for this test: install Debian's chromium and chromium-driver");
        let port = port_of(&mut driver);
        let mut flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": "/usr/bin/chromium", "args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let started = browser.send("POST", "/session", Some(&wanted));
        browser.session = started["sessionId"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned();
        browser
    }

    pub fn open(&self, url: &str) {
        self.ask("url", json!({ "url": url }));
    }

    /// What this script returns.
    pub fn script(&self, script: &str) -> Value {
        self.ask("execute/sync", json!({"script": script, "args": []}))
    }

    /// A command of the DevTools protocol.
    pub fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.ask("goog/cdp/execute", json!({"cmd": command, "params": parameters}))
    }

    pub fn width(&self, width: u32) {
        let metrics = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// `screen` or `print`, `light` or `dark`.
    pub fn medium(&self, medium: &str, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"media": medium, "features": features}));
    }

    /// What Chromium said since it was last asked: errors, refused loads, violations of the policy.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.ask("se/log", json!({"type": "browser"}));
        log.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub fn press_tab(&self) {
        let key = |kind: &str| json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
        self.devtools("Input.dispatchKeyEvent", key("rawKeyDown"));
        self.devtools("Input.dispatchKeyEvent", key("keyUp"));
    }

    /// The whole page as a PNG.
    pub fn picture(&self, path: &Path) {
        let taken = self.devtools("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        self.keep(path, &taken);
    }

    /// The page as it comes out of a printer.
    pub fn paper(&self, path: &Path) {
        let printed = self.devtools("Page.printToPDF", json!({"preferCSSPageSize": true, "printBackground": false}));
        self.keep(path, &printed);
    }

    fn keep(&self, path: &Path, answer: &Value) {
        let data = answer["data"].as_str().unwrap_or_else(|| panic!("{answer}"));
        std::fs::write(path, base64::engine::general_purpose::STANDARD.decode(data).unwrap()).unwrap();
    }

    fn ask(&self, command: &str, body: Value) -> Value {
        self.send("POST", &format!("/session/{}/{command}", self.session), Some(&body))
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.exchange(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let value = answer["value"].clone();
        assert!(value.get("error").is_none(), "{method} {path}: {value}");
        value
    }

    fn exchange(&self, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )?;
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or_default();
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer)?;
        Ok(serde_json::from_slice(&answer)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // In a test that failed too: a browser whose driver ends first is left behind.
        if !self.session.is_empty() {
            let _ = self.exchange("DELETE", &format!("/session/{}", self.session), None);
        }
        let id = i32::try_from(self.driver.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let _ = self.driver.wait();
    }
}

/// `ChromeDriver was started successfully on port 40291.`
fn port_of(driver: &mut Child) -> u16 {
    let output = driver.stdout.take().unwrap();
    let mut lines = BufReader::new(output).lines();
    let said = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    // Who says more to a closed pipe dies of it.
    std::thread::spawn(move || lines.for_each(drop));
    said.expect("chromedriver says its port")
}
