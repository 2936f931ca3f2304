//! Cache digests in Squid's format, version 5: what another cache probably has.
//!
//! A digest is a Bloom filter over the keys of stored responses. A cache fetches the digests of its
//! siblings by HTTP, from [`PATH`] with the type [`CONTENT_TYPE`], and then knows without a query
//! which sibling to ask. A digest has no false misses for what was stored when it was made, and has
//! false hits.
//!
//! ```text
//!   0  version (2 bytes), lowest version of readers (2 bytes)
//!   4  capacity: the number of keys that the size is meant for
//!   8  keys that were added
//!  12  keys that were deleted, of which nothing else is known
//!  16  bytes of the mask: capacity times bits per entry, rounded up to bytes
//!  20  bits per entry, number of hash functions (4), 2 unused bytes
//!  24  104 unused bytes
//! 128  the mask: bit n is bit n % 8 of byte n / 8
//! ```
//!
//! # What it promises
//!
//! (`peering/src/digest.rs`, `server/src/our_digest.rs`, `upstream/src/peers.rs`). Ours is made
//! by one core in slices of bounded work, from the memory and the disk that all cores share. It
//! announces only what stays fresh until it expires and what, when it was looked at, a listener
//! would have served; reading the disk for it has a bound in time. That of a peer is part of the
//! state that outlives a reload; it is never used after its time, or with too many bits set.
//!
//! A key is the MD5 of the byte 1, which is GET, and of the URL. Squid puts the value of Vary's
//! fields behind the URL in the keys of variants, and has the plain key too. The four hash
//! functions are the four big-endian words of the key, modulo the number of bits.
//!
//! With Squid's 5 bits per entry, a full digest has 55 % of its bits set, and one of eleven absent
//! URLs is a false hit. Squid does not use a digest with more than 65 % set, and neither should we:
//! see [`Digest::is_useful`].
//!
//! **Squid reads digests wrongly** until the fix of its bug 5510 (October 2025). It fetches the
//! content in pieces of 4,096 bytes. When it removes the header from the first piece, it moves down
//! only as many bytes as it removed, not as many as remain. So of the mask in the first piece only
//! the first 128 bytes survive, which is enough for 204 URLs. The rest of that piece is garbage, so
//! Squid misses what we have, and asks for what we do not have. The format is not affected, and
//! what Squid sends is correct. A server that sends the first [`SQUID_FIRST_BYTES`] bytes, and the
//! remainder a moment later, is read correctly.

use md5::{Digest as _, Md5};

use crate::bytes::{Malformed, Problem, Reader, malformed};
use crate::limits::{BITS_PER_ENTRY, DIGEST_BYTES_MAX, DIGEST_CAPACITY_MAX, PERCENT_SET_MAX};

pub use crate::limits::HEADER_BYTES;

/// The path of a digest.
pub const PATH: &[u8] = b"/squid-internal-periodic/store_digest";

/// The media type of a digest.
pub const CONTENT_TYPE: &str = "application/cache-digest";

/// How much of a digest a server should send before the remainder, so that Squid reads it
/// correctly: the header, and as many bytes of the mask.
pub const SQUID_FIRST_BYTES: usize = 2 * HEADER_BYTES;

/// The version that is written, and the oldest that is read.
const VERSION: u16 = 5;
const VERSION_REQUIRED: u16 = 3;
const HASH_FUNCTIONS: u8 = 4;
const _: () =
    assert!(size_of::<Key>() == 4 * HASH_FUNCTIONS as usize && VERSION_REQUIRED <= VERSION);

/// The key of a response to GET in Squid's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key([u8; 16]);

impl Key {
    /// The key of a URL as Squid writes it: scheme and host in lower case, no default port, at
    /// least `/` as its path.
    pub fn of_get(url: &[u8]) -> Key {
        /// GET in Squid's list of methods.
        const GET: u8 = 1;
        Key(Md5::new().chain_update([GET]).chain_update(url).finalize().into())
    }

    /// The four bits of a mask with as many bits.
    fn bits(&self, all: u32) -> impl Iterator<Item = u32> {
        let (words, _) = self.0.as_chunks();
        words.iter().map(move |word| u32::from_be_bytes(*word) % all)
    }
}

/// What is in the header of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// At least 1.
    capacity: u32,
    count: u32,
    /// At least 1. With the capacity, not more bits than [`DIGEST_BYTES_MAX`] has.
    bits_per_entry: u8,
}

