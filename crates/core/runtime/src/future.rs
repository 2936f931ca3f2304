//! Two futures at once: which is first, or both; and the waker of a future that waits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

/// Wakes the task that waits here, if one does.
pub fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// Which of two futures finished first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first one.
    Left(A),
    /// The second one.
    Right(B),
}

/// Runs both until one is done, and drops the other. The left one is polled first: it wins a tie.
pub async fn race<A: Future, B: Future>(left: A, right: B) -> Either<A::Output, B::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|cx| {
        if let Poll::Ready(output) = left.as_mut().poll(cx) {
            return Poll::Ready(Either::Left(output));
        }
        right.as_mut().poll(cx).map(Either::Right)
    })
    .await
}

/// Runs both until both are done.
pub async fn join<A: Future, B: Future>(left: A, right: B) -> (A::Output, B::Output) {
    let (mut left, mut right) = (pin!(left), pin!(right));
    let (mut left_done, mut right_done) = (None, None);
    poll_fn(|cx| {
        if left_done.is_none()
            && let Poll::Ready(output) = left.as_mut().poll(cx)
        {
            left_done = Some(output);
        }
        if right_done.is_none()
            && let Poll::Ready(output) = right.as_mut().poll(cx)
        {
            right_done = Some(output);
        }
        match (left_done.take(), right_done.take()) {
            (Some(left), Some(right)) => Poll::Ready((left, right)),
            (left, right) => {
                (left_done, right_done) = (left, right);
                Poll::Pending
            }
        }
    })
    .await
}
