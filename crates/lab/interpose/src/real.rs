//! The functions of the C library that ours replace, found once by `dlsym(RTLD_NEXT)`.
//!
//! They are looked up when the library is loaded, because `dlsym` must not be called in a signal
//! handler or between fork and exec. A call before that looks its function up itself.

use std::ffi::CStr;
use std::mem::transmute_copy;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_uint, c_void};

/// One function of the C library.
struct Original {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Original {
    const fn new(name: &'static CStr) -> Original {
        Original { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[inline]
    fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.look_up() } else { found }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name is a C string; RTLD_NEXT is a valid handle.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Each entry becomes a function that calls the original. Without an original (an older C library)
/// it fails with `ENOSYS`, like a missing system call.
macro_rules! originals {
    ($($(#[$doc:meta])* $abi:literal $name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub(crate) unsafe fn $name($($argument: $type),*) -> c_int {
                let address = all::$name.address();
                if address.is_null() {
                    crate::sys::set_errno(libc::ENOSYS);
                    return -1;
                }
                // SAFETY: the address is of the function that the C library documents with this
                // name and these arguments; the caller keeps its contract.
                unsafe {
                    let call: unsafe extern $abi fn($($type),*) -> c_int =
                        transmute_copy(&address);
                    call($($argument),*)
                }
            }
        )*

        #[expect(non_upper_case_globals, reason = "each is named after its function")]
        mod all {
            use super::Original;

            $(
                pub(super) static $name: Original =
                    Original::new(match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => c"",
                    });
            )*
        }

        /// Looks all of them up before they are needed.
        pub(crate) fn look_up_all() {
            $(all::$name.address();)*
        }
    };
}

originals! {
    "C-unwind" poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int);
    "C-unwind" ppoll(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t
    );
    "C-unwind" __poll_chk(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: c_int,
        bytes: usize
    );
    "C-unwind" __ppoll_chk(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t,
        bytes: usize
    );
    "C-unwind" select(
        count: c_int,
        read: *mut libc::fd_set,
        write: *mut libc::fd_set,
        except: *mut libc::fd_set,
        timeout: *mut libc::timeval
    );
    "C-unwind" pselect(
        count: c_int,
        read: *mut libc::fd_set,
        write: *mut libc::fd_set,
        except: *mut libc::fd_set,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t
    );
    "C-unwind" close(fd: c_int);
    "C-unwind" close_range(first: c_uint, last: c_uint, flags: c_int);
    "C-unwind" closefrom(first: c_int);
    "C-unwind" dup(fd: c_int);
    "C-unwind" dup2(old: c_int, new: c_int);
    "C-unwind" dup3(old: c_int, new: c_int, flags: c_int);
    /// Its third argument is an integer, a pointer or absent; all are passed the same way.
    "C-unwind" fcntl(fd: c_int, command: c_int, argument: usize);
    "C-unwind" fcntl64(fd: c_int, command: c_int, argument: usize);
    "C-unwind" socket(domain: c_int, kind: c_int, protocol: c_int);
    "C-unwind" socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int);
    "C-unwind" accept(fd: c_int, address: *mut libc::sockaddr, length: *mut libc::socklen_t);
    "C-unwind" accept4(
        fd: c_int,
        address: *mut libc::sockaddr,
        length: *mut libc::socklen_t,
        flags: c_int
    );
    "C-unwind" pipe(pair: *mut c_int);
    "C-unwind" pipe2(pair: *mut c_int, flags: c_int);
    "C-unwind" epoll_create(size: c_int);
    "C-unwind" epoll_create1(flags: c_int);
    "C-unwind" eventfd(count: c_uint, flags: c_int);
    "C-unwind" timerfd_create(clock: c_int, flags: c_int);
    "C-unwind" signalfd(fd: c_int, mask: *const libc::sigset_t, flags: c_int);
    "C-unwind" inotify_init1(flags: c_int);
}