impl Header {
    /// Reads the header at the start of a digest.
    ///
    /// # Errors
    ///
    /// Names the first field that is wrong: sizes that disagree, or a version, a number of hash
    /// functions or a size that is not supported.
    pub fn read(bytes: &[u8]) -> Result<Header, Malformed> {
        let mut rest = Reader(bytes);
        let header = rest.array::<HEADER_BYTES>("header")?;
        let mut rest = Reader(&header);
        let (current, required) = (rest.u16("version")?, rest.u16("required version")?);
        if required > current {
            return malformed("required version", Problem::Value);
        }
        if current < VERSION_REQUIRED || required > VERSION {
            return malformed("version", Problem::Unsupported);
        }
        let (capacity, count) = (rest.u32("capacity")?, rest.u32("count")?);
        let (_deleted, mask_size) = (rest.u32("del_count")?, rest.u32("mask_size")?);
        let (bits_per_entry, functions) = (rest.u8("bits_per_entry")?, rest.u8("hash_func_count")?);
        if functions != HASH_FUNCTIONS {
            return malformed("hash_func_count", Problem::Unsupported);
        }
        if capacity == 0 {
            return malformed("capacity", Problem::Value);
        }
        if bits_per_entry == 0 {
            return malformed("bits_per_entry", Problem::Value);
        }
        let header = Header { capacity, count, bits_per_entry };
        if header.mask_bytes_u64() != u64::from(mask_size) {
            return malformed("mask_size", Problem::Length);
        }
        if header.mask_bytes_u64() > (DIGEST_BYTES_MAX - HEADER_BYTES) as u64 {
            return malformed("mask_size", Problem::TooLong);
        }
        Ok(header)
    }

    /// The number of keys that the size of the mask is meant for. At least 1.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many keys were added, as the sender says.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The bytes of the mask. At least 1, and at most [`DIGEST_BYTES_MAX`] less the header.
    pub fn mask_bytes(&self) -> usize {
        usize::try_from(self.mask_bytes_u64()).expect("sizes are limited")
    }

    fn mask_bytes_u64(&self) -> u64 {
        (u64::from(self.capacity) * u64::from(self.bits_per_entry)).div_ceil(8)
    }
}

/// A digest with its mask, in a buffer that is borrowed or owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest<M> {
    header: Header,
    /// As long as the header says.
    mask: M,
}

impl<'a> Digest<&'a [u8]> {
    /// Reads a whole digest. It says nothing if too many bits are set: check
    /// [`Digest::is_useful`] before use.
    ///
    /// # Errors
    ///
    /// As [`Header::read`]; or the mask is not as long as the header says.
    pub fn read(bytes: &'a [u8]) -> Result<Digest<&'a [u8]>, Malformed> {
        let header = Header::read(bytes)?;
        let mask = &bytes[HEADER_BYTES..];
        match mask.len().cmp(&header.mask_bytes()) {
            std::cmp::Ordering::Less => malformed("mask", Problem::Truncated),
            std::cmp::Ordering::Greater => malformed("mask", Problem::Length),
            std::cmp::Ordering::Equal => Ok(Digest { header, mask }),
        }
    }
}

impl Digest<Vec<u8>> {
    /// An empty digest for a number of keys, which is limited to 1 and [`DIGEST_CAPACITY_MAX`].
    /// It can get more keys, and then has more false hits.
    pub fn new(capacity: usize) -> Digest<Vec<u8>> {
        let capacity = capacity.clamp(1, DIGEST_CAPACITY_MAX) as u32;
        let header = Header { capacity, count: 0, bits_per_entry: BITS_PER_ENTRY };
        assert!(header.mask_bytes() <= DIGEST_BYTES_MAX - HEADER_BYTES, "a peer reads it");
        Digest { header, mask: vec![0; header.mask_bytes()] }
    }

    /// Adds a key.
    pub fn add(&mut self, key: &Key) {
        assert!(
            self.mask.len() == self.header.mask_bytes(),
            "the mask is as long as the header says"
        );
        for bit in key.bits(self.bit_count()) {
            self.mask[bit as usize / 8] |= 1 << (bit % 8);
        }
        self.header.count = self.header.count.saturating_add(1);
    }
}

impl<M: AsRef<[u8]>> Digest<M> {
    /// Whether the key was probably added.
    pub fn contains(&self, key: &Key) -> bool {
        let mask = self.mask.as_ref();
        key.bits(self.bit_count()).all(|bit| mask[bit as usize / 8] & (1 << (bit % 8)) != 0)
    }

