//! The user to run as once the addresses are bound.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;

/// A user and its group, from the system's account database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: String,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

/// Space for an account's strings; the system returns `ERANGE` if it needs more.
const ENTRY_BYTES: usize = 16 * 1024;

impl Identity {
    /// Looks up a user by name or number, and its primary group or another one.
    ///
    /// # Errors
    /// There is no such user or group, as text.
    pub fn find(user: &str, group: Option<&str>) -> Result<Identity, String> {
        let (uid, own_gid) = match user.parse() {
            Ok(uid) => (uid, None),
            Err(_) => account(user).map(|account| (account.pw_uid, Some(account.pw_gid)))?,
        };
        let gid = match (group, own_gid) {
            (Some(group), _) => group_id(group)?,
            (None, Some(gid)) => gid,
            (None, None) => return Err(format!("user {user} is a number: name a group too")),
        };
        Ok(Identity { name: user.to_owned(), uid, gid })
    }

    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group's number.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Whether the process already runs as this user.
    pub fn is_ours(&self) -> bool {
        // SAFETY: no pointers; neither call fails.
        unsafe { libc::geteuid() == self.uid && libc::getegid() == self.gid }
    }

    /// Becomes this user permanently and on every thread: sets supplementary groups, group and
    /// user, in this order, and no_new_privs, so that no program run later gets more rights.
    ///
    /// # Errors
    /// What could not be dropped, as text. The process must end then.
    pub fn assume(&self) -> Result<(), String> {
        let check = |call: &str, result: c_int| match result {
            0 => Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                Err(format!("cannot become {} ({call}): {error}", self.name))
            }
        };
        if !self.is_ours() {
            if !is_root() {
                return Err(format!("cannot become {}: only root may change the user", self.name));
            }
            // SAFETY: one group, which lives until the call returns.
            check("setgroups", unsafe { libc::setgroups(1, &raw const self.gid) })?;
            // SAFETY: no pointers.
            check("setresgid", unsafe { libc::setresgid(self.gid, self.gid, self.gid) })?;
            // SAFETY: no pointers.
            check("setresuid", unsafe { libc::setresuid(self.uid, self.uid, self.uid) })?;
            // SAFETY: no pointers.
            if self.uid != 0 && unsafe { libc::setresuid(0, 0, 0) } == 0 {
                return Err(format!("{} can become root again", self.name));
            }
        }
        // SAFETY: no pointers.
        check("no_new_privs", unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
    }
}

/// Whether the process runs as root.
pub fn is_root() -> bool {
    // SAFETY: no pointers; it does not fail.
    unsafe { libc::geteuid() == 0 }
}

/// The number of a user, given its name or number.
///
/// # Errors
/// There is no such user, as text.
pub fn user_id(user: &str) -> Result<u32, String> {
    user.parse().or_else(|_| account(user).map(|account| account.pw_uid))
}

/// The number of a group, given its name or number.
///
/// # Errors
/// There is no such group, as text.
pub fn group_id(group: &str) -> Result<u32, String> {
    let look_up = |_| entry::<libc::group>("group", group, libc::getgrnam_r);
    group.parse().or_else(|error| look_up(error).map(|entry| entry.gr_gid))
}

fn account(user: &str) -> Result<libc::passwd, String> {
    entry("user", user, libc::getpwnam_r)
}

/// `getpwnam_r` or `getgrnam_r`.
type Lookup<E> =
    unsafe extern "C" fn(*const c_char, *mut E, *mut c_char, libc::size_t, *mut *mut E) -> c_int;

/// The entry of that name. Its pointers are stale; only its numbers may be read.
fn entry<E>(kind: &str, name: &str, look_up: Lookup<E>) -> Result<E, String> {
    let c_name = CString::new(name).map_err(|_| format!("{name:?} is not a valid {kind} name"))?;
    let mut strings = vec![0; ENTRY_BYTES];
    let mut found = std::ptr::null_mut();
    let mut entry = MaybeUninit::<E>::zeroed();
    // SAFETY: the name ends in zero; entry, strings (with their length) and found are ours and live
    // until the call returns.
    let error = unsafe {
        look_up(
            c_name.as_ptr(),
            entry.as_mut_ptr(),
            strings.as_mut_ptr(),
            strings.len(),
            &raw mut found,
        )
    };
    match (error, found.is_null()) {
        // SAFETY: passwd and group are C structs of pointers and numbers; zero is valid.
        (0, false) => Ok(unsafe { entry.assume_init() }),
        (0, true) => Err(format!("there is no {kind} {name}")),
        (error, _) => Err(format!("{kind} {name}: {}", io::Error::from_raw_os_error(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_by_number() {
        let root = Identity::find("root", None).unwrap();
        assert_eq!((root.uid(), root.gid()), (0, 0));
        let numbers = Identity::find("12345", Some("54321")).unwrap();
        assert_eq!((numbers.uid(), numbers.gid()), (12345, 54321));
        assert!(Identity::find("12345", None).unwrap_err().contains("name a group"));
        assert!(Identity::find("no-such-user-here", None).unwrap_err().contains("no user"));
        assert!(Identity::find("root", Some("no-such-group")).unwrap_err().contains("no group"));
        assert_eq!((user_id("root"), user_id("7"), group_id("root")), (Ok(0), Ok(7), Ok(0)));
    }
}
