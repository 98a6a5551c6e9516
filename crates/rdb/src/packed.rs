//! The encodings that hold a whole small collection in one string. The string is a copy of Redis's memory.
//!
//! | encoding | Redis | holds |
//! |---|---|---|
//! | listpack | 7.0 and later | entries, each followed by its own length |
//! | ziplist | 6.2 and earlier | entries, each with the length of the previous entry |
//! | zipmap | 2.4 and earlier | fields and values; unused bytes may follow a value |
//! | intset | all | integers of 2, 4 or 8 bytes, ascending |
//!
//! Each function takes the whole string and returns the entries in order. Numbers are decimal text, as Redis shows
//! them.

use perdura_base::cursor::Reader;

/// The entries, or the reason why they cannot be read.
pub type Entries = Result<Vec<Vec<u8>>, &'static str>;

const CUT: &str = "a packed collection is cut off";

/// The byte after the last entry of a listpack, ziplist or zipmap.
const END: u8 = 0xff;

/// The value of the count field in a listpack or ziplist that has too many entries for the field.
const COUNT_UNKNOWN: u16 = u16::MAX;

/// The size of a listpack's head, in bytes. The head has the listpack's length and the number of entries.
const LISTPACK_HEAD: usize = 6;

/// The first byte of a string's length in a zipmap, if the length does not fit in one byte.
const ZIPMAP_LONG: u8 = 254;

/// The first byte of the previous entry's length in a ziplist, if the length does not fit in one byte.
const ZIPLIST_LONG: u8 = 254;

