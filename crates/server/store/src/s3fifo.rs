//! S3-FIFO as a pure structure: which object to evict when room is needed.
//!
//! After Yang, Zhang, Qiu, Yue, Vinayak, "FIFO queues are all you need for cache eviction" (SOSP
//! 2023), for objects of different sizes. Two FIFO queues hold the objects; a third only remembers
//! keys:
//!
//! ```text
//!            new ──────────▶ [ small, 10 % of the bytes ] ── touched twice ──▶ main
//!                                   │ else
//!                                   ▼
//!   seen again ◀────────── [ ghost: fingerprints ]
//!      │
//!      └──▶ [ main, 90 % ] ── tail touched: back to the head, one touch less
//!                 │ else
//!                 ▼ evicted
//! ```
//!
//! Most objects are requested once; they leave through the small queue without disturbing main. A
//! touch is a two-bit counter and moves nothing (lazy promotion), so a hit writes one byte.
//!
//! Who owns what: the caller owns the map from keys to slots. This structure owns the slots, their
//! order, the sum of bytes, and the caller's value in each slot (next to the key, so that a look-up
//! reads one cache line). It never decides *when* to evict: the caller asks for victims until its
//! bound holds. What never happens: an allocation, a search or a move on access. Eviction is O(1)
//! amortised, because each round through main takes a touch away, and bounded.
//!
//! Invariants: `small.bytes + main.bytes == bytes()`; the queues' lengths add up to `len()`; after
//! each eviction from small `ghost.len() <= max(len(), GHOST_ENTRIES_MIN)`; touches of a slot
//! `<= TOUCHES_MAX`.

mod ghost;

use ghost::Ghost;

/// Bytes of the ghost per object, for accounting.
pub const GHOST_BYTES: usize = ghost::GHOST_ENTRY_BYTES;

/// Share of the bytes that new objects may take before the tail of the small queue is evicted
/// first.
pub const SMALL_PERCENT: u64 = 10;
/// Maximum of the touch count (two bits).
pub const TOUCHES_MAX: u8 = 3;
/// Touches in the small queue that move an object to main instead of evicting it.
pub const TOUCHES_TO_MAIN: u8 = 2;
/// Second chances in one search for a victim; after that the next object is evicted whatever its
/// touches. Eviction is O(1) amortised without this bound. The bound keeps every single eviction
/// fast, even if every object of a large store has been touched.
pub const MOVES_PER_EVICTION_MAX: usize = 64;
/// The ghost remembers as many objects as are stored, but at least this many.
pub const GHOST_ENTRIES_MIN: usize = 64;

const _: () = assert!(SMALL_PERCENT > 0 && SMALL_PERCENT < 100);
const _: () = assert!(0 < TOUCHES_TO_MAIN && TOUCHES_TO_MAIN <= TOUCHES_MAX);
const _: () = assert!(MOVES_PER_EVICTION_MAX > TOUCHES_MAX as usize && GHOST_ENTRIES_MIN > 0);

/// A place in the slab: dense, reused.
pub type Slot = u32;

const NONE: Slot = u32::MAX;

/// One evicted or removed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone<T> {
    /// Its former slot, free again.
    pub slot: Slot,
    /// Its key.
    pub key: u128,
    /// Its accounted bytes.
    pub bytes: u64,
    /// The caller's value.
    pub held: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    Small,
    Main,
}

/// One cache line for a payload of up to three words.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Node<T> {
    key: u128,
    bytes: u64,
    /// Towards the head, the youngest.
    younger: Slot,
    /// Towards the tail, the oldest; in a free node the next free one.
    older: Slot,
    touches: u8,
    place: Place,
    /// `None` exactly if the place is free.
    held: Option<T>,
}

/// Bytes of the slab per object, for accounting.
#[must_use]
pub const fn node_bytes<T>() -> usize {
    size_of::<Node<T>>()
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    head: Slot,
    tail: Slot,
    len: usize,
    bytes: u64,
}

impl Queue {
    const EMPTY: Queue = Queue { head: NONE, tail: NONE, len: 0, bytes: 0 };
}

/// The eviction order of a set of sized objects.
#[derive(Clone, Debug)]
pub struct Policy<T> {
    nodes: Vec<Node<T>>,
    free: Slot,
    small: Queue,
    main: Queue,
    ghost: Ghost,
    small_bytes_max: u64,
}

impl<T> Policy<T> {
    /// For a cache of this many bytes. Only the proportion of the queues depends on it.
    #[must_use]
    pub fn new(bytes_max: u64) -> Policy<T> {
        Policy {
            nodes: Vec::new(),
            free: NONE,
            small: Queue::EMPTY,
            main: Queue::EMPTY,
            ghost: Ghost::default(),
            small_bytes_max: small_share(bytes_max),
        }
    }

