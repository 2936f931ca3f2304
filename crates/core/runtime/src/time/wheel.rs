//! The hierarchical timer wheel: set and cancel in O(1), whatever the number of timers.
//!
//! What: six levels of 64 slots. A slot of level 0 is one tick (the caller's resolution, a
//! millisecond here), a slot of level n is 64^n ticks. A timer is in the level of the highest
//! base-64 digit in which its deadline differs from the present, and moves down when the present
//! reaches its slot. So its list follows from its deadline and the present, and is not stored.
//! Why: a server sets a timer for nearly every wait and cancels nearly all of them; a heap would
//! pay a logarithm for each.
//! Who owns: one core. Timers live in one slab and are linked by index, so that setting one
//! allocates only when there are more timers than ever before. An entry belongs to its [`Key`]
//! until the key is given back to [`Wheel::cancel`], also after the timer has fired.
//! What never happens: a timer is due before its tick; two keys name one entry.
//!
//! ```text
//!          set                  advance: the tick is reached      pop_due
//!   free -------> in a level ---------------------------> due -------------> fired
//!    ^                 |                                   |                   |
//!    +-----cancel------+--------------cancel---------------+------cancel-------+
//! ```
//!
//! After G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987.

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 6;
/// The farthest deadline, in ticks from the present: 63 * 64^5 ticks, two years of milliseconds. A
/// timer for a later deadline fires then, and its owner sets it again.
pub(crate) const REACH: u64 = (SLOTS as u64 - 1) << (DIGIT_BITS * (LEVELS as u32 - 1));

const NIL: u32 = u32::MAX;
/// Lists: `level * SLOTS + slot`, then the list of timers that are due.
const DUE: usize = LEVELS * SLOTS;
const LISTS: usize = DUE + 1;

/// Timers that are set on one core at a time, and entries of timers that have fired.
const TIMERS_MAX: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 24;
/// Ticks have the remaining bits of a key: 34 years of milliseconds.
const TICKS_MAX: u64 = 1 << (u64::BITS - INDEX_BITS);

const _: () = assert!(SLOTS == u64::BITS as usize, "a level's occupancy is one word");
const _: () = assert!(DIGIT_BITS * (LEVELS as u32) < u64::BITS);
const _: () = assert!(TIMERS_MAX <= NIL as usize && REACH < TICKS_MAX);

/// The one name of a timer's entry, and the tick of the timer.
#[derive(Debug)]
pub(crate) struct Key(u64);

impl Key {
    fn new(tick: u64, index: u32) -> Key {
        debug_assert!(tick < TICKS_MAX && (index as usize) < TIMERS_MAX);
        Key(tick << INDEX_BITS | u64::from(index))
    }

    /// The tick at which the timer fires.
    pub(crate) fn tick(&self) -> u64 {
        self.0 >> INDEX_BITS
    }

    fn index(&self) -> u32 {
        self.0 as u32 & (TIMERS_MAX as u32 - 1)
    }
}

/// A timer is in a list exactly if it has a value.
#[derive(Debug)]
struct Entry<T> {
    deadline: u64,
    /// Of a timer in a list.
    prev: u32,
    /// Of a timer in a list, or the next free entry.
    next: u32,
    value: Option<T>,
}

const _: () =
    assert!(size_of::<Entry<crate::PackedWaker>>() == 24, "a cold connection pays for it");

/// First and last entry of one list.
#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

#[derive(Debug)]
pub(crate) struct Wheel<T> {
    /// The present: every timer with `deadline <= now` is in the due list or has fired.
    now: u64,
    occupied: [u64; LEVELS],
    lists: Box<[List; LISTS]>,
    entries: Vec<Entry<T>>,
    free: u32,
    /// Entries that belong to a key.
    len: usize,
}

