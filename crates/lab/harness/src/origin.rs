//! An origin in a thread of this process, for measurements that read its counters.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use load::{Origin, OriginCounters, sys};

/// A running origin. Dropping it stops it.
pub struct OriginThread {
    address: SocketAddr,
    counters: Arc<OriginCounters>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl OriginThread {
    /// Starts it on a free loopback port, on a CPU if one is given.
    ///
    /// # Errors
    /// There is no free port; one line.
    pub fn start(cpu: Option<usize>) -> Result<OriginThread, String> {
        let origin = Origin::bind((Ipv4Addr::LOCALHOST, 0).into());
        let origin = origin.map_err(|error| format!("origin: {error}"))?;
        let (address, counters) = (origin.local_addr(), origin.counters());
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            cpu.map(sys::pin_to_cpu).transpose()?;
            origin.run(&flag)
        });
        Ok(OriginThread { address, counters, stop, thread: Some(thread) })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its counters.
    pub fn counters(&self) -> &OriginCounters {
        &self.counters
    }

    /// Stops it.
    ///
    /// # Errors
    /// It failed while it ran; one line.
    pub fn stop(mut self) -> Result<(), String> {
        match self.join() {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(format!("origin: {error}")),
            Some(Err(_)) => Err("origin: its thread panicked".to_owned()),
        }
    }

    fn join(&mut self) -> Option<thread::Result<io::Result<()>>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for OriginThread {
    fn drop(&mut self) {
        let _ = self.join();
    }
}