    /// Reserves room for this many objects.
    pub fn reserve(&mut self, objects: usize) {
        self.nodes.reserve(objects.saturating_sub(self.nodes.len()));
    }

    /// Changes the size of the cache.
    pub fn resize(&mut self, bytes_max: u64) {
        self.small_bytes_max = small_share(bytes_max);
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.small.len + self.main.len
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all objects.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    /// Upper bound of all slots handed out so far.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.nodes.len()
    }

    /// The key in a slot; `None` if it is free.
    #[must_use]
    pub fn key(&self, slot: Slot) -> Option<u128> {
        let node = self.nodes.get(slot as usize)?;
        (node.place != Place::Free).then_some(node.key)
    }

    /// The caller's value in a slot; `None` if it is free.
    #[must_use]
    pub fn held(&self, slot: Slot) -> Option<&T> {
        let node = self.nodes.get(slot as usize)?;
        debug_assert_eq!(node.held.is_none(), node.place == Place::Free);
        node.held.as_ref()
    }

    /// Replaces the value in a taken slot. Returns the old one.
    pub fn replace_held(&mut self, slot: Slot, held: T) -> T {
        let node = &mut self.nodes[slot as usize];
        assert!(node.place != Place::Free, "only a stored object is replaced");
        node.held.replace(held).expect("the slot is taken")
    }

    /// The bytes of a taken slot.
    #[must_use]
    pub fn bytes_of(&self, slot: Slot) -> u64 {
        self.node(slot).bytes
    }

    /// Notes an access. O(1), writes at most one byte.
    #[inline]
    pub fn touch(&mut self, slot: Slot) {
        let node = &mut self.nodes[slot as usize];
        debug_assert!(node.place != Place::Free, "only a stored object is touched");
        if node.touches < TOUCHES_MAX {
            node.touches += 1;
        }
        debug_assert!(node.touches <= TOUCHES_MAX);
    }

    /// Adds an object: to main if the ghost remembers it, otherwise to small. The key must not be
    /// present, and the caller must have made room.
    pub fn insert(&mut self, key: u128, bytes: u64, held: T) -> Slot {
        let place = if self.ghost.forget(key) { Place::Main } else { Place::Small };
        let node = Node {
            key,
            bytes,
            younger: NONE,
            older: NONE,
            touches: 0,
            place: Place::Free,
            held: Some(held),
        };
        let (len, slot) = (self.len(), self.take_slot(node));
        self.push(slot, place);
        assert!(self.len() == len + 1 && self.len() <= self.nodes.len(), "each object has a slot");
        slot
    }

    /// Shrinks an object in place. `bytes` must not exceed its current size.
    pub fn shrink_object(&mut self, slot: Slot, bytes: u64) {
        let node = &mut self.nodes[slot as usize];
        let before = std::mem::replace(&mut node.bytes, bytes);
        let place = node.place;
        let queue = self.queue_mut(place);
        assert!(bytes <= before, "an object that grows is detached first");
        queue.bytes -= before - bytes;
    }

    /// Removes an object from the order while room is made for a larger one in its place, so that
    /// it is not evicted. It must be attached again.
    pub fn detach(&mut self, slot: Slot) -> Detached {
        let place = self.node(slot).place;
        assert!(place != Place::Free, "only a stored object is detached");
        self.unlink(slot);
        Detached { slot, place }
    }

    /// Puts a detached object back with its new size, as the youngest of its queue. It keeps its
    /// touches.
    pub fn attach(&mut self, detached: Detached, bytes: u64) {
        let node = &mut self.nodes[detached.slot as usize];
        assert!(node.held.is_some(), "a detached object keeps its slot");
        assert!(node.place == detached.place && node.touches <= TOUCHES_MAX);
        node.bytes = bytes;
        self.push(detached.slot, detached.place);
    }

    /// Removes an object. The ghost does not remember it.
    pub fn remove(&mut self, slot: Slot) -> Gone<T> {
        self.unlink(slot);
        self.free_slot(slot)
    }

    /// Removes the next victim; `None` if there are no objects.
    pub fn evict(&mut self) -> Option<Gone<T>> {
        let mut moves = 0;
        if self.small.bytes > self.small_bytes_max || self.main.len == 0 {
            while self.small.len > 0 && moves < MOVES_PER_EVICTION_MAX {
                let slot = self.small.tail;
                if self.node(slot).touches < TOUCHES_TO_MAIN {
                    self.unlink(slot);
                    let gone = self.free_slot(slot);
                    self.ghost.remember(gone.key, self.len().max(GHOST_ENTRIES_MIN));
                    debug_assert!(self.ghost.len() <= self.len().max(GHOST_ENTRIES_MIN));
                    return Some(gone);
                }
                debug_assert_eq!(self.node(slot).place, Place::Small);
                self.unlink(slot);
                self.nodes[slot as usize].touches = 0;
                self.push(slot, Place::Main);
                moves += 1;
            }
        }
        self.evict_from_main(moves)
    }

