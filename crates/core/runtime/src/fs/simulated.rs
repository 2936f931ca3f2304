//! Files on the simulated disk: what [`super::File`] does there, with the delays that the world
//! draws.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::core;
use crate::sim::FileHandle;
use crate::sim::world::World;
use crate::sys::World as AnyWorld;
use crate::time;

/// When each file below a [`super::Directory`] was changed: 9 September 2001.
pub(super) const MODIFIED_NS: u64 = 1_000_000_000_000_000_000;

/// The world of the current core.
pub(super) fn current_world() -> io::Result<Rc<World>> {
    match &core::current().world {
        AnyWorld::Simulated(world) => Ok(Rc::clone(world)),
        AnyWorld::Real => Err(io::Error::other("a simulated file on a real core")),
    }
}

/// Waits for as long as the disk takes for one operation.
pub(super) async fn delay(world: &World) {
    let delay_ns = world.draw_disk_delay_ns();
    if delay_ns > 0 {
        time::sleep(Duration::from_nanos(delay_ns)).await;
    }
}

pub(super) async fn read(file: &FileHandle, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let world = current_world()?;
    delay(&world).await;
    world.read_file(file, buf, offset)
}

/// The write takes effect after the delay, or when the future is dropped: a write that the pool has
/// started runs to its end.
pub(super) async fn write(file: &FileHandle, bytes: &[u8], offset: u64) -> io::Result<()> {
    struct Pending<'f>(&'f FileHandle, u64);
    impl Drop for Pending<'_> {
        fn drop(&mut self) {
            // A handle from before a crash writes nothing.
            drop(self.0.finish_write(self.1));
        }
    }
    let world = current_world()?;
    world.trace("write file", offset, bytes.len());
    let pending = Pending(file, file.begin_write(bytes, offset)?);
    delay(&world).await;
    file.finish_write(pending.1)
}

pub(super) async fn sync(file: &FileHandle) -> io::Result<()> {
    let world = current_world()?;
    let up_to = file.begin_sync()?;
    delay(&world).await;
    world.trace("sync file", up_to, 0);
    file.finish_sync(up_to)
}

/// An operation that takes one delay and then `operation`.
pub(super) async fn delayed<T>(operation: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    delay(&*current_world()?).await;
    operation()
}
