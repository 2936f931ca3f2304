//! Values of one core that are used again, with the memory that they own.
//!
//! What: a [`Reused`] value goes back to its [`Spares`] when it is dropped. Why: a request that
//! must wait needs a few buffers, and in a steady state they are those of earlier requests. Bound:
//! [`SPARES_MAX`] values, and none that has grown beyond what is usual.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use http1::{OwnedRequest, OwnedResponse};

use crate::limits::{SPARE_BYTES_MAX, SPARES_MAX};

/// A value that can be used again.
pub trait Reusable {
    /// Bytes that it owns, apart from itself.
    fn owned_bytes(&self) -> usize;

    /// Whether nothing else uses it.
    fn is_free(&mut self) -> bool {
        true
    }
}

impl Reusable for Vec<u8> {
    fn owned_bytes(&self) -> usize {
        self.capacity()
    }
}

impl Reusable for OwnedResponse {
    fn owned_bytes(&self) -> usize {
        self.heap_bytes()
    }
}

impl Reusable for OwnedRequest {
    fn owned_bytes(&self) -> usize {
        self.heap_bytes()
    }
}

impl<T: Reusable> Reusable for Box<T> {
    fn owned_bytes(&self) -> usize {
        (**self).owned_bytes()
    }
}

/// A shared value waits to be used again when its last user has dropped it.
impl<T: Reusable> Reusable for Rc<T> {
    fn owned_bytes(&self) -> usize {
        (**self).owned_bytes()
    }

    fn is_free(&mut self) -> bool {
        Rc::get_mut(self).is_some()
    }
}

/// The head of a client's request, which outlives the bytes that it was read from.
pub type SharedHead = Reused<Rc<OwnedRequest>>;

/// Values that wait to be used again.
#[derive(Debug)]
pub struct Spares<T>(Rc<RefCell<Vec<T>>>);

impl<T> Default for Spares<T> {
    fn default() -> Spares<T> {
        Spares(Rc::default())
    }
}

impl<T: Reusable> Spares<T> {
    /// An earlier value, which `again` makes into what is needed, or else a new one.
    pub fn take(&self, new: impl FnOnce() -> T, again: impl FnOnce(&mut T)) -> Reused<T> {
        let earlier = self.0.borrow_mut().pop();
        let value = match earlier {
            Some(mut earlier) => {
                again(&mut earlier);
                earlier
            }
            None => new(),
        };
        Reused { value: Some(value), home: Rc::clone(&self.0) }
    }
}

/// A value that is used once more. See [`Spares`].
#[derive(Debug)]
pub struct Reused<T: Reusable> {
    /// Invariant: `Some` until it is dropped.
    value: Option<T>,
    home: Rc<RefCell<Vec<T>>>,
}

impl<T: Reusable> Deref for Reused<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Reusable> DerefMut for Reused<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until it is dropped")
    }
}

impl<T: Reusable> Drop for Reused<T> {
    fn drop(&mut self) {
        let Some(mut value) = self.value.take() else { return };
        let mut home = self.home.borrow_mut();
        if home.len() < SPARES_MAX && value.is_free() && value.owned_bytes() <= SPARE_BYTES_MAX {
            home.push(value);
        }
    }
}
