//! Futures on the heap, in blocks that earlier ones have left.
//!
//! What: [`boxed`] is `Box::pin`, but the block comes from a list of the thread and goes back to
//! it. Why: a step that is too large for a silent connection is put on the heap for each request
//! that must wait, and in a steady state such a request allocates nothing.
//! Who owns: the thread that drops the future gets the block.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// Sizes of blocks: powers of two from 256 bytes to 32 KiB. Larger futures are not kept.
const CLASSES: usize = 8;
const SMALLEST_BYTES: usize = 256;
/// Blocks of one size that a thread keeps.
const KEPT_MAX: usize = 128;
const ALIGN: usize = 16;
const _: () = assert!(SMALLEST_BYTES << (CLASSES - 1) == 32 << 10);
const _: () = assert!(SMALLEST_BYTES.is_multiple_of(ALIGN) && SMALLEST_BYTES.is_power_of_two());

/// Puts a future on the heap. Inlined, so that the future is made in its block and is not copied:
/// nothing may take its address before, not even to drop it if a call panics.
#[inline(always)]
pub fn boxed<F: Future>(future: F) -> Boxed<F> {
    const {
        let (block, future) = (layout_of::<F>(), Layout::new::<F>());
        assert!(block.size() > 0, "a future of such an alignment has a size");
        assert!(block.size() >= future.size() && block.align() >= future.align());
    };
    let future = ManuallyDrop::new(future);
    let layout = layout_of::<F>();
    let block = take(layout).unwrap_or_else(|| {
        // SAFETY: the layout has a size above zero.
        let block = unsafe { alloc(layout) };
        NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
    });
    let block = block.cast::<F>();
    debug_assert!(block.is_aligned(), "a block has the alignment of its class");
    // SAFETY: the block has the size and the alignment of `F`, and is not in use.
    unsafe { block.write(ManuallyDrop::into_inner(future)) };
    Boxed { block, owns: PhantomData }
}

/// A future on the heap: see [`boxed`].
pub struct Boxed<F> {
    /// Invariant: a live `F`, in a block of `layout_of::<F>()`, which never moves.
    block: NonNull<F>,
    owns: PhantomData<F>,
}

/// The future is elsewhere, and never moves.
impl<F> Unpin for Boxed<F> {}

impl<F: Future> Future for Boxed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is alive and this is the only reference to it. It stays in its block
        // until it is dropped there, so it is pinned.
        let future = unsafe { Pin::new_unchecked(self.block.as_mut()) };
        future.poll(cx)
    }
}

impl<F> Drop for Boxed<F> {
    fn drop(&mut self) {
        // The block is freed even if the future panics when it is dropped.
        let _block = Block(self.block.cast(), layout_of::<F>());
        // SAFETY: it is alive, and is not used afterwards.
        unsafe { self.block.drop_in_place() };
    }
}

impl<F> std::fmt::Debug for Boxed<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Boxed").finish_non_exhaustive()
    }
}

/// A block that is given back when this is dropped.
struct Block(NonNull<u8>, Layout);

impl Drop for Block {
    fn drop(&mut self) {
        let Block(block, layout) = *self;
        let is_kept = FREE.try_with(|free| {
            let free = &mut free.borrow_mut()[class_of(layout)?];
            debug_assert!(layout_of_class(free.1) == layout, "a list has blocks of one layout");
            (free.0.len() < KEPT_MAX).then(|| free.0.push(block))
        });
        if is_kept.ok().flatten().is_none() {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(block.as_ptr(), layout) };
        }
    }
}

/// The free blocks of one size.
struct Free(Vec<NonNull<u8>>, usize);

impl Drop for Free {
    fn drop(&mut self) {
        for block in self.0.drain(..) {
            // SAFETY: all blocks of a list were allocated with the layout of its class.
            unsafe { dealloc(block.as_ptr(), layout_of_class(self.1)) };
        }
    }
}

thread_local! {
    static FREE: RefCell<[Free; CLASSES]> =
        RefCell::new(std::array::from_fn(|class| Free(Vec::new(), class)));
}

fn take(layout: Layout) -> Option<NonNull<u8>> {
    FREE.try_with(|free| free.borrow_mut()[class_of(layout)?].0.pop()).ok().flatten()
}

/// The layout of the block for an `F`: that of its class, or its own if it has none.
const fn layout_of<F>() -> Layout {
    let class = class_of(Layout::new::<F>());
    match class {
        Some(class) => layout_of_class(class),
        None => Layout::new::<F>(),
    }
}

const fn layout_of_class(class: usize) -> Layout {
    match Layout::from_size_align(SMALLEST_BYTES << class, ALIGN) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    }
}

/// The smallest class that a layout fits in.
const fn class_of(layout: Layout) -> Option<usize> {
    let blocks = layout.size().div_ceil(SMALLEST_BYTES);
    let class = blocks.next_power_of_two().trailing_zeros() as usize;
    if class < CLASSES && layout.align() <= ALIGN { Some(class) } else { None }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::task::Waker;

    use super::*;

    fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Waits once, and has so many bytes across the wait.
    async fn large<const N: usize>() -> usize {
        let bytes = [1u8; N];
        let mut waited = false;
        poll_fn(
            |_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending },
        )
        .await;
        bytes.iter().map(|byte| usize::from(*byte)).sum()
    }

    #[test]
    fn a_future_is_polled_to_its_end_and_its_block_is_used_again() {
        let mut one = boxed(large::<1000>());
        let block = one.block.cast::<u8>();
        assert!(poll_once(Pin::new(&mut one)).is_pending());
        assert_eq!(poll_once(Pin::new(&mut one)), Poll::Ready(1000));
        drop(one);
        let other = boxed(large::<900>());
        assert_eq!(other.block.cast::<u8>(), block);
        // Dropped before its end, and with the block still in use by another.
        let third = boxed(large::<950>());
        assert_ne!(third.block.cast::<u8>(), block);
    }

    #[test]
    fn what_a_future_owns_is_dropped_once() {
        struct Counted<'c>(&'c Cell<u32>);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let dropped = Cell::new(0);
        let owned = Counted(&dropped);
        let mut future = boxed(async move {
            let _owned = owned;
            std::future::pending::<()>().await;
        });
        assert!(poll_once(Pin::new(&mut future)).is_pending());
        assert_eq!(dropped.get(), 0);
        drop(future);
        assert_eq!(dropped.get(), 1);
    }

    #[test]
    fn sizes_have_the_smallest_block_that_holds_them() {
        let class = |bytes| class_of(Layout::from_size_align(bytes, 8).unwrap());
        assert_eq!(
            (class(0), class(256), class(257), class(512)),
            (Some(0), Some(0), Some(1), Some(1))
        );
        assert_eq!((class(32 << 10), class((32 << 10) + 1)), (Some(7), None));
        let mut huge = boxed(large::<100_000>());
        assert!(poll_once(Pin::new(&mut huge)).is_pending());
        assert_eq!(poll_once(Pin::new(&mut huge)), Poll::Ready(100_000));
        assert_eq!(class_of(Layout::from_size_align(64, 64).unwrap()), None);
    }
}
