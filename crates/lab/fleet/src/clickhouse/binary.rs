//! ClickHouse's format RowBinary: values one after another, without names, numbers little-endian.

/// Appends values.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.extend_from_slice(&bytes);
    }

    /// A number in groups of 7 bits, the lowest first.
    pub(super) fn length(&mut self, length: usize) {
        let mut rest = length;
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn texts<T: AsRef<str>>(&mut self, texts: &[T]) {
        self.length(texts.len());
        texts.iter().for_each(|text| self.text(text.as_ref()));
    }

    pub(super) fn numbers(&mut self, numbers: impl ExactSizeIterator<Item = f64>) {
        self.length(numbers.len());
        numbers.for_each(|number| self.bytes(number.to_le_bytes()));
    }
}

/// Takes values from the front of what the database sent. `None`: the bytes end too early, or are
/// not such a value.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn length(&mut self) -> Option<usize> {
        let mut length = 0_u64;
        for shift in (0..63).step_by(7) {
            let [byte] = self.array()?;
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(length).ok();
            }
        }
        None
    }

    pub(super) fn truth(&mut self) -> Option<bool> {
        self.array().map(|[byte]| byte != 0)
    }

    pub(super) fn unsigned(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn small(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn number(&mut self) -> Option<f64> {
        self.array().map(f64::from_le_bytes)
    }

    /// A value of a type `Nullable`.
    pub(super) fn nullable<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        let null = self.truth()?;
        if null { Some(None) } else { value(self).map(Some) }
    }

    /// Bytes that are no text are replaced.
    pub(super) fn text(&mut self) -> Option<String> {
        let length = self.length()?;
        self.take(length).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// An array. Memory grows with the bytes that are there, not with the length that is announced.
    pub(super) fn list<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.length()?;
        let mut items = Vec::new();
        for _ in 0..length {
            // Every item that we ask for has at least one byte.
            if self.is_empty() {
                return None;
            }
            items.push(item(self)?);
        }
        Some(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_written_and_never_beyond_the_end() {
        let mut writer = Writer::default();
        writer.texts(&["a".repeat(300), String::new()]);
        writer.numbers([1.5, -0.0].into_iter());
        writer.bytes(7_i64.to_le_bytes());
        let read = |bytes: &[u8]| {
            let mut reader = Reader(bytes);
            let texts = reader.list(Reader::text)?;
            let numbers = reader.list(Reader::number)?;
            let whole = reader.signed()?;
            reader.is_empty().then_some((texts, numbers, whole))
        };
        let (texts, numbers, whole) = read(&writer.0).unwrap();
        assert_eq!((texts[0].len(), texts[1].len(), numbers[0], whole), (300, 0, 1.5, 7));
        for end in 0..writer.0.len() {
            assert_eq!(read(&writer.0[..end]), None);
        }
    }

    #[test]
    fn a_length_beyond_the_bytes_takes_no_memory() {
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1];
        assert_eq!(Reader(&huge).list(Reader::text), None);
        assert_eq!(Reader(&huge).text(), None);
        assert_eq!(Reader(&[0xff; 20]).text(), None);
    }
}
