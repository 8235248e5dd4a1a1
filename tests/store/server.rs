//! A PostgreSQL server of the test's own, from Debian's packages, in a folder of its own.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running server; it ends with this value.
pub struct Server {
    folder: TempDir,
    child: Option<Child>,
    /// Loopback port of a server that speaks TLS.
    port: Option<u16>,
}

impl Server {
    /// Makes a cluster and starts it on a socket in its folder.
    pub fn start() -> Server {
        let folder = tempfile::Builder::new().prefix("nodegate-pg-").tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), owner(), owner()).unwrap();
        let data = folder.path().join("data");
        let mut initdb = program("initdb");
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "-D"]).arg(&data);
        succeeds(initdb.output().unwrap());
        let mut server = Server { folder, child: None, port: None };
        server.go_on();
        server
    }

    /// Starts again on TCP too, with a certificate for `localhost`, whose authority is given back.
    pub fn speak_tls(&mut self) -> PathBuf {
        self.stop();
        let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (chain, key) = (self.folder.path().join("server.crt"), self.folder.path().join("server.key"));
        std::fs::write(&chain, certificate.cert.pem()).unwrap();
        std::fs::write(&key, certificate.signing_key.serialize_pem()).unwrap();
        for path in [&chain, &key] {
            std::os::unix::fs::chown(path, owner(), owner()).unwrap();
        }
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let rules = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(self.folder.path().join("data/pg_hba.conf"), rules).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        self.port = Some(free);
        self.go_on();
        chain
    }

    pub fn port(&self) -> u16 {
        self.port.unwrap()
    }

    /// The store's URL of this database, over the socket.
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.path().to_str().unwrap().replace('/', "%2F");
        format!("postgres://postgres@{folder}/{database}")
    }

    /// An empty database, and its URL.
    pub fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(name)
    }

    pub fn sql(&self, database: &str, statement: &str) -> String {
        let mut psql = program("psql");
        psql.args(["-X", "-q", "-A", "-t", "-U", "postgres", "-d", database, "-c", statement, "-h"]);
        succeeds(psql.arg(self.folder.path()).output().unwrap())
    }

    /// As a machine that loses power: nothing is written any more.
    pub fn crash(&mut self) {
        if let Some(child) = &mut self.child {
            signal(child.id(), rustix::process::Signal::QUIT);
            child.wait().unwrap();
        }
        self.child = None;
    }

    pub fn stop(&mut self) {
        if let Some(child) = &mut self.child {
            signal(child.id(), rustix::process::Signal::INT);
            child.wait().unwrap();
        }
        self.child = None;
    }

    pub fn go_on(&mut self) {
        let mut postgres = program("postgres");
        postgres.arg("-D").arg(self.folder.path().join("data"));
        postgres.arg("-k").arg(self.folder.path()).args(["-c", "fsync=on", "-c", "max_connections=40"]);
        match self.port {
            Some(port) => {
                postgres.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", "ssl=on"]);
                let file = |name: &str| format!("{}", self.folder.path().join(name).display());
                postgres.args(["-c", &format!("ssl_cert_file={}", file("server.crt"))]);
                postgres.args(["-c", &format!("ssl_key_file={}", file("server.key"))]);
            }
            None => drop(postgres.args(["-h", ""])),
        }
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        postgres.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(postgres.spawn().unwrap());
        let socket = self.folder.path().join(format!(".s.PGSQL.{}", self.port.unwrap_or(5432)));
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.answers(&socket) {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "PostgreSQL does not start:\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn answers(&self, socket: &Path) -> bool {
        let mut ready = program("pg_isready");
        ready.arg("-q").arg("-h").arg(self.folder.path());
        ready.args(["-p", &self.port.unwrap_or(5432).to_string()]);
        socket.exists() && ready.status().unwrap().success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.crash();
    }
}

/// PostgreSQL refuses to run as root.
fn owner() -> Option<u32> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(2)?.parse().ok()
    };
    Some(of("postgres").or_else(|| of("nobody")).expect("a user who is not root"))
}

fn program(name: &str) -> Command {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path().join("bin").join(name))
        .filter(|path| path.exists())
        .collect();
    versions.sort();
    let path = versions.pop().unwrap_or_else(|| {
        panic!("the PostgreSQL server is missing (no /usr/lib/postgresql/*/bin/{name}): apt-get install postgresql")
    });
    let mut command = Command::new(path);
    command.env_clear().env("LC_ALL", "C").stdin(Stdio::null()).current_dir("/");
    if let Some(owner) = owner() {
        command.uid(owner).gid(owner);
    }
    command
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // It may have ended by itself.
    let _gone = rustix::process::kill_process(pid, signal);
}

fn succeeds(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