    /// What is in the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many percent of the bits are set, rounded down. The fourth power of this share is that
    /// of false hits among absent keys.
    pub fn percent_set(&self) -> u32 {
        let set: u64 = self.mask.as_ref().iter().map(|byte| u64::from(byte.count_ones())).sum();
        let percent = (100 * set / u64::from(self.bit_count())) as u32;
        assert!(percent <= 100, "a part of the bits is set");
        percent
    }

    /// Whether few enough bits are set, at most [`PERCENT_SET_MAX`] percent, that an absent URL is
    /// seldom a hit. A digest with all bits set contains each URL.
    pub fn is_useful(&self) -> bool {
        self.percent_set() <= PERCENT_SET_MAX
    }

    /// A copy with its own mask.
    pub fn with_own_mask(&self) -> Digest<Vec<u8>> {
        Digest { header: self.header, mask: self.mask.as_ref().to_vec() }
    }

    /// Replaces the content of `out` with the digest.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mask = self.mask.as_ref();
        out.clear();
        out.extend(VERSION.to_be_bytes());
        out.extend(VERSION_REQUIRED.to_be_bytes());
        out.extend(self.header.capacity.to_be_bytes());
        out.extend(self.header.count.to_be_bytes());
        out.extend(0_u32.to_be_bytes());
        out.extend((mask.len() as u32).to_be_bytes());
        out.extend([self.header.bits_per_entry, HASH_FUNCTIONS]);
        assert!(out.len() <= HEADER_BYTES && mask.len() == self.header.mask_bytes());
        out.resize(HEADER_BYTES, 0);
        out.extend(mask);
        assert!(out.len() <= DIGEST_BYTES_MAX, "a peer reads it");
    }

    /// The bits of all bytes of the mask, as in Squid. The last entry can end before the last bit.
    fn bit_count(&self) -> u32 {
        self.mask.as_ref().len() as u32 * 8
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzzing::{self, digest_head, fixture};

    fn key(number: usize) -> Key {
        Key::of_get(format!("http://origin.test/{number}").as_bytes())
    }

    fn written(digest: &Digest<impl AsRef<[u8]>>) -> Vec<u8> {
        let mut out = Vec::new();
        digest.write(&mut out);
        out
    }

    /// What a Squid with `urls` URLs and its icons has in its digest.
    fn check_squids(urls: usize) {
        let bytes = fixture(&format!("digest-{urls}"));
        let digest = Digest::read(&bytes).expect("a digest of Squid");
        let missing = (0..urls).filter(|&number| !digest.contains(&key(number))).count();
        assert_eq!(missing, 0, "of {urls}");
        let false_hits =
            (0..10_000).filter(|number| digest.contains(&key(1_000_000 + number))).count();
        let expected = 100.0 * (f64::from(digest.percent_set()) / 100.0).powi(4);
        let percent = false_hits as f64 / 100.0;
        assert!((percent - expected).abs() < 2.0, "{percent} % instead of {expected} %");
        assert!(digest.header().count() as usize >= urls);
        assert_eq!(written(&digest), bytes);
    }

    #[test]
    fn a_small_digest_of_squid_has_its_urls() {
        check_squids(60);
    }

    #[test]
    fn a_larger_digest_of_squid_has_its_urls() {
        check_squids(600);
    }

    #[test]
    fn a_key_is_the_md5_of_the_method_and_the_url() {
        // printf '\001http://origin.test/0' | md5sum
        let expected = 0x694d0601_a796f7d7_f86cf158_9b803b3c_u128;
        assert_eq!(Key::of_get(b"http://origin.test/0"), Key(expected.to_be_bytes()));
    }

    #[test]
    fn a_full_digest_has_one_false_hit_in_eleven() {
        let mut digest = Digest::new(20_000);
        (0..20_000).for_each(|number| digest.add(&key(number)));
        assert!((0..20_000).all(|number| digest.contains(&key(number))));
        assert_eq!(digest.percent_set(), 55);
        let false_hits = (20_000..40_000).filter(|&number| digest.contains(&key(number))).count();
        assert!((1_600..2_000).contains(&false_hits), "{false_hits}");
    }

    #[test]
    fn a_digest_with_too_many_bits_is_useless() {
        let mut bytes = written(&Digest::new(160));
        let is_useful = |bytes: &[u8]| Digest::read(bytes).expect("a digest").is_useful();
        bytes[HEADER_BYTES..HEADER_BYTES + 65].fill(0xff);
        assert!(is_useful(&bytes));
        bytes[HEADER_BYTES + 65] = 0xff;
        assert!(!is_useful(&bytes));
        bytes[HEADER_BYTES..].fill(0xff);
        assert!(!is_useful(&bytes));
    }

    #[test]
    fn sizes_have_to_agree() {
        let good = written(&Digest::new(1000));
        assert_eq!(good.len(), HEADER_BYTES + 625);
        let refused = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            let error = Digest::read(&bad).expect_err("a wrong header");
            (error.field, error.problem)
        };
        assert_eq!(refused(0, &[0, 2, 0, 2]), ("version", Problem::Unsupported));
        assert_eq!(refused(0, &[0, 9, 0, 6]), ("version", Problem::Unsupported));
        assert_eq!(refused(2, &[0, 6]), ("required version", Problem::Value));
        assert_eq!(refused(4, &[0; 4]), ("capacity", Problem::Value));
        assert_eq!(refused(4, &[0xff; 4]), ("mask_size", Problem::Length));
        assert_eq!(refused(16, &[0; 4]), ("mask_size", Problem::Length));
        assert_eq!(refused(20, &[0]), ("bits_per_entry", Problem::Value));
        assert_eq!(refused(20, &[6]), ("mask_size", Problem::Length));
        assert_eq!(refused(21, &[3]), ("hash_func_count", Problem::Unsupported));
        // 2^25 entries of 8 bits.
        let large = [&[2, 0, 0, 0][..], &[0; 8], &[2, 0, 0, 0, 8]].concat();
        assert_eq!(refused(4, &large), ("mask_size", Problem::TooLong));
        let longer = [&good[..], &[0]].concat();
        assert_eq!(Digest::read(&longer).expect_err("longer").problem, Problem::Length);
    }

