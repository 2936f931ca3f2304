//! The policy against a naive simulation of S3-FIFO, and against LRU on a skewed workload.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::*;

/// S3-FIFO with plain deques and searches, like algorithm 1 of the paper.
#[derive(Default)]
struct Naive {
    small: VecDeque<(u128, u64, u8)>,
    main: VecDeque<(u128, u64, u8)>,
    /// Keys that left small, youngest first; `false` once forgotten.
    ghost: VecDeque<(u128, bool)>,
    small_bytes_max: u64,
}

impl Naive {
    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn bytes(&self) -> u64 {
        self.small.iter().chain(&self.main).map(|&(_, bytes, _)| bytes).sum()
    }

    fn touch(&mut self, key: u128) -> bool {
        let mut all = self.small.iter_mut().chain(&mut self.main);
        match all.find(|(known, _, _)| *known == key) {
            Some((_, _, touches)) => {
                *touches = (*touches + 1).min(TOUCHES_MAX);
                true
            }
            None => false,
        }
    }

    fn insert(&mut self, key: u128, bytes: u64) {
        match self.ghost.iter_mut().find(|(known, live)| *known == key && *live) {
            Some(seen) => {
                seen.1 = false;
                self.main.push_front((key, bytes, 0));
            }
            None => self.small.push_front((key, bytes, 0)),
        }
    }

    fn remove(&mut self, key: u128) {
        self.small.retain(|&(known, _, _)| known != key);
        self.main.retain(|&(known, _, _)| known != key);
    }

    fn grow(&mut self, key: u128, bytes: u64, room: impl FnOnce(&mut Naive)) {
        let at = |queue: &VecDeque<(u128, u64, u8)>| queue.iter().position(|o| o.0 == key);
        let (mut object, small) = match at(&self.small) {
            Some(at) => (self.small.remove(at).unwrap(), true),
            None => (self.main.remove(at(&self.main).unwrap()).unwrap(), false),
        };
        object.1 = bytes;
        room(self);
        if small { self.small.push_front(object) } else { self.main.push_front(object) }
    }

    fn evict(&mut self) -> Option<u128> {
        let mut moves = 0;
        let small_bytes: u64 = self.small.iter().map(|o| o.1).sum();
        if small_bytes > self.small_bytes_max || self.main.is_empty() {
            while moves < MOVES_PER_EVICTION_MAX
                && let Some((key, bytes, touches)) = self.small.pop_back()
            {
                if touches < TOUCHES_TO_MAIN {
                    self.ghost.push_front((key, true));
                    self.ghost.truncate(self.len().max(GHOST_ENTRIES_MIN));
                    return Some(key);
                }
                self.main.push_front((key, bytes, 0));
                moves += 1;
            }
        }
        while let Some((key, bytes, touches)) = self.main.pop_back() {
            if touches == 0 || moves == MOVES_PER_EVICTION_MAX {
                return Some(key);
            }
            self.main.push_front((key, bytes, touches - 1));
            moves += 1;
        }
        None
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u64, u64),
    Remove(u64),
    Resize(u64, u64),
    Evict,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0u64..60, 1u64..50).prop_map(|(key, bytes)| Step::Ask(key, bytes)),
        1 => (0u64..60).prop_map(Step::Remove),
        2 => (0u64..60, 1u64..50).prop_map(|(key, bytes)| Step::Resize(key, bytes)),
        1 => Just(Step::Evict),
    ]
}

/// Keys whose halves both differ, as hashes do.
fn spread(n: u64) -> u128 {
    let n = n + 1;
    (u128::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) << 64) | u128::from(n.rotate_left(31))
}

const BYTES_MAX: u64 = 500;

