//! A message as a row: id, address, text.

use fastrand::Rng;

/// The size of an id, bytes.
const ID_BYTES: usize = 4;
/// The size of an address, bytes.
const ADDRESS_BYTES: usize = 12;

/// Writes the message with the id `id` into `row`, the bytes of a slot.
pub fn write(row: &mut [u8], id: u32, content: &mut Rng) {
    let (head, text) = row.split_at_mut(ID_BYTES + ADDRESS_BYTES);
    head[..ID_BYTES].copy_from_slice(&id.to_le_bytes());
    for digit in &mut head[ID_BYTES..] {
        *digit = b'0' + content.u8(0..10);
    }
    content.fill(text);
}

/// Returns the messages of the initial load. They are the first `rows` messages that the seed makes.
pub fn all(rows: u64, slot_bytes: usize, seed: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut content = Rng::with_seed(seed);
    (0..rows).map(move |number| {
        let mut row = vec![0; slot_bytes];
        write(&mut row, id_of(number), &mut content);
        row
    })
}

/// Returns the id of the message with this number. Ids start from 0 again after 2^32 messages.
#[must_use]
pub fn id_of(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_from_the_seed() {
        let some: Vec<Vec<u8>> = all(3, 256, 7).collect();
        assert_eq!(some, all(3, 256, 7).collect::<Vec<_>>());
        assert_ne!(some[0], all(1, 256, 8).next().unwrap());
        assert_eq!(some[2][..4], [2, 0, 0, 0]);
        assert!(some[2][4..16].iter().all(u8::is_ascii_digit));
        assert_eq!(all(1, 64, 7).next().unwrap().len(), 64);
    }
}
