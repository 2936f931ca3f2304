//! What a process has from the one that started it.

use std::io;

/// `KEYCTL_JOIN_SESSION_KEYRING` of `keyctl(2)`.
const JOIN_SESSION_KEYRING: libc::c_ulong = 1;

/// Keeps what this process was given from the programs that it runs: all descriptors but stdin,
/// stdout and stderr are closed when it runs one, and the session keyring is a new, empty one.
///
/// # Errors
/// The kernel is older than Linux 5.11, or the user has too many keys.
pub fn disinherit() -> io::Result<()> {
    let (first, last) = (3 as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: no pointers. The descriptors stay open, so none is used after its end.
    let closed =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if closed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no name, which is a null pointer.
    let joined =
        unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, 0 as libc::c_ulong) };
    let error = io::Error::last_os_error();
    // Where the call is not permitted, the programs cannot read a key either.
    let is_without_keys = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
    if joined < 0 && !is_without_keys { Err(error) } else { Ok(()) }
}