impl<T> Wheel<T> {
    /// An empty wheel whose present is tick 0.
    pub(crate) fn new() -> Self {
        Wheel {
            now: 0,
            occupied: [0; LEVELS],
            lists: Box::new([List { head: NIL, tail: NIL }; LISTS]),
            entries: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    /// Entries that belong to a key.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sets a timer for tick `deadline`; a timer in the past is due at once, and a timer beyond
    /// [`REACH`] fires at the end of the reach.
    pub(crate) fn set(&mut self, deadline: u64, value: T) -> Key {
        let deadline = deadline.min(self.now + REACH);
        assert!(deadline < TICKS_MAX, "a core does not run for {TICKS_MAX} ticks");
        let index = self.take_entry(deadline, value);
        self.place(index);
        Key::new(deadline, index)
    }

    /// Cancels the timer and frees its entry. `None` if it has fired.
    pub(crate) fn cancel(&mut self, key: Key) -> Option<T> {
        let index = key.index();
        let is_set = self.entries[index as usize].value.is_some();
        if is_set {
            self.unlink(index);
        }
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.deadline == key.tick(), "a key names one entry");
        entry.next = self.free;
        self.free = index;
        assert!(self.len > 0, "an entry is freed once");
        self.len -= 1;
        entry.value.take()
    }

    /// The timer's value, as long as it has not fired.
    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut T> {
        let entry = &mut self.entries[key.index() as usize];
        debug_assert!(entry.deadline == key.tick(), "a key names one entry");
        entry.value.as_mut()
    }

    /// Moves the present to `now`. Take the timers that became due with [`Wheel::pop_due`].
    pub(crate) fn advance(&mut self, now: u64) {
        while let Some((tick, list)) = self.next_slot() {
            if tick > now {
                break;
            }
            debug_assert!(self.now < tick, "the present only moves forward");
            self.now = tick;
            self.empty_slot(list);
        }
        self.now = self.now.max(now);
        debug_assert!(self.next_slot().is_none_or(|(tick, _)| tick > now), "no timer is late");
    }

    /// Fires one timer that is due. Timers due in different calls of `advance` come in order.
    pub(crate) fn pop_due(&mut self) -> Option<T> {
        let index = self.lists[DUE].head;
        if index == NIL {
            return None;
        }
        debug_assert!(self.entries[index as usize].deadline <= self.now, "no timer is early");
        self.unlink(index);
        self.entries[index as usize].value.take()
    }

    /// The tick at which `advance` next has work; never later than the earliest deadline. `None` if
    /// no timer is set.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        if self.lists[DUE].head != NIL {
            return Some(self.now);
        }
        self.next_slot().map(|(tick, _)| tick)
    }

    /// The earliest occupied slot as (its first tick, its list). All timers of a level come before
    /// those of the levels above, so the first occupied level has it.
    fn next_slot(&self) -> Option<(u64, usize)> {
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        let shift = DIGIT_BITS * level as u32;
        let digit = (self.now >> shift) as u32 % SLOTS as u32;
        let ahead = u64::from(self.occupied[level].rotate_right(digit).trailing_zeros());
        let slot = (digit as usize + ahead as usize) % SLOTS;
        let start = ((self.now >> shift) + ahead) << shift;
        debug_assert!(ahead < SLOTS as u64 && start > self.now, "due timers are in the due list");
        Some((start, level * SLOTS + slot))
    }

    /// Places every timer of `list` again: into the due list or a lower level.
    fn empty_slot(&mut self, list: usize) {
        let mut index = self.lists[list].head;
        self.lists[list] = List { head: NIL, tail: NIL };
        self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        while index != NIL {
            let next = self.entries[index as usize].next;
            self.place(index);
            index = next;
        }
    }

    /// The list of a timer with this deadline. It is the same from the timer's placing until the
    /// present reaches the timer's slot: up to then, the present and the deadline differ in the
    /// digit of the level, and agree in all higher digits.
    fn list_of(&self, deadline: u64) -> usize {
        if deadline <= self.now {
            return DUE;
        }
        debug_assert!(deadline - self.now <= REACH, "a level has its slots once");
        let highest_bit = u64::BITS - 1 - (deadline ^ self.now).leading_zeros();
        let level = (highest_bit / DIGIT_BITS).min(LEVELS as u32 - 1);
        let slot = (deadline >> (DIGIT_BITS * level)) as usize % SLOTS;
        level as usize * SLOTS + slot
    }

    /// Appends the unlinked entry to the list for its deadline.
    fn place(&mut self, index: u32) {
        debug_assert!(self.entries[index as usize].value.is_some(), "a list has timers only");
        let list = self.list_of(self.entries[index as usize].deadline);
        if list != DUE {
            self.occupied[list / SLOTS] |= 1 << (list % SLOTS);
        }
        let tail = self.lists[list].tail;
        let entry = &mut self.entries[index as usize];
        (entry.prev, entry.next) = (tail, NIL);
        self.lists[list].tail = index;
        match tail {
            NIL => self.lists[list].head = index,
            tail => {
                let before = &mut self.entries[tail as usize];
                debug_assert!(before.next == NIL && before.value.is_some(), "it is the last");
                before.next = index;
            }
        }
    }

    /// Takes a timer out of its list.
    fn unlink(&mut self, index: u32) {
        let Entry { deadline, prev, next, .. } = self.entries[index as usize];
        let list = self.list_of(deadline);
        debug_assert!(prev == NIL || self.entries[prev as usize].next == index);
        debug_assert!(next == NIL || self.entries[next as usize].prev == index);
        debug_assert!((prev == NIL) == (self.lists[list].head == index));
        debug_assert!((next == NIL) == (self.lists[list].tail == index));
        match prev {
            NIL => self.lists[list].head = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NIL => self.lists[list].tail = prev,
            next => self.entries[next as usize].prev = prev,
        }
        if list != DUE && self.lists[list].head == NIL {
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        }
    }

    fn take_entry(&mut self, deadline: u64, value: T) -> u32 {
        self.len += 1;
        if self.free == NIL {
            let index = self.entries.len();
            assert!(index < TIMERS_MAX, "a core has at most {TIMERS_MAX} timers");
            self.entries.push(Entry { deadline, prev: NIL, next: NIL, value: Some(value) });
            debug_assert!(self.len == self.entries.len(), "no entry is free");
            return index as u32;
        }
        let index = self.free;
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.value.is_none(), "a free entry has no timer");
        self.free = entry.next;
        entry.deadline = deadline;
        entry.value = Some(value);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn due(wheel: &mut Wheel<u64>) -> Vec<u64> {
        std::iter::from_fn(|| wheel.pop_due()).collect()
    }

    #[test]
    fn a_timer_is_due_at_its_tick_and_not_before() {
        for deadline in [1, 63, 64, 65, 4095, 4096, 4097, 1 << 18, (1 << 35) + 5, REACH] {
            let mut wheel = Wheel::new();
            wheel.set(deadline, deadline);
            wheel.advance(deadline - 1);
            assert_eq!(due(&mut wheel), [], "{deadline} is not due a tick earlier");
            wheel.advance(deadline);
            assert_eq!(due(&mut wheel), [deadline]);
            assert_eq!(wheel.next_tick(), None);
        }
    }

    #[test]
    fn a_timer_beyond_the_reach_fires_at_its_end() {
        let mut wheel = Wheel::new();
        wheel.advance(77);
        assert_eq!(wheel.set(u64::MAX, 1).tick(), 77 + REACH);
        wheel.advance(77 + REACH - 1);
        assert_eq!(due(&mut wheel), []);
        wheel.advance(77 + REACH);
        assert_eq!(due(&mut wheel), [1]);
    }

    #[test]
    fn an_entry_belongs_to_its_key_after_its_timer_has_fired() {
        let mut wheel = Wheel::new();
        let mut old = wheel.set(5, 5);
        assert_eq!(wheel.get_mut(&old), Some(&mut 5));
        wheel.advance(5);
        assert_eq!(due(&mut wheel), [5]);
        let new = wheel.set(6, 6);
        assert_ne!(new.index(), old.index());
        assert_eq!(wheel.get_mut(&old), None);
        assert_eq!(wheel.len(), 2);
        assert_eq!(wheel.cancel(old), None);
        assert_eq!(wheel.get_mut(&new), Some(&mut 6));
        old = wheel.set(7, 7);
        assert_eq!((wheel.len(), wheel.entries.len()), (2, 2), "the entry is used again");
        assert_eq!(wheel.cancel(old), Some(7));
    }

    #[test]
    fn a_due_timer_can_still_be_cancelled() {
        let mut wheel = Wheel::new();
        let key = wheel.set(5, 5);
        wheel.set(5, 6);
        wheel.advance(9);
        assert_eq!(wheel.cancel(key), Some(5));
        assert_eq!(due(&mut wheel), [6]);
    }

    #[test]
    fn a_past_deadline_is_due_at_once() {
        let mut wheel = Wheel::new();
        wheel.advance(100);
        wheel.set(7, 7);
        assert_eq!(wheel.next_tick(), Some(100));
        assert_eq!(due(&mut wheel), [7]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Set(u64),
        Cancel(usize),
        Advance(u64),
        ToNext,
    }

    fn step() -> impl Strategy<Value = Step> {
        let distance = prop_oneof![0..80_u64, 0..5_000_u64, 0..(1_u64 << 20), 0..(1_u64 << 38)];
        prop_oneof![
            4 => distance.clone().prop_map(Step::Set),
            2 => any::<prop::sample::Index>().prop_map(|i| Step::Cancel(i.index(1 << 20))),
            2 => distance.prop_map(Step::Advance),
            2 => Just(Step::ToNext),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// The model is an ordered map of (deadline, name).
        #[test]
        fn it_behaves_as_an_ordered_map(steps in prop::collection::vec(step(), 1..200)) {
            let mut wheel = Wheel::new();
            let mut model = BTreeMap::new();
            let mut keys = Vec::new();
            let mut now = 0_u64;
            for step in steps {
                match step {
                    Step::Set(distance) => {
                        let name = keys.len() as u64;
                        let deadline = now + distance.min(REACH);
                        let key = wheel.set(now + distance, name);
                        prop_assert_eq!(key.tick(), deadline);
                        keys.push(Some(key));
                        model.insert((deadline, name), ());
                    }
                    Step::Cancel(index) if !keys.is_empty() => {
                        let name = index % keys.len();
                        if let Some(key) = keys[name].take() {
                            let there = model.remove(&(key.tick(), name as u64)).is_some();
                            prop_assert_eq!(wheel.get_mut(&key).is_some(), there);
                            prop_assert_eq!(wheel.cancel(key).is_some(), there);
                        }
                    }
                    Step::Cancel(_) => {}
                    Step::Advance(distance) => now += distance,
                    Step::ToNext => now = wheel.next_tick().unwrap_or(now).max(now),
                }
                now = now.min(TICKS_MAX - 1 - REACH);
                wheel.advance(now);
                let later = model.split_off(&(now + 1, 0));
                let mut expected: Vec<u64> = model.keys().map(|&(_, name)| name).collect();
                model = later;
                let mut found = due(&mut wheel);
                expected.sort_unstable();
                found.sort_unstable();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(wheel.len(), keys.iter().flatten().count());
                let first = model.keys().next().map(|&(deadline, _)| deadline);
                let next = wheel.next_tick();
                prop_assert_eq!(next.is_some(), first.is_some());
                if let (Some(next), Some(first)) = (next, first) {
                    prop_assert!(now < next && next <= first);
                }
            }
        }
    }
}