fn check(policy: &Policy<u128>, slots: &HashMap<u128, Slot>, naive: &Naive) {
    assert_eq!((policy.len(), policy.bytes()), (naive.len(), naive.bytes()));
    assert_eq!(policy.len(), slots.len());
    assert!(policy.ghost.len() <= naive.len().max(GHOST_ENTRIES_MIN));
    for (queue, model) in [(&policy.small, &naive.small), (&policy.main, &naive.main)] {
        let mut at = queue.head;
        let mut younger = NONE;
        for &(key, bytes, touches) in model {
            let node = policy.node(at);
            assert_eq!((node.key, node.bytes, node.touches), (key, bytes, touches));
            assert_eq!(policy.held(at), Some(&key));
            assert_eq!((node.younger, slots[&key]), (younger, at));
            younger = at;
            at = node.older;
        }
        assert_eq!((at, queue.tail), (NONE, younger));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_policy_is_the_naive_one(steps in proptest::collection::vec(step(), 1..400)) {
        let mut policy = Policy::new(BYTES_MAX);
        let mut naive = Naive { small_bytes_max: 50, ..Naive::default() };
        let mut slots: HashMap<u128, Slot> = HashMap::new();
        for step in steps {
            match step {
                Step::Ask(n, bytes) => {
                    let key = spread(n);
                    let held = slots.get(&key).copied();
                    assert_eq!(naive.touch(key), held.is_some());
                    if let Some(slot) = held {
                        policy.touch(slot);
                    } else {
                        make_room(&mut policy, &mut slots, &mut naive, bytes);
                        naive.insert(key, bytes);
                        slots.insert(key, policy.insert(key, bytes, key));
                    }
                }
                Step::Remove(n) => {
                    if let Some(slot) = slots.remove(&spread(n)) {
                        assert_eq!(policy.remove(slot).key, spread(n));
                        naive.remove(spread(n));
                    }
                }
                Step::Resize(n, bytes) => {
                    let key = spread(n);
                    if let Some(&slot) = slots.get(&key) {
                        if bytes <= policy.bytes_of(slot) {
                            policy.shrink_object(slot, bytes);
                            let mut all = naive.small.iter_mut().chain(&mut naive.main);
                            all.find(|o| o.0 == key).unwrap().1 = bytes;
                        } else {
                            let detached = policy.detach(slot);
                            slots.remove(&key);
                            naive.grow(key, bytes, |naive| {
                                make_room(&mut policy, &mut slots, naive, bytes);
                            });
                            policy.attach(detached, bytes);
                            slots.insert(key, slot);
                        }
                    }
                }
                Step::Evict => evict(&mut policy, &mut slots, &mut naive),
            }
            assert!(policy.bytes() <= BYTES_MAX);
            check(&policy, &slots, &naive);
        }
    }
}

fn make_room(
    policy: &mut Policy<u128>,
    slots: &mut HashMap<u128, Slot>,
    naive: &mut Naive,
    bytes: u64,
) {
    while policy.bytes() + bytes > BYTES_MAX {
        evict(policy, slots, naive);
    }
}

fn evict(policy: &mut Policy<u128>, slots: &mut HashMap<u128, Slot>, naive: &mut Naive) {
    let gone = policy.evict();
    assert_eq!(gone.map(|gone| gone.key), naive.evict());
    if let Some(gone) = gone {
        assert_eq!((gone.held, slots.remove(&gone.key)), (gone.key, Some(gone.slot)));
        assert_eq!((policy.key(gone.slot), policy.held(gone.slot)), (None, None));
    }
}

#[test]
fn a_scan_does_not_evict_used_objects() {
    let mut policy = Policy::new(1000);
    let used: Vec<Slot> = (0..50).map(|n| policy.insert(spread(n), 10, ())).collect();
    for _ in 0..2 {
        used.iter().for_each(|&slot| policy.touch(slot));
    }
    for n in 1000..5000 {
        while policy.bytes() + 10 > 1000 {
            policy.evict().unwrap();
        }
        policy.insert(spread(n), 10, ());
    }
    let kept = (0..50).filter(|&n| policy.key(used[n as usize]) == Some(spread(n))).count();
    assert_eq!(kept, 50);
}

#[test]
fn an_object_seen_again_goes_to_main() {
    let mut policy = Policy::new(100);
    let first = policy.insert(spread(1), 10, ());
    assert_eq!(policy.evict().map(|gone| gone.slot), Some(first));
    policy.insert(spread(1), 10, ());
    assert_eq!((policy.small.len, policy.main.len), (0, 1));
    assert_eq!(policy.remove(first).key, spread(1));
    policy.insert(spread(1), 10, ());
    assert_eq!((policy.small.len, policy.main.len), (1, 0), "removed is not remembered");
}

#[test]
fn no_single_eviction_is_slow() {
    let mut policy = Policy::new(1_000_000);
    for n in 0..10_000 {
        let slot = policy.insert(spread(n), 100, ());
        (0..3).for_each(|_| policy.touch(slot));
    }
    let moves_max = MOVES_PER_EVICTION_MAX as u64;
    // Small moves its oldest to main until the moves are spent; then main evicts its tail.
    assert_eq!(policy.evict().map(|gone| gone.key), Some(spread(0)));
    assert_eq!(policy.main.len as u64, moves_max - 1);
}

#[test]
fn the_ghost_is_bounded() {
    let mut policy = Policy::new(100);
    for n in 0..10_000 {
        while policy.bytes() + 10 > 100 {
            policy.evict().unwrap();
        }
        policy.insert(spread(n), 10, ());
        // Some come back, so that forgotten entries remain in the order.
        if n % 3 == 0 && n > 20 {
            let again = policy.evict().unwrap();
            policy.insert(again.key, 10, ());
        }
        assert!(policy.ghost.len() <= GHOST_ENTRIES_MIN.max(policy.len()));
    }
    assert!(policy.slots() <= 11, "slots are used again");
}

/// A plain LRU of sized objects, for comparison.
struct Lru {
    order: std::collections::BTreeMap<u64, u64>,
    held: HashMap<u64, (u64, u64)>,
    bytes: u64,
    turn: u64,
}

impl Lru {
    fn ask(&mut self, key: u64, bytes: u64, bytes_max: u64) -> bool {
        self.turn += 1;
        if let Some((at, _)) = self.held.get_mut(&key) {
            self.order.remove(at);
            *at = self.turn;
            self.order.insert(self.turn, key);
            return true;
        }
        while self.bytes + bytes > bytes_max {
            let (_, oldest) = self.order.pop_first().unwrap();
            self.bytes -= self.held.remove(&oldest).unwrap().1;
        }
        self.bytes += bytes;
        self.held.insert(key, (self.turn, bytes));
        self.order.insert(self.turn, key);
        false
    }
}

/// xorshift64*, so that the test is the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn zipf(objects: usize, exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut cumulative: Vec<f64> = (1..=objects)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    cumulative.iter_mut().for_each(|c| *c /= sum);
    cumulative
}

