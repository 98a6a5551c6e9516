//! The random values of TPC-C: non-uniform numbers, last names, strings. All values depend on a seed.
//!
//! # Source
//! TPC-C 5.11, clauses 2.1.6 (NURand), 4.3.2.2 to 4.3.2.7 (strings, zip codes, last names).

use fastrand::Rng;

/// The constant C for the last names of the initial population. Clause 2.1.6.1 limits the difference between this C
/// and the C of a run. This C is fixed, so that a run need not know the seed of the population.
const LOAD_C_LAST: u32 = 123;
/// The differences that clause 2.1.6.1 allows between [`LOAD_C_LAST`] and a run's constant C for last names.
const C_LAST_DELTAS: std::ops::RangeInclusive<u32> = 65..=119;
/// The differences within [`C_LAST_DELTAS`] that are not allowed.
const C_LAST_DELTAS_EXCLUDED: [u32; 2] = [96, 112];

/// The number of different last names. A district with fewer customers has fewer names.
pub const LAST_NAMES: u32 = 1000;
/// The maximum length of a last name, in bytes.
pub const LAST_NAME_BYTES_MAX: usize = 16;

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];
const ALPHANUMERIC: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The constants C of NURand, one for each A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constants {
    last_name: u32,
    customer: u32,
    item: u32,
}

impl Constants {
    /// The constants of the initial population, which needs only the constant for last names.
    pub const LOAD: Constants = Constants {
        last_name: LOAD_C_LAST,
        customer: 0,
        item: 0,
    };

    /// Draws the constants of a run.
    #[must_use]
    pub fn of_run(rng: &mut Rng) -> Constants {
        let last_name = loop {
            let delta = rng.u32(C_LAST_DELTAS);
            let c = if rng.bool() {
                Some(LOAD_C_LAST + delta)
            } else {
                LOAD_C_LAST.checked_sub(delta)
            };
            if let Some(c) = c.filter(|c| *c <= 255 && !C_LAST_DELTAS_EXCLUDED.contains(&delta)) {
                break c;
            }
        };
        Constants {
            last_name,
            customer: rng.u32(0..=1023),
            item: rng.u32(0..=8191),
        }
    }
}

/// Draws a non-uniform random number in `low..=high` (clause 2.1.6).
fn nurand(rng: &mut Rng, a: u32, c: u32, low: u32, high: u32) -> u32 {
    debug_assert!(low <= high, "a range holds something");
    ((rng.u32(0..=a) | rng.u32(low..=high)) + c) % (high - low + 1) + low
}

/// A source of all random values.
#[derive(Debug, Clone)]
pub struct Random {
    rng: Rng,
    constants: Constants,
}

impl Random {
    /// Makes a source for the initial population.
    #[must_use]
    pub fn of_load(seed: u64) -> Random {
        Random {
            rng: Rng::with_seed(seed),
            constants: Constants::LOAD,
        }
    }

    /// Makes a source of random values for a worker of a run. All workers of a run use the same constants.
    #[must_use]
    pub fn of_run(seed: u64, constants: Constants) -> Random {
        Random {
            rng: Rng::with_seed(seed),
            constants,
        }
    }

    /// Draws a uniform number in `low..=high`.
    pub fn uniform(&mut self, low: u32, high: u32) -> u32 {
        self.rng.u32(low..=high)
    }

    /// Chooses true or false at random. True is chosen `percent` times in a hundred.
    pub fn percent(&mut self, percent: f64) -> bool {
        self.rng.f64() * 100.0 < percent
    }

    /// Draws an amount of money in `low..=high` cents.
    pub fn cents(&mut self, low: i64, high: i64) -> i64 {
        self.rng.i64(low..=high)
    }

    /// Chooses the number of a last name at random. The number is below `names`.
    pub fn last_name(&mut self, names: u32) -> u32 {
        assert!(names > 0, "there is a name");
        let c = self.constants.last_name;
        nurand(&mut self.rng, 255, c, 0, names - 1)
    }

    /// Draws the number of one of `customers` customers.
    pub fn customer(&mut self, customers: u32) -> u32 {
        let c = self.constants.customer;
        nurand(&mut self.rng, 1023, c, 1, customers)
    }

    /// Draws the number of one of `items` items.
    pub fn item(&mut self, items: u32) -> u32 {
        let c = self.constants.item;
        nurand(&mut self.rng, 8191, c, 1, items)
    }

    /// Draws `low` to `high` alphanumeric characters.
    pub fn a_string(&mut self, low: usize, high: usize) -> String {
        let len = self.rng.usize(low..=high);
        let mut bytes = vec![0; len];
        self.alphanumeric(&mut bytes);
        String::from_utf8(bytes).expect("ASCII")
    }

