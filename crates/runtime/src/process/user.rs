//! The user that the process goes on as, once it has bound its addresses.

use std::ffi::CString;
use std::io;

/// A user and its group, as the system's table of accounts has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: String,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

/// Room for an account's strings; the system asks for more with `ERANGE`.
const ENTRY_BYTES: usize = 16 * 1024;

impl Identity {
    /// Looks up a user by name or number, and its own group or another one.
    ///
    /// # Errors
    /// There is no such user or group; in words.
    pub fn find(user: &str, group: Option<&str>) -> Result<Identity, String> {
        let (uid, own_gid) = match user.parse() {
            Ok(uid) => (uid, None),
            Err(_) => {
                let (uid, gid) = user_entry(user)?;
                (uid, Some(gid))
            }
        };
        let gid = match (group, own_gid) {
            (Some(group), _) => match group.parse() {
                Ok(gid) => gid,
                Err(_) => group_entry(group)?,
            },
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

    /// Whether the process is this user already.
    pub fn is_ours(&self) -> bool {
        // SAFETY: no pointers; neither call fails.
        unsafe { libc::geteuid() == self.uid && libc::getegid() == self.gid }
    }

    /// Becomes this user, for good and on every thread: supplementary groups, group, user, in this
    /// order, and no program that is run later gets more rights than we have.
    ///
    /// # Errors
    /// What could not be given up, in words. The process must end then.
    pub fn assume(&self) -> Result<(), String> {
        let failed = |what: &str| {
            format!("cannot become {} ({what}): {}", self.name, io::Error::last_os_error())
        };
        if !self.is_ours() {
            if !is_root() {
                return Err(format!("cannot become {}: only root may change the user", self.name));
            }
            // SAFETY: one group, which lives until the call returns.
            if unsafe { libc::setgroups(1, &raw const self.gid) } != 0 {
                return Err(failed("setgroups"));
            }
            // SAFETY: no pointers.
            if unsafe { libc::setresgid(self.gid, self.gid, self.gid) } != 0 {
                return Err(failed("setresgid"));
            }
            // SAFETY: no pointers.
            if unsafe { libc::setresuid(self.uid, self.uid, self.uid) } != 0 {
                return Err(failed("setresuid"));
            }
            // SAFETY: no pointers.
            if self.uid != 0 && unsafe { libc::setresuid(0, 0, 0) } == 0 {
                return Err(format!("{} can become root again", self.name));
            }
        }
        // SAFETY: no pointers.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(failed("no_new_privs"));
        }
        Ok(())
    }
}

/// Whether the process may do everything.
pub fn is_root() -> bool {
    // SAFETY: no pointers; it does not fail.
    unsafe { libc::geteuid() == 0 }
}

fn name_of(kind: &str, name: &str) -> Result<CString, String> {
    CString::new(name).map_err(|_| format!("{name:?} is no {kind}'s name"))
}

fn user_entry(name: &str) -> Result<(libc::uid_t, libc::gid_t), String> {
    let asked = name_of("user", name)?;
    let mut strings = vec![0; ENTRY_BYTES];
    let mut found = std::ptr::null_mut();
    // SAFETY: a C struct of pointers and numbers, for which zero is a value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends in zero; entry, strings (with their length) and found are ours and live
    // until the call returns.
    let error = unsafe {
        libc::getpwnam_r(
            asked.as_ptr(),
            &raw mut entry,
            strings.as_mut_ptr(),
            strings.len(),
            &raw mut found,
        )
    };
    match (error, found.is_null()) {
        (0, false) => Ok((entry.pw_uid, entry.pw_gid)),
        (0, true) => Err(format!("there is no user {name}")),
        (error, _) => Err(format!("user {name}: {}", io::Error::from_raw_os_error(error))),
    }
}

fn group_entry(name: &str) -> Result<libc::gid_t, String> {
    let asked = name_of("group", name)?;
    let mut strings = vec![0; ENTRY_BYTES];
    let mut found = std::ptr::null_mut();
    // SAFETY: a C struct of pointers and numbers, for which zero is a value.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let error = unsafe {
        libc::getgrnam_r(
            asked.as_ptr(),
            &raw mut entry,
            strings.as_mut_ptr(),
            strings.len(),
            &raw mut found,
        )
    };
    match (error, found.is_null()) {
        (0, false) => Ok(entry.gr_gid),
        (0, true) => Err(format!("there is no group {name}")),
        (error, _) => Err(format!("group {name}: {}", io::Error::from_raw_os_error(error))),
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
    }
}
