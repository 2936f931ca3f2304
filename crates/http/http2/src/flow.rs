//! Windows of flow control (RFC 9113 sections 5.2 and 6.9).

use crate::error::Reason;
use crate::limits::WINDOW_BYTES_CEILING;

/// What we may send. Negative after the peer has lowered its initial window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow(i32);

impl SendWindow {
    /// A window of at most `WINDOW_BYTES_CEILING`.
    pub(crate) fn new(bytes: u32) -> SendWindow {
        SendWindow(bytes as i32)
    }

    #[inline]
    pub(crate) fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// Uses at most [`SendWindow::available`].
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) {
        self.0 -= bytes as i32;
    }

    /// The peer has granted more, or changed its initial window by this.
    pub(crate) fn add(&mut self, change: i64) -> Result<(), Reason> {
        let sum = i64::from(self.0) + change;
        self.0 = i32::try_from(sum).map_err(|_| Reason::WindowOverflow)?;
        Ok(())
    }
}

/// What the peer may send.
///
/// Invariant: `available + held + unreported` is the size of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    /// Negative after we have lowered the window.
    available: i32,
    /// Received and not released.
    held: u32,
    /// Released, and the peer does not know yet.
    unreported: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(bytes: u32) -> ReceiveWindow {
        ReceiveWindow { available: bytes as i32, held: 0, unreported: 0 }
    }

    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Reason> {
        if bytes as i64 > i64::from(self.available) {
            return Err(Reason::WindowExceeded);
        }
        self.available -= bytes as i32;
        self.held += bytes as u32;
        Ok(())
    }

    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    /// Releases bytes, at most those that are held.
    pub(crate) fn release(&mut self, bytes: u32) {
        let bytes = bytes.min(self.held);
        self.held -= bytes;
        self.unreported += bytes;
    }

    /// The increment to send now: nothing until half of the window is to be reported, so that there
    /// are few WINDOW_UPDATE frames and the peer is not kept waiting; or half of the part that is
    /// not held, so that streams whose content is held do not stop the others, but no less than a
    /// sixteenth.
    pub(crate) fn increment(&mut self, window_bytes: u32) -> Option<u32> {
        let not_held = self.available.max(0) as u32 + self.unreported;
        let enough = (not_held / 2).clamp(window_bytes / 16, window_bytes / 2);
        if self.unreported == 0 || self.unreported < enough {
            return None;
        }
        self.available += self.unreported as i32;
        Some(std::mem::take(&mut self.unreported))
    }

    /// The size of the window changes. The peer knows by other means.
    pub(crate) fn resize(&mut self, from: u32, to: u32) {
        self.available += (i64::from(to) - i64::from(from)) as i32;
    }
}

const _: () = assert!(WINDOW_BYTES_CEILING as i64 == i32::MAX as i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9113_6_9_1_windows_do_not_overflow() {
        let mut window = SendWindow::new(WINDOW_BYTES_CEILING);
        assert_eq!(window.add(1), Err(Reason::WindowOverflow));
        window.take(10);
        assert_eq!(window.add(10), Ok(()));
    }

    #[test]
    fn rfc9113_6_9_2_a_window_can_be_negative() {
        let mut window = SendWindow::new(100);
        window.take(80);
        window.add(-90).unwrap();
        assert_eq!(window.available(), 0);
        window.add(71).unwrap();
        assert_eq!(window.available(), 1);
    }

    #[test]
    fn rfc9113_5_2_released_bytes_are_reported_at_half_of_the_window() {
        let mut window = ReceiveWindow::new(100);
        window.take(100).unwrap();
        assert_eq!(window.take(1), Err(Reason::WindowExceeded));
        window.release(100);
        assert_eq!(window.increment(100), Some(100));
        window.take(49).unwrap();
        window.release(49);
        assert_eq!(window.increment(100), None);
        window.take(1).unwrap();
        window.release(1);
        assert_eq!(window.increment(100), Some(50));
        window.release(1_000);
        assert_eq!((window.held(), window.increment(100)), (0, None));
        window.take(100).unwrap();
    }

    /// Uploads that wait for a slow upstream stopped all others on their connection.
    #[test]
    fn content_that_is_held_does_not_stop_what_is_not() {
        let mut window = ReceiveWindow::new(100);
        window.take(80).unwrap();
        window.take(10).unwrap();
        window.release(5);
        assert_eq!(window.increment(100), None);
        window.release(5);
        assert_eq!(window.increment(100), Some(10));
    }
}