    /// Draws alphanumeric characters that fill an array.
    pub fn a_chars<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.alphanumeric(&mut bytes);
        bytes
    }

    fn alphanumeric(&mut self, out: &mut [u8]) {
        for four in out.chunks_mut(4) {
            let mut bits = self.rng.u64(..);
            for byte in four {
                // 16 random bits, multiplied by 62 and divided by 2^16, are a number below 62.
                let at = usize::try_from(((bits & 0xffff) * 62) >> 16).expect("below 62");
                *byte = ALPHANUMERIC[at];
                bits >>= 16;
            }
        }
    }

    /// Draws digits that fill an array.
    pub fn digits<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.rng.u8(b'0'..=b'9'))
    }

    /// Draws capital letters that fill an array.
    pub fn letters<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.rng.u8(b'A'..=b'Z'))
    }

    /// Draws a zip code: four digits and `11111`.
    pub fn zip(&mut self) -> [u8; 9] {
        let mut zip = *b"000011111";
        zip[..4].copy_from_slice(&self.digits::<4>());
        zip
    }

    /// Makes random data for an item or a stock: 26 to 50 characters. One text in ten contains `ORIGINAL`.
    pub fn data(&mut self) -> String {
        let mut data = self.a_string(26, 50);
        if self.rng.u8(0..10) == 0 {
            let at = self.rng.usize(0..=data.len() - "ORIGINAL".len());
            data.replace_range(at..at + "ORIGINAL".len(), "ORIGINAL");
        }
        data
    }

    /// Shuffles a slice.
    pub fn shuffle<T>(&mut self, slice: &mut [T]) {
        self.rng.shuffle(slice);
    }
}

/// Returns the last name for a number below 1000: one syllable for each digit.
#[must_use]
pub fn last_name(number: u32) -> String {
    assert!(number < LAST_NAMES, "a last name has three syllables");
    let mut name = String::with_capacity(LAST_NAME_BYTES_MAX);
    for digit in [number / 100, number / 10 % 10, number % 10] {
        name.push_str(SYLLABLES[usize::try_from(digit).expect("a digit")]);
    }
    debug_assert!(name.len() <= LAST_NAME_BYTES_MAX, "as long as a column");
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_name_has_a_syllable_for_each_digit() {
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(999), "EINGEINGEING");
        let longest = (0..LAST_NAMES).map(|n| last_name(n).len()).max();
        assert!(longest.is_some_and(|longest| longest <= LAST_NAME_BYTES_MAX));
    }

    #[test]
    fn c_of_the_last_names_differs_from_that_of_the_population_as_the_clause_says() {
        for seed in 0..2_000 {
            let run = Constants::of_run(&mut Rng::with_seed(seed));
            let delta = run.last_name.abs_diff(Constants::LOAD.last_name);
            assert!(C_LAST_DELTAS.contains(&delta) && !C_LAST_DELTAS_EXCLUDED.contains(&delta));
            assert!(run.last_name <= 255 && run.customer <= 1023 && run.item <= 8191);
        }
    }

    #[test]
    fn non_uniform_numbers_stay_in_range_and_are_not_uniform() {
        let constants = Constants::of_run(&mut Rng::with_seed(1));
        let mut random = Random::of_run(7, constants);
        let mut counts = vec![0u32; 100_001];
        for _ in 0..200_000 {
            counts[usize::try_from(random.item(100_000)).unwrap()] += 1;
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hottest: u32 = counts[..10_000].iter().sum();
        assert!(hottest > 60_000, "a tenth of the items has {hottest}");
        for customers in [1, 7, 3_000] {
            assert!((0..1_000).all(|_| (1..=customers).contains(&random.customer(customers))));
        }
        assert!((0..1_000).all(|_| random.last_name(30) < 30));
    }

    #[test]
    fn strings_have_their_lengths_and_characters() {
        let mut random = Random::of_load(3);
        let mut originals = 0;
        for _ in 0..2_000 {
            let text = random.a_string(14, 24);
            assert!((14..=24).contains(&text.len()));
            assert!(text.bytes().all(|b| b.is_ascii_alphanumeric()));
            let data = random.data();
            assert!((26..=50).contains(&data.len()));
            originals += u32::from(data.contains("ORIGINAL"));
        }
        assert!((140..=260).contains(&originals), "{originals} of 2000");
        let zip = random.zip();
        assert!(zip.ends_with(b"11111") && zip.iter().all(u8::is_ascii_digit));
        assert!(random.digits::<16>().iter().all(u8::is_ascii_digit));
        assert!(random.letters::<2>().iter().all(u8::is_ascii_uppercase));
        assert_eq!(random.a_chars::<24>().len(), 24);
    }

    #[test]
    fn one_seed_gives_one_sequence() {
        let of = |seed| {
            let mut random = Random::of_load(seed);
            (
                random.a_string(20, 40),
                random.last_name(1000),
                random.zip(),
            )
        };
        assert_eq!(of(5), of(5));
        assert_ne!(of(5), of(6));
    }
}
