//! Listening Unix sockets, each of which has a file.
//!
//! What: [`listen_unix`] binds one, and [`SocketFile`] removes its file at the end. The file gets
//! its mode and owner before a client can connect.
//! What never happens: the file of a socket on which a process listens is replaced; a file that is
//! not a socket is removed; a file is removed that a later process has put in its place, or
//! that a supervisor has made.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::successor::is_activated;
use crate::net::unix_path;
use crate::sys::real;

/// Who may connect to a Unix socket: the mode of its file, and its user and group if they are not
/// those of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketRights {
    /// The mode; to connect, a client needs the right to write.
    pub mode: u32,
    /// The user's number.
    pub uid: Option<u32>,
    /// The group's number.
    pub gid: Option<u32>,
}

impl Default for SocketRights {
    fn default() -> SocketRights {
        SocketRights { mode: 0o660, uid: None, gid: None }
    }
}

/// The file of a listening Unix socket. Dropping this removes the file if it is ours.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Its device and inode.
    id: Option<(u64, u64)>,
    is_ours: AtomicBool,
}

/// Opens a listening Unix socket that belongs to no core yet. The file of a process that has ended
/// is replaced. Non-blocking and close-on-exec.
///
/// # Panics
/// The address is not that of a Unix socket.
///
/// # Errors
/// A process listens there (`AddrInUse`), the file is not a socket (`AlreadyExists`), or the system
/// refuses.
pub fn listen_unix(
    address: SocketAddr,
    rights: &SocketRights,
) -> io::Result<(TcpListener, SocketFile)> {
    let path = unix_path(address).expect("the address of a Unix socket");
    remove_stale(&path, address)?;
    let fd = real::bind_unix(address)?;
    let file = SocketFile::at(path, true);
    file.allow(rights)?;
    real::listen_unix(&fd)?;
    Ok((TcpListener::from(fd), file))
}

/// Removes the file of a socket on which no process listens.
fn remove_stale(path: &Path, address: SocketAddr) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let text = "there is a file that is not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match real::connect_tcp(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Its queue is full: a process listens.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        connected => {
            if let Ok((fd, _)) = connected {
                real::close(fd);
            }
            Err(io::ErrorKind::AddrInUse.into())
        }
    }
}

impl SocketFile {
    fn at(path: PathBuf, is_ours: bool) -> SocketFile {
        let id = id(&path);
        SocketFile { path, id, is_ours: AtomicBool::new(is_ours) }
    }

    /// Gives it its mode, user and group if it is ours.
    ///
    /// # Errors
    /// What the system says. Only root may change the owner of a file.
    pub fn allow(&self, rights: &SocketRights) -> io::Result<()> {
        if !self.is_ours.load(Relaxed) {
            return Ok(());
        }
        let SocketRights { mode, uid, gid } = *rights;
        let now = std::fs::symlink_metadata(&self.path)?;
        // A process without privileges may not even set the owner that the file already has.
        if now.mode() & 0o7777 != mode {
            std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(mode))?;
        }
        let differs = |wanted: Option<u32>, now: u32| wanted.is_some_and(|wanted| wanted != now);
        if differs(uid, now.uid()) || differs(gid, now.gid()) {
            lchown(&self.path, uid, gid)?;
        }
        Ok(())
    }

    /// The file of an inherited socket with this address, which stays until [`SocketFile::own`].
    pub fn inherited(address: SocketAddr) -> Option<SocketFile> {
        Some(SocketFile::at(unix_path(address)?, false))
    }

    /// From here on this process removes it, unless a supervisor has made it.
    pub fn own(&self) {
        self.is_ours.store(!is_activated(), Relaxed);
    }

    /// From here on another process has the socket.
    pub fn leave(&self) {
        self.is_ours.store(false, Relaxed);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_ours.load(Relaxed) && self.id.is_some() && id(&self.path) == self.id {
            // If the directory is not ours, the next start replaces the file.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

fn id(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// The address of a listening socket, which may be a Unix socket.
///
/// # Errors
/// What the system says.
pub fn listening_address(socket: &TcpListener) -> io::Result<SocketAddr> {
    real::local_addr(socket.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::net::unix_address;

    #[test]
    fn a_stale_file_is_replaced_and_all_others_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("socket");
        let address = unix_address(&path).unwrap();
        let rights = SocketRights { mode: 0o622, ..SocketRights::default() };
        drop(UnixListener::bind(&path).unwrap());
        let (socket, file) = listen_unix(address, &rights).unwrap();
        assert_eq!(listening_address(&socket).unwrap(), address);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o622);
        drop(UnixStream::connect(&path).unwrap());
        let kind = |address| listen_unix(address, &rights).unwrap_err().kind();
        assert_eq!(kind(address), io::ErrorKind::AddrInUse);
        drop((socket, file));
        assert!(!path.exists());
        std::fs::write(&path, "text").unwrap();
        assert_eq!(kind(address), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    }

    #[test]
    fn a_file_that_is_not_ours_stays() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("socket");
        let address = unix_address(&path).unwrap();
        let listen = || listen_unix(address, &SocketRights::default()).unwrap();
        // It was left to another process.
        let (_socket, file) = listen();
        let inherited = SocketFile::inherited(address).unwrap();
        file.leave();
        drop(file);
        assert!(path.exists());
        // Another process has put its own in its place.
        std::fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        inherited.own();
        drop(inherited);
        assert!(path.exists());
    }
}