    /// Each iteration takes a touch away.
    fn evict_from_main(&mut self, mut moves: usize) -> Option<Gone<T>> {
        while self.main.len > 0 {
            let slot = self.main.tail;
            self.unlink(slot);
            debug_assert_eq!(self.node(slot).place, Place::Main);
            debug_assert!(moves <= MOVES_PER_EVICTION_MAX, "a search for a victim is bounded");
            if self.node(slot).touches == 0 || moves >= MOVES_PER_EVICTION_MAX {
                return Some(self.free_slot(slot));
            }
            self.nodes[slot as usize].touches -= 1;
            self.push(slot, Place::Main);
            moves += 1;
        }
        assert!(self.is_empty(), "there is a victim as long as there are objects");
        None
    }

    fn node(&self, slot: Slot) -> &Node<T> {
        &self.nodes[slot as usize]
    }

    fn queue_mut(&mut self, place: Place) -> &mut Queue {
        match place {
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
            Place::Free => panic!("a free slot is in no queue"),
        }
    }

    fn take_slot(&mut self, node: Node<T>) -> Slot {
        if self.free == NONE {
            let slot = Slot::try_from(self.nodes.len()).expect("a slot has 32 bits");
            assert!(slot != NONE, "the last slot number means none");
            self.nodes.push(node);
            return slot;
        }
        let slot = self.free;
        assert!(self.node(slot).place == Place::Free, "the free list has free slots only");
        assert!(self.node(slot).held.is_none(), "a free slot holds nothing");
        self.free = self.node(slot).older;
        self.nodes[slot as usize] = node;
        slot
    }

    fn free_slot(&mut self, slot: Slot) -> Gone<T> {
        let free = self.free;
        let node = &mut self.nodes[slot as usize];
        assert!(node.place != Place::Free && slot != free, "a slot is freed once");
        node.place = Place::Free;
        node.older = free;
        self.free = slot;
        let held = node.held.take().expect("a taken slot holds something");
        Gone { slot, key: node.key, bytes: node.bytes, held }
    }

    fn push(&mut self, slot: Slot, place: Place) {
        let bytes = self.node(slot).bytes;
        debug_assert!(self.node(slot).held.is_some(), "a queue has objects only");
        let queue = self.queue_mut(place);
        let old_head = std::mem::replace(&mut queue.head, slot);
        assert!((queue.len == 0) == (old_head == NONE), "a queue without objects has no head");
        if old_head == NONE {
            queue.tail = slot;
        }
        queue.len += 1;
        queue.bytes += bytes;
        if old_head != NONE {
            assert!(old_head != slot, "an object is in its queue once");
            let second = &mut self.nodes[old_head as usize];
            debug_assert!(second.younger == NONE && second.place == place);
            second.younger = slot;
        }
        let node = &mut self.nodes[slot as usize];
        (node.younger, node.older, node.place) = (NONE, old_head, place);
    }

    fn unlink(&mut self, slot: Slot) {
        let node = self.node(slot);
        let (younger, older, bytes, place) = (node.younger, node.older, node.bytes, node.place);
        let queue = self.queue_mut(place);
        assert!(queue.len > 0 && queue.bytes >= bytes, "a queue counts what is in it");
        debug_assert_eq!(younger == NONE, queue.head == slot);
        debug_assert_eq!(older == NONE, queue.tail == slot);
        if younger == NONE {
            queue.head = older;
        }
        if older == NONE {
            queue.tail = younger;
        }
        queue.len -= 1;
        queue.bytes -= bytes;
        assert!((queue.len == 0) == (queue.head == NONE), "a queue without objects has no head");
        if younger != NONE {
            debug_assert!(self.node(younger).older == slot && self.node(younger).place == place);
            self.nodes[younger as usize].older = older;
        }
        if older != NONE {
            debug_assert!(self.node(older).younger == slot && self.node(older).place == place);
            self.nodes[older as usize].younger = younger;
        }
    }
}

/// An object between [`Policy::detach`] and [`Policy::attach`].
#[derive(Debug)]
#[must_use = "a detached object must be attached again"]
pub struct Detached {
    slot: Slot,
    place: Place,
}

/// At least one byte, so that a tiny cache still has a main queue.
fn small_share(bytes_max: u64) -> u64 {
    let share = bytes_max / 100 * SMALL_PERCENT + bytes_max % 100 * SMALL_PERCENT / 100;
    assert!(share <= bytes_max, "a share is a part");
    share.max(1)
}

#[cfg(test)]
mod tests;