#[test]
fn at_least_as_many_hits_as_lru_on_zipf() {
    const OBJECTS: usize = 20_000;
    for (exponent, share) in [(0.7, 0.02), (0.9, 0.05), (1.0, 0.1)] {
        let cumulative = zipf(OBJECTS, exponent);
        let mut random = Random(42);
        let sizes: Vec<u64> = (0..OBJECTS).map(|_| 1000 + random.next() % 9000).collect();
        let bytes_max = (sizes.iter().sum::<u64>() as f64 * share) as u64;
        let mut lru = Lru { order: Default::default(), held: HashMap::new(), bytes: 0, turn: 0 };
        let mut policy = Policy::new(bytes_max);
        let mut slots: HashMap<u128, Slot> = HashMap::new();
        let (mut lru_hits, mut hits) = (0, 0);
        for _ in 0..200_000 {
            let point = random.unit();
            let rank = cumulative.partition_point(|&c| c < point).min(OBJECTS - 1);
            lru_hits += u32::from(lru.ask(rank as u64, sizes[rank], bytes_max));
            let key = spread(rank as u64);
            if let Some(&slot) = slots.get(&key) {
                policy.touch(slot);
                hits += 1;
            } else {
                while policy.bytes() + sizes[rank] > bytes_max {
                    slots.remove(&policy.evict().unwrap().key);
                }
                slots.insert(key, policy.insert(key, sizes[rank], ()));
            }
        }
        println!("zipf {exponent}, {share} of the bytes: S3-FIFO {hits}, LRU {lru_hits}");
        assert!(hits >= lru_hits, "exponent {exponent}: {hits} against {lru_hits}");
    }
}