    #[test]
    fn a_capacity_is_limited() {
        assert_eq!(Digest::new(0).header().capacity(), 1);
        let largest = Digest::new(usize::MAX);
        assert!(written(&largest).len() <= DIGEST_BYTES_MAX);
        assert!(Digest::read(&written(&largest)).is_ok());
    }

    /// Mostly digests with a good header and a mask that has about its size.
    fn digests() -> impl Strategy<Value = Vec<u8>> {
        let versions = prop_oneof![3 => Just((5_u16, 3_u16)), 1 => (2_u16..7, 2_u16..7)];
        let functions = prop_oneof![9 => Just(HASH_FUNCTIONS), 1 => any::<u8>()];
        let sizes = (0_u32..200, 0_u8..9, prop_oneof![3 => Just(1), 1 => 0_usize..3]);
        let (unused, mask) =
            (prop::collection::vec(any::<u8>(), 106), prop::collection::vec(any::<u8>(), 202));
        (versions, functions, sizes, any::<[u32; 2]>(), unused, mask).prop_map(
            |((current, required), functions, (capacity, bits, more), counts, unused, mask)| {
                let size = (capacity * u32::from(bits)).div_ceil(8);
                let [count, deleted] = counts.map(u32::to_be_bytes);
                [
                    &current.to_be_bytes()[..],
                    &required.to_be_bytes(),
                    &capacity.to_be_bytes(),
                    &count,
                    &deleted,
                    &size.to_be_bytes(),
                    &[bits, functions],
                    &unused,
                    &mask[..(size as usize + more).saturating_sub(1)],
                ]
                .concat()
            },
        )
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        fuzzing::check_generated(digests(), fuzzing::digest, |bytes| Digest::read(bytes).is_ok());
    }

    proptest! {
        #[test]
        fn what_is_added_is_contained(
            capacity in 0_usize..200, added in prop::collection::vec(0_usize..1000, 0..100),
        ) {
            let mut digest = Digest::new(capacity);
            added.iter().for_each(|&number| digest.add(&key(number)));
            let bytes = written(&digest);
            let read = Digest::read(&bytes).expect("a digest");
            prop_assert!(added.iter().all(|&number| read.contains(&key(number))));
            prop_assert_eq!(read.with_own_mask(), digest);
            for end in 0..bytes.len() {
                prop_assert!(Digest::read(&bytes[..end]).is_err());
                let corrected = digest_head(&bytes, end);
                prop_assert_eq!(Digest::read(&corrected).is_ok(), end > HEADER_BYTES);
            }
        }
    }
}
