//! A FUSE file system with one file whose reads are never answered.
//!
//! A process that reads it sits in uninterruptible sleep and survives SIGKILL until the server goes
//! away: the honest stand-in for a driver call that is stuck in the kernel. The wire format is that of
//! `<linux/fuse.h>`, protocol 7.31.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;

/// Mounted while it lives; dropping it unmounts and lets the stuck process die.
pub struct NeverAnswers {
    mountpoint: PathBuf,
    connection: u64,
    server: Option<JoinHandle<()>>,
}

impl NeverAnswers {
    /// Mounts at this folder; any file name in it exists.
    pub fn mount(mountpoint: &Path) -> NeverAnswers {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .expect("/dev/fuse opens: the test runs as root");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let data = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount(
            "nodegate-test",
            mountpoint,
            "fuse",
            rustix::mount::MountFlags::empty(),
            Some(data.as_c_str()),
        )
        .expect("a FUSE file system mounts: the test runs as root");
        let server = std::thread::spawn(move || serve(device));
        let connection = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(mountpoint).unwrap());
        NeverAnswers { mountpoint: mountpoint.to_owned(), connection, server: Some(server) }
    }
}

impl Drop for NeverAnswers {
    fn drop(&mut self) {
        let minor = rustix::fs::minor(self.connection);
        let abort = format!("/sys/fs/fuse/connections/{minor}/abort");
        if !Path::new(&abort).exists() {
            let _ = rustix::mount::mount(
                "fusectl",
                "/sys/fs/fuse/connections",
                "fusectl",
                rustix::mount::MountFlags::empty(),
                None,
            );
        }
        let _ = std::fs::write(&abort, "1");
        let _ = rustix::mount::unmount(&self.mountpoint, rustix::mount::UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// Answers until the connection is aborted.
fn serve(mut device: File) {
    let mut buffer = vec![0; 1 << 17];
    loop {
        let length = match device.read(&mut buffer) {
            Ok(length) if length >= 40 => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            _ => return,
        };
        let word = |at: usize| u32::from_ne_bytes(buffer[at..at + 4].try_into().unwrap());
        let (opcode, node) = (word(4), word(16));
        let unique = u64::from_ne_bytes(buffer[8..16].try_into().unwrap());
        let answer = match opcode {
            INIT => Some(init_out()),
            LOOKUP => Some(entry_out()),
            GETATTR => Some(attr_out(node == 1)),
            OPEN | OPENDIR => Some(open_out()),
            READ => continue,
            _ if length > 0 => None,
            _ => return,
        };
        let mut reply = Vec::new();
        let body = answer.clone().unwrap_or_default();
        reply.extend(u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
        // ENOSYS for what this server does not know.
        reply.extend(if answer.is_some() { 0i32 } else { -38 }.to_ne_bytes());
        reply.extend(unique.to_ne_bytes());
        reply.extend(body);
        if device.write_all(&reply).is_err() && opcode == INIT {
            return;
        }
    }
}

fn init_out() -> Vec<u8> {
    let mut out = Vec::new();
    for word in [7u32, 31, 1 << 16, 0] {
        out.extend(word.to_ne_bytes());
    }
    out.extend([0; 4]);
    out.extend((1u32 << 16).to_ne_bytes());
    out.resize(64, 0);
    out
}

fn attributes(folder: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [if folder { 1u64 } else { 2 }, 4096, 8, 0, 0, 0] {
        out.extend(word.to_ne_bytes());
    }
    let mode: u32 = if folder { 0o040_755 } else { 0o100_644 };
    for word in [0u32, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        out.extend(word.to_ne_bytes());
    }
    out
}

fn attr_out(folder: bool) -> Vec<u8> {
    let mut out = vec![0; 16];
    out.extend(attributes(folder));
    out
}

fn entry_out() -> Vec<u8> {
    let mut out = Vec::new();
    for word in [2u64, 0, 0, 0, 0] {
        out.extend(word.to_ne_bytes());
    }
    out.extend(attributes(false));
    out
}

fn open_out() -> Vec<u8> {
    let mut out = vec![0; 8];
    // FOPEN_DIRECT_IO: each read comes to us.
    out.extend(1u32.to_ne_bytes());
    out.extend([0; 4]);
    out
}
