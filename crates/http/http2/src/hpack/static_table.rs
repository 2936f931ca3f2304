//! The static table (RFC 7541 appendix A), and a hash index of its names.

const COUNT: usize = 61;

pub(crate) const TABLE: [(&[u8], &[u8]); COUNT] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

/// The first index of names that have rules.
pub(crate) mod id {
    pub(crate) const AUTHORITY: u8 = 1;
    pub(crate) const METHOD: u8 = 2;
    pub(crate) const PATH: u8 = 4;
    pub(crate) const SCHEME: u8 = 6;
    pub(crate) const STATUS: u8 = 8;
    pub(crate) const AUTHORIZATION: u8 = 23;
    pub(crate) const CONTENT_LENGTH: u8 = 28;
    pub(crate) const COOKIE: u8 = 32;
    pub(crate) const HOST: u8 = 38;
    pub(crate) const PROXY_AUTHORIZATION: u8 = 49;
    pub(crate) const SET_COOKIE: u8 = 55;
    pub(crate) const TRANSFER_ENCODING: u8 = 57;
}

const SLOTS: usize = 128;

/// For each slot, the first index of a name or 0. Collisions go to the next slot.
const INDEX: [u8; SLOTS] = {
    let mut index = [0; SLOTS];
    let mut at = 0;
    while at < COUNT {
        let name = TABLE[at].0;
        let is_first = at == 0 || !same(TABLE[at - 1].0, name);
        let mut slot = slot(name);
        while is_first && index[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        if is_first {
            index[slot] = at as u8 + 1;
        }
        at += 1;
    }
    index
};

#[inline]
const fn slot(name: &[u8]) -> usize {
    let len = name.len();
    let (first, last, middle) = (name[0] as usize, name[len - 1] as usize, name[len / 2] as usize);
    (len * 5 + first * 3 + last * 7 + middle * 11) % SLOTS
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// The first index of a name in lower case, or 0.
#[inline]
pub(crate) fn name_index(name: &[u8]) -> u8 {
    if name.is_empty() {
        return 0;
    }
    let mut slot = slot(name);
    loop {
        match INDEX[slot] {
            0 => return 0,
            index if TABLE[index as usize - 1].0 == name => return index,
            _ => slot = (slot + 1) % SLOTS,
        }
    }
}

/// The first index of the name that this index has; 0 is 0.
#[inline]
pub(crate) const fn first(index: u8) -> u8 {
    match index {
        3 => 2,
        5 => 4,
        7 => 6,
        9..=14 => 8,
        _ => index,
    }
}

/// The index of the field with this value, among those with the name of `first`.
#[inline]
pub(crate) fn value_index(first: u8, value: &[u8]) -> Option<u8> {
    let at = first as usize - 1;
    let same_name = TABLE[at..].iter().take_while(|(name, _)| *name == TABLE[at].0);
    same_name.zip(first..).find(|((_, found), _)| *found == value).map(|(_, index)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc7541_a_each_name_is_found_by_its_first_index() {
        for (at, (name, value)) in TABLE.iter().enumerate() {
            let first = TABLE.iter().position(|(other, _)| other == name).unwrap() as u8 + 1;
            assert_eq!(name_index(name), first);
            assert_eq!(super::first(at as u8 + 1), first);
            assert_eq!(value_index(first, value), Some(at as u8 + 1));
        }
        for (name, expected) in [
            (&b":authority"[..], id::AUTHORITY),
            (b":method", id::METHOD),
            (b":path", id::PATH),
            (b":scheme", id::SCHEME),
            (b":status", id::STATUS),
            (b"authorization", id::AUTHORIZATION),
            (b"content-length", id::CONTENT_LENGTH),
            (b"cookie", id::COOKIE),
            (b"host", id::HOST),
            (b"proxy-authorization", id::PROXY_AUTHORIZATION),
            (b"set-cookie", id::SET_COOKIE),
            (b"transfer-encoding", id::TRANSFER_ENCODING),
            (b"te", 0),
            (b"", 0),
            (b"Cookie", 0),
        ] {
            assert_eq!(name_index(name), expected, "{}", name.escape_ascii());
        }
    }
}