fn text(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn signed<const N: usize>(reader: &mut Reader<'_>) -> Option<i64> {
    const { assert!(N >= 1 && N <= 8, "a number has one byte to eight") };
    let mut bytes = [0; 8];
    bytes[8 - N..].copy_from_slice(&reader.array::<N>()?);
    // The arithmetic shift extends the sign.
    let unused = u32::try_from(64 - 8 * N).ok()?;
    Some(i64::from_le_bytes(bytes) >> unused)
}

fn string(reader: &mut Reader<'_>, len: u32) -> Option<Vec<u8>> {
    Some(reader.bytes(usize::try_from(len).ok()?)?.to_vec())
}

/// Reads the entries of a listpack or a ziplist. Both consist of a head, the entries, and an end byte.
fn framed(
    bytes: &[u8],
    total: Option<u32>,
    reader: &mut Reader<'_>,
    count: Option<u16>,
    mut entry: impl FnMut(&mut Reader<'_>) -> Option<Vec<u8>>,
) -> Entries {
    let (total, count) = total.zip(count).ok_or(CUT)?;
    if usize::try_from(total) != Ok(bytes.len()) {
        return Err("a packed collection has another length than it says");
    }
    let mut entries = Vec::new();
    while bytes.get(reader.at()) != Some(&END) {
        entries.push(entry(reader).ok_or("an entry of a packed collection is cut off or unknown")?);
    }
    if reader.remaining() != 1 {
        return Err("a packed collection ends before its end");
    }
    if count != COUNT_UNKNOWN && usize::from(count) != entries.len() {
        return Err("a packed collection has another number of entries than it says");
    }
    debug_assert_eq!(
        reader.at() + 1,
        bytes.len(),
        "behind the entries is the end alone"
    );
    Ok(entries)
}

/// A listpack that is being written. Redis writes a text that looks like a number as a number. This writer
/// writes it as a text. Readers treat both forms alike.
pub struct ListpackWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl ListpackWriter {
    pub fn new() -> Self {
        ListpackWriter {
            bytes: vec![0; LISTPACK_HEAD],
            count: 0,
        }
    }

    pub fn text(&mut self, text: &[u8]) {
        let begin = self.bytes.len();
        match (u16::try_from(text.len()), u32::try_from(text.len())) {
            (Ok(short @ 0..=0x3f), _) => self.bytes.push(0x80 | short.to_le_bytes()[0]),
            (Ok(middle @ 0..=0xfff), _) => {
                self.bytes
                    .extend_from_slice(&(0xe000 | middle).to_be_bytes());
            }
            (_, long) => {
                self.bytes.push(0xf0);
                let long = long.unwrap_or(u32::MAX);
                self.bytes.extend_from_slice(&long.to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.end_entry(begin);
    }

    pub fn number(&mut self, number: i64) {
        let begin = self.bytes.len();
        let bytes = number.to_le_bytes();
        match (
            u8::try_from(number),
            i16::try_from(number),
            i32::try_from(number),
        ) {
            (Ok(small @ 0..=0x7f), ..) => self.bytes.push(small),
            (_, Ok(_), _) => {
                self.bytes.push(0xf1);
                self.bytes.extend_from_slice(&bytes[..2]);
            }
            (_, _, Ok(_)) => {
                self.bytes.push(0xf3);
                self.bytes.extend_from_slice(&bytes[..4]);
            }
            _ => {
                self.bytes.push(0xf4);
                self.bytes.extend_from_slice(&bytes);
            }
        }
        self.end_entry(begin);
    }

    pub fn count(&mut self, count: usize) {
        self.number(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Appends the entry's own length after the entry: seven bits in each byte, the highest bits first. The top bit is
    /// set in all bytes but the first.
    fn end_entry(&mut self, begin: usize) {
        let len = self.bytes.len() - begin;
        debug_assert!(len > 0, "an entry has a head at least");
        for at in (0..len_bytes(len)).rev() {
            let bits = (len >> (7 * at)).to_le_bytes()[0] & 0x7f;
            let is_first = at + 1 == len_bytes(len);
            self.bytes.push(if is_first { bits } else { bits | 0x80 });
        }
        debug_assert_eq!(
            self.bytes.len() - begin - len,
            len_bytes(len),
            "a reader steps over as many bytes"
        );
        self.count += 1;
    }

    pub fn end(mut self) -> Vec<u8> {
        assert!(self.bytes.len() >= LISTPACK_HEAD, "the head has its place");
        self.bytes.push(END);
        let total = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let count = u16::try_from(self.count).unwrap_or(COUNT_UNKNOWN);
        self.bytes[..4].copy_from_slice(&total.to_le_bytes());
        self.bytes[4..LISTPACK_HEAD].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

/// Returns the number of bytes that encode an entry's length after the entry. The bounds are from Redis. Every bound
/// except the first is one lower than the bound that seven bits in each byte would allow.
fn len_bytes(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Returns a listpack's entries.
pub fn listpack(bytes: &[u8]) -> Entries {
    let mut reader = Reader::new(bytes);
    let (total, count) = (reader.u32(), reader.u16());
    framed(bytes, total, &mut reader, count, listpack_entry)
}

fn listpack_entry(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    let begin = reader.at();
    let first = reader.u8()?;
    let value = match first {
        0x00..=0x7f => text(first.into()),
        0x80..=0xbf => string(reader, u32::from(first & 0x3f))?,
        0xc0..=0xdf => {
            // A signed number of thirteen bits.
            let bits = i64::from(u16::from_be_bytes([first & 0x1f, reader.u8()?]));
            text(if bits < 1 << 12 {
                bits
            } else {
                bits - (1 << 13)
            })
        }
        0xe0..=0xef => {
            let len = u16::from_be_bytes([first & 0x0f, reader.u8()?]);
            string(reader, len.into())?
        }
        0xf0 => {
            let len = reader.u32()?;
            string(reader, len)?
        }
        0xf1 => text(signed::<2>(reader)?),
        0xf2 => text(signed::<3>(reader)?),
        0xf3 => text(signed::<4>(reader)?),
        0xf4 => text(signed::<8>(reader)?),
        _ => return None,
    };
    // Skips the entry's own length, which serves readers that walk backwards.
    reader.bytes(len_bytes(reader.at() - begin))?;
    Some(value)
}

/// Returns a ziplist's entries.
pub fn ziplist(bytes: &[u8]) -> Entries {
    let mut reader = Reader::new(bytes);
    let (total, _tail, count) = (reader.u32(), reader.u32(), reader.u16());
    framed(bytes, total, &mut reader, count, ziplist_entry)
}

fn ziplist_entry(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    if reader.u8()? == ZIPLIST_LONG {
        reader.u32()?;
    }
    let first = reader.u8()?;
    match first {
        0x00..=0x3f => string(reader, first.into()),
        0x40..=0x7f => {
            let len = u16::from_be_bytes([first & 0x3f, reader.u8()?]);
            string(reader, len.into())
        }
        0x80 => {
            let len = u32::from_be_bytes(reader.array()?);
            string(reader, len)
        }
        0xc0 => signed::<2>(reader).map(text),
        0xd0 => signed::<4>(reader).map(text),
        0xe0 => signed::<8>(reader).map(text),
        0xf0 => signed::<3>(reader).map(text),
        0xfe => signed::<1>(reader).map(text),
        0xf1..=0xfd => Some(text(i64::from(first & 0x0f) - 1)),
        _ => None,
    }
}

/// Returns a zipmap's fields and values in turn.
pub fn zipmap(bytes: &[u8]) -> Entries {
    let mut reader = Reader::new(bytes);
    // Skips the number of fields, which is right only if it fits in a byte. The end byte ends the fields.
    reader.u8().ok_or(CUT)?;
    let mut entries = Vec::new();
    loop {
        let first = reader.u8().ok_or(CUT)?;
        if first == END {
            break;
        }
        entries.push(zipmap_string(&mut reader, first, false).ok_or(CUT)?);
        let first = reader.u8().ok_or(CUT)?;
        entries.push(zipmap_string(&mut reader, first, true).ok_or(CUT)?);
    }
    if reader.remaining() > 0 {
        return Err("a packed collection ends before its end");
    }
    Ok(entries)
}

fn zipmap_string(reader: &mut Reader<'_>, first: u8, is_value: bool) -> Option<Vec<u8>> {
    let len = match first {
        END => return None,
        ZIPMAP_LONG => reader.u32()?,
        short => short.into(),
    };
    let unused = if is_value { reader.u8()? } else { 0 };
    let value = string(reader, len)?;
    reader.bytes(unused.into())?;
    Some(value)
}

/// Returns an intset's numbers.
pub fn intset(bytes: &[u8]) -> Entries {
    let mut reader = Reader::new(bytes);
    let (width, count) = reader.u32().zip(reader.u32()).ok_or(CUT)?;
    let number = match width {
        2 => signed::<2>,
        4 => signed::<4>,
        8 => signed::<8>,
        _ => return Err("no such width of a set of integers"),
    };
    let expected = u64::from(width) * u64::from(count);
    if u64::try_from(reader.remaining()) != Ok(expected) {
        return Err("a packed collection has another length than it says");
    }
    (0..count)
        .map(|_| number(&mut reader).map(text).ok_or(CUT))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(entries: Entries) -> Vec<String> {
        let entries = entries.unwrap();
        entries
            .into_iter()
            .map(|entry| String::from_utf8(entry).unwrap())
            .collect()
    }

    /// Frames entries as a listpack.
    fn as_listpack(entries: &[&[u8]]) -> Vec<u8> {
        let body = entries.concat();
        let total = u32::try_from(body.len() + 7).unwrap();
        let count = u16::try_from(entries.len()).unwrap();
        [
            &total.to_le_bytes()[..],
            &count.to_le_bytes(),
            &body,
            &[END],
        ]
        .concat()
    }

    /// Frames entries as a ziplist.
    fn as_ziplist(entries: &[&[u8]]) -> Vec<u8> {
        let body = entries.concat();
        let total = u32::try_from(body.len() + 11).unwrap();
        let count = u16::try_from(entries.len()).unwrap();
        [
            &total.to_le_bytes()[..],
            &[0; 4],
            &count.to_le_bytes(),
            &body,
            &[END],
        ]
        .concat()
    }

    #[test]
    fn listpacks_hold_numbers_of_all_widths_and_strings_of_all_lengths() {
        let long = [&[0xe1, 0x00][..], &[b'y'; 256], &[0, 0]].concat();
        let packed = as_listpack(&[
            &[0x7f, 1],
            &[0xc0 | 0x0f, 0xff, 2],
            &[0xc0 | 0x1f, 0xff, 2],
            &[0xc0 | 0x10, 0x00, 2],
            &[0xf1, 0x00, 0x80, 3],
            &[0xf2, 0xff, 0xff, 0x7f, 4],
            &[0xf2, 0x00, 0x00, 0x80, 4],
            &[0xf3, 0xff, 0xff, 0xff, 0xff, 5],
            &[0xf4, 0, 0, 0, 0, 0, 0, 0, 0x80, 9],
            &[0x83, b'a', b'b', b'c', 4],
            &[0x80, 1],
            &[0xf0, 2, 0, 0, 0, b'h', b'i', 7],
            &long,
        ]);
        let expected = [
            "127",
            "4095",
            "-1",
            "-4096",
            "-32768",
            "8388607",
            "-8388608",
            "-1",
            "-9223372036854775808",
            "abc",
            "",
            "hi",
            &"y".repeat(256),
        ];
        assert_eq!(texts(listpack(&packed)), expected);
    }

    #[test]
    fn what_is_written_as_a_listpack_is_read() {
        let mut node = ListpackWriter::new();
        let mut expected = Vec::new();
        let numbers = [
            0,
            127,
            128,
            -1,
            i64::from(i16::MIN),
            40_000,
            i64::MAX,
            i64::MIN,
        ];
        for number in numbers {
            node.number(number);
            expected.push(number.to_string());
        }
        for len in [
            0, 1, 63, 64, 122, 123, 4095, 4096, 16_377, 16_378, 2_097_160,
        ] {
            node.text("y".repeat(len).as_bytes());
            expected.push("y".repeat(len));
        }
        assert_eq!(texts(listpack(&node.end())), expected);
        let mut many = ListpackWriter::new();
        (0..70_000).for_each(|_| many.count(5));
        assert_eq!(listpack(&many.end()).unwrap().len(), 70_000);
        // As Redis writes it: the length 200 behind an entry is the byte 1, then 72 with the top bit set.
        let mut long = ListpackWriter::new();
        long.text(&[b'z'; 198]);
        assert_eq!(long.end()[6 + 200..], [1, 72 | 0x80, END]);
    }

    #[test]
    fn ziplists_hold_numbers_of_all_widths_and_strings_of_all_lengths() {
        let middle = [&[0, 0x41, 0x00][..], &[b'y'; 256]].concat();
        let packed = as_ziplist(&[
            &[0, 0x02, b'h', b'i'],
            &middle,
            &[0xfe, 4, 1, 0, 0, 0x80, 0, 0, 0, 1, b'z'],
            &[7, 0xc0, 0xff, 0xff],
            &[7, 0xd0, 0, 0, 0, 0x80],
            &[7, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            &[7, 0xf0, 0, 0, 0x80],
            &[7, 0xfe, 0x80],
            &[7, 0xf1],
            &[7, 0xfd],
        ]);
        let expected = [
            "hi",
            &"y".repeat(256),
            "z",
            "-1",
            "-2147483648",
            "9223372036854775807",
            "-8388608",
            "-128",
            "0",
            "12",
        ];
        assert_eq!(texts(ziplist(&packed)), expected);
    }

    #[test]
    fn zipmaps_may_have_unused_bytes_behind_values_and_long_lengths() {
        let packed = [
            &[2, 1, b'a', 2, 3, b'x', b'y', 9, 9, 9][..],
            &[254, 1, 0, 0, 0, b'b', 0, 0, 255],
        ]
        .concat();
        assert_eq!(texts(zipmap(&packed)), ["a", "xy", "b", ""]);
    }

    #[test]
    fn intsets_have_three_widths() {
        let set = |width: u32, count: u32, bytes: &[u8]| {
            intset(&[&width.to_le_bytes()[..], &count.to_le_bytes(), bytes].concat())
        };
        assert_eq!(texts(set(2, 2, &[0xff, 0xff, 1, 0])), ["-1", "1"]);
        assert_eq!(texts(set(4, 1, &[0, 0, 0, 0x80])), ["-2147483648"]);
        assert_eq!(texts(set(8, 1, &[1, 0, 0, 0, 0, 0, 0, 0])), ["1"]);
        assert!(set(3, 1, &[0; 3]).is_err());
        assert!(set(8, u32::MAX, &[0; 8]).is_err());
        assert!(set(2, 1, &[0; 3]).is_err());
    }

    #[test]
    fn every_cut_is_an_error() {
        let packed = as_listpack(&[&[0x83, b'a', b'b', b'c', 4], &[0xf1, 1, 2, 3]]);
        let old = as_ziplist(&[&[0, 0x02, b'h', b'i'], &[4, 0xc0, 1, 2]]);
        let map = [1, 1, b'a', 2, 0, b'x', b'y', 255];
        for cut in 0..packed.len() {
            assert!(listpack(&packed[..cut]).is_err());
        }
        for cut in 0..old.len() {
            assert!(ziplist(&old[..cut]).is_err());
        }
        for cut in 0..map.len() {
            assert!(zipmap(&map[..cut]).is_err());
        }
    }
}
