//! The words of commands.
//!
//! Keys come from a small pool, so that commands often use existing keys. Each type has separate key names, but one key
//! in eight is of a wrong type. Some values are apt to break parsers: the empty value, binary, numbers at their limits,
//! numbers with a blank. Deadlines are far apart and far from the present time. So no reply depends on the millisecond
//! of a server's clock.

use fastrand::Rng;

/// Returns a random word of a class.
///
/// # Panics
/// If the class is unknown: a table has a mistake.
pub fn choose(class: &str, rng: &mut Rng) -> Vec<u8> {
    let chosen = key_of(class, rng)
        .or_else(|| of_stream(class, rng))
        .or_else(|| of_place(class, rng))
        .or_else(|| value_of(class, rng))
        .or_else(|| listed(class, rng));
    chosen.unwrap_or_else(|| panic!("no class {class}"))
}

/// Returns one of these words.
fn pick(rng: &mut Rng, words: &[&str]) -> Vec<u8> {
    words[rng.usize(..words.len())].as_bytes().to_vec()
}

/// Returns a key. `None`: `class` is not a class of keys.
fn key_of(class: &str, rng: &mut Rng) -> Option<Vec<u8>> {
    let word = match class {
        "key" => any_key(rng),
        "skey" => key(rng, 's'),
        "hkey" => key(rng, 'h'),
        "lkey" => key(rng, 'l'),
        "tkey" => key(rng, 't'),
        "zkey" => key(rng, 'z'),
        // A key of HyperLogLogs.
        "pkey" => key(rng, 'p'),
        // A key of sorted sets whose scores are all equal, so that a range of members is defined.
        "xkey" => format!("x{}", rng.u8(1..4)).into_bytes(),
        "nkey" => number_key(rng),
        "fkey" => format!("f{}", rng.u8(1..4)).into_bytes(),
        _ => return None,
    };
    Some(word)
}

/// Returns a word for stream commands. `None`: `class` is not a class of stream words.
fn of_stream(class: &str, rng: &mut Rng) -> Option<Vec<u8>> {
    let word = match class {
        "ekey" => key(rng, 'e'),
        "eid" => entry_id(rng),
        "eend" => match rng.u8(0..6) {
            0 | 1 => b"-".to_vec(),
            2 | 3 => b"+".to_vec(),
            4 => [b"(".to_vec(), entry_id(rng)].concat(),
            _ => entry_id(rng),
        },
        // Mostly `5-*`: the server then chooses the number, so the id comes after all other ids of that millisecond.
        "newid" => match rng.u8(0..50) {
            0..40 => b"5-*".to_vec(),
            40..43 => format!("{}-*", rng.u8(4..9)).into_bytes(),
            43..45 => b"0-*".to_vec(),
            _ => entry_id(rng),
        },
        "group" => pick(rng, &["g1", "g1", "g1", "g2", "g2", "", "no"]),
        "consumer" => pick(rng, &["c1", "c1", "c2", "c3", ""]),
        _ => return None,
    };
    Some(word)
}

/// Returns a word for geo commands. `None`: `class` is not a class of geo words.
fn of_place(class: &str, rng: &mut Rng) -> Option<Vec<u8>> {
    let word = match class {
        "gkey" => key(rng, 'g'),
        "lon" => degrees(rng, 180),
        "lat" => degrees(rng, 85),
        // These places are within a few hundred metres of each other, so that some distances are equal.
        "near" => format!("10.00{}", rng.u8(1..6)).into_bytes(),
        "radius" => radius(rng),
        "unit" => pick(
            rng,
            &["m", "m", "km", "km", "km", "mi", "ft", "KM", "Mi", "x", ""],
        ),
        _ => return None,
    };
    Some(word)
}

/// Returns a value or a number. `None`: `class` is not a class of values or numbers.
fn value_of(class: &str, rng: &mut Rng) -> Option<Vec<u8>> {
    let word = match class {
        // `any` is an element of a sketch. `sketch` is a sketch, sometimes a damaged one.
        "any" => rng.u32(..).to_string().into_bytes(),
        "sketch" => sketch(rng),
        "val" => value(rng),
        "long" => vec![b'a' + rng.u8(..26); rng.usize(50..3000)],
        "int" => integer(rng),
        "small" => rng.i32(-3..12).to_string().into_bytes(),
        "cnt" => rng.i32(0..8).to_string().into_bytes(),
        "size" => rng.i32(1..60).to_string().into_bytes(),
        "idx" => rng.i32(-9..9).to_string().into_bytes(),
        "bit" => pick(rng, &["0", "1", "1", "1", "2"]),
        "off" => rng.i32(0..300).to_string().into_bytes(),
        "bigoff" => rng.i32(0..9000).to_string().into_bytes(),
        "quarter" => quarter(rng),
        "score" => score(rng),
        "bound" => bound(rng),
        "lex" => lex(rng),
        "field" => field(rng),
        "member" => member(rng),
        "sec" => seconds(rng),
        "ms" => [seconds(rng), b"000".to_vec()].concat(),
        "at" => at(rng),
        "atms" => [at(rng), b"000".to_vec()].concat(),
        _ => return None,
    };
    Some(word)
}

/// Returns a script, a library, or a word from a list. `None`: `class` is not a class of listed words.
fn listed(class: &str, rng: &mut Rng) -> Option<Vec<u8>> {
    let word = match class {
        // `lua` is a script, `lib` a library, and `func` a function's name.
        "lua" => crate::lua::script(rng),
        "lib" => crate::lua::library(rng),
        "func" => format!("f{}", rng.u8(1..4)).into_bytes(),
        "db" => pick(rng, &["0", "0", "1", "1", "2", "3", "99", "-1", "abc"]),
        "gooddb" => pick(rng, &["0", "0", "1", "2", "3"]),
        "pat" => pick(rng, &PATTERNS),
        "type" => pick(
            rng,
            &[
                "string", "list", "set", "hash", "zset", "STRING", "stream", "foo",
            ],
        ),
        "chan" => pick(rng, &["news", "sport", "c1", "c2", "", "a*"]),
        "chanpat" => pick(rng, &["*", "n*", "c?", "[a-c]*", "news", "\\*"]),
        "junk" => pick(rng, &JUNK),
        "secs0" => pick(rng, &["0.01", "0.02", "0.05"]),
        "wait" => pick(
            rng,
            &[
                "0", "0", "0", "0", "50", "100.5", "-1", "abc", "1e3", "inf", "",
            ],
        ),
        "bftype" => pick(
            rng,
            &[
                "u8", "i8", "u1", "i16", "u63", "i64", "u16", "i5", "u4", "u64", "i0", "x8", "i65",
            ],
        ),
        "bfoff" => pick(rng, &["0", "#0", "#1", "7", "100", "#3", "-1", "#x", "5"]),
        _ => return None,
    };
    Some(word)
}

const PATTERNS: [&str; 14] = [
    "*", "s*", "?1", "[hl]*", "[^s]*", "h[1-2]", "nothing", "", "*1", "\\*", "[a-", "z?*",
    "[z-a]3", "f*",
];

const JUNK: [&str; 40] = [
    "",
    "0",
    "-1",
    "1",
    "2",
    "-0",
    "+1",
    " 1",
    "1 ",
    "01",
    "1.5",
    "1e3",
    "nan",
    "inf",
    "-inf",
    "abc",
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "LIMIT",
    "COUNT",
    "MATCH",
    "WITHSCORES",
    "BYLEX",
    "REV",
    "GET",
    "EX",
    "KEEPTTL",
    "WEIGHTS",
    "AGGREGATE",
    "STORE",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "LEFT",
    "a\r\nb",
    "\u{fffd}",
];

/// Returns a random id, which is sometimes invalid. Each number in the id fits in 64 bits. A longer number would set an
/// error code in Redis, and the next SORT would report that error.
fn entry_id(rng: &mut Rng) -> Vec<u8> {
    const ODD: [&str; 11] = [
        "",
        "-",
        "+",
        "5",
        "0",
        "5-",
        "-5",
        "5-5-5",
        "abc",
        "5-x",
        "18446744073709551615-18446744073709551615",
    ];
    match rng.u8(..) {
        0..20 => ODD[rng.usize(..ODD.len())].as_bytes().to_vec(),
        20..40 => rng.u8(4..9).to_string().into_bytes(),
        _ => format!("{}-{}", [5, 5, 5, 5, 0, 6][rng.usize(..6)], rng.u8(0..40)).into_bytes(),
    }
}

/// Returns a key of any type but a stream. Streams are left out because our WATCH detects more changes of streams than
/// Redis does.
fn any_key(rng: &mut Rng) -> Vec<u8> {
    let family = ['s', 'h', 'l', 't', 'z', 'g', 'p'][rng.usize(..7)];
    key(rng, family)
}

fn key(rng: &mut Rng, family: char) -> Vec<u8> {
    match rng.u8(..) {
        0..28 => any_key(rng),
        28..30 => Vec::new(),
        30..32 => b"bin\x00\xff\r\n".to_vec(),
        32..34 => b"nothing".to_vec(),
        34..36 => vec![b'k'; 300],
        _ => format!("{family}{}", rng.u8(1..5)).into_bytes(),
    }
}

/// Returns the key of a counter. Sometimes returns the key of a string instead, to test the commands for numbers on
/// strings.
fn number_key(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..) {
        0..40 => key(rng, 's'),
        _ => format!("n{}", rng.u8(1..4)).into_bytes(),
    }
}

fn integer(rng: &mut Rng) -> Vec<u8> {
    const LIMITS: [&str; 14] = [
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "-9223372036854775809",
        "4611686018427387904",
        "2147483647",
        "-2147483648",
        "4294967296",
        "1000000",
        "",
        "abc",
        "1.0",
        " 1",
        "-",
    ];
    match rng.u8(..) {
        0..30 => LIMITS[rng.usize(..LIMITS.len())].as_bytes().to_vec(),
        30..200 => rng.i32(-5..11).to_string().into_bytes(),
        _ => rng.i32(-1000..1000).to_string().into_bytes(),
    }
}

fn value(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..) {
        0..60 => integer(rng),
        60..90 => score(rng),
        90..100 => Vec::new(),
        100..120 => (0..rng.usize(1..30)).map(|_| rng.u8(..)).collect(),
        120..126 => vec![b'x'; rng.usize(60..70)],
        126..132 => vec![b'a' + rng.u8(..26); rng.usize(100..3000)],
        132..134 => vec![b'L'; rng.usize(14_000..40_000)],
        134..150 => quarter(rng),
        _ => {
            let words = [
                "foo",
                "bar",
                "hello world",
                "a",
                "abc",
                "value",
                "Foobar",
                "x1",
            ];
            words[rng.usize(..words.len())].as_bytes().to_vec()
        }
    }
}

/// Returns a multiple of 0.25, which binary floats of every width hold exactly.
fn quarter(rng: &mut Rng) -> Vec<u8> {
    let number = f64::from(rng.i32(-400..400)) / 4.0;
    number.to_string().into_bytes()
}

fn score(rng: &mut Rng) -> Vec<u8> {
    const ODD: [&str; 22] = [
        "inf",
        "-inf",
        "+inf",
        "nan",
        "1e308",
        "-1e308",
        "1e-300",
        "0.1",
        "3.141592653589793",
        "-0",
        "1e3",
        "1E5",
        "0x10",
        "1.5.2",
        "abc",
        "",
        " 1",
        "1 ",
        "17179869184.5",
        "9007199254740993",
        "infinity",
        "+5",
    ];
    match rng.u8(..) {
        0..50 => ODD[rng.usize(..ODD.len())].as_bytes().to_vec(),
        50..100 => quarter(rng),
        _ => rng.i32(-3..10).to_string().into_bytes(),
    }
}

/// Returns a string that begins like a sparse sketch. Sometimes its runs of registers do not add up to all registers.
fn sketch(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    bytes[4] = if rng.u8(..) < 20 { rng.u8(..) } else { 1 };
    bytes[15] = if rng.u8(..) < 20 { 0 } else { 0x80 };
    let mut registers = 1usize << 14;
    for _ in 0..rng.usize(..12) {
        let value = 0x80 | rng.u8(..);
        registers -= usize::from(value & 3) + 1;
        bytes.push(value);
    }
    match rng.u8(..) {
        0..200 => {
            let rest = registers - 1;
            bytes.extend([0x40 | (rest >> 8).to_le_bytes()[0], rest.to_le_bytes()[0]]);
        }
        _ => bytes.extend((0..rng.usize(..6)).map(|_| rng.u8(..))),
    }
    match rng.u8(..) {
        0..20 => bytes.truncate(bytes.len() - 1),
        20..40 => bytes.push(rng.u8(..)),
        _ => {}
    }
    bytes
}

/// Returns a coordinate: on a coarse grid, anywhere, at a limit, or sometimes invalid.
fn degrees(rng: &mut Rng, most: i32) -> Vec<u8> {
    const ODD: [&str; 12] = [
        "180",
        "-180",
        "85.05112878",
        "-85.05112878",
        "85.0511288",
        "180.1",
        "1e-300",
        "nan",
        "-inf",
        "inf",
        "",
        "1e308",
    ];
    match rng.u8(..) {
        0..12 => ODD[rng.usize(..ODD.len())].as_bytes().to_vec(),
        12..20 => score(rng),
        20..120 => (rng.i32(-most / 15..=most / 15) * 15)
            .to_string()
            .into_bytes(),
        120..160 => format!("10.{}", rng.u32(..1000)).into_bytes(),
        _ => {
            let number = (rng.f64() - 0.5) * 2.0 * f64::from(most);
            number.to_string().into_bytes()
        }
    }
}

/// Returns a length of any order of magnitude.
fn radius(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..) {
        0..12 => score(rng),
        12..20 => b"0".to_vec(),
        20..28 => b"1e300".to_vec(),
        _ => {
            let number = 10f64.powf(rng.f64() * 8.0 - 1.0);
            number.to_string().into_bytes()
        }
    }
}

fn bound(rng: &mut Rng) -> Vec<u8> {
    let mut word = match rng.u8(..) {
        0..50 => b"-inf".to_vec(),
        50..100 => b"+inf".to_vec(),
        _ => score(rng),
    };
    if rng.u8(..) < 60 {
        word.insert(0, b'(');
    }
    word
}

fn lex(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..) {
        0..40 => b"-".to_vec(),
        40..80 => b"+".to_vec(),
        80..90 => member(rng),
        n => [
            if n % 2 == 0 {
                b"[".to_vec()
            } else {
                b"(".to_vec()
            },
            member(rng),
        ]
        .concat(),
    }
}

fn field(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..) {
        0..5 => Vec::new(),
        5..8 => vec![b'f'; 70],
        8..12 => b"f\x00\xfe".to_vec(),
        12..40 => format!("n{}", rng.u8(1..5)).into_bytes(),
        40..60 => format!("f{}", rng.u16(..400)).into_bytes(),
        _ => format!("f{}", rng.u8(1..9)).into_bytes(),
    }
}

fn member(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..) {
        0..5 => Vec::new(),
        5..8 => vec![b'm'; 70],
        8..12 => b"m\x00\xfe".to_vec(),
        12..100 => rng.i32(-5..25).to_string().into_bytes(),
        100..110 => integer(rng),
        110..130 => format!("m{}", rng.u16(..400)).into_bytes(),
        _ => format!("m{}", rng.u8(1..9)).into_bytes(),
    }
}

/// Returns a number of seconds. Most of the possible numbers are longer than a day and are multiples of 500. The others
/// are unusual, such as 0.
fn seconds(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..) {
        0..8 => b"0".to_vec(),
        8..18 => b"-1".to_vec(),
        18..24 => integer_limit(rng),
        _ => (100_000 + 500 * rng.u64(1..100_000))
            .to_string()
            .into_bytes(),
    }
}

fn at(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..) {
        0..8 => b"1".to_vec(),
        8..12 => b"0".to_vec(),
        12..16 => b"-5".to_vec(),
        16..22 => integer_limit(rng),
        22..80 => b"4000000000".to_vec(),
        _ => (4_000_000_000 + 500 * rng.u64(1..100_000))
            .to_string()
            .into_bytes(),
    }
}

fn integer_limit(rng: &mut Rng) -> Vec<u8> {
    let words = [
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775",
        "abc",
        "",
    ];
    words[rng.usize(..words.len())].as_bytes().to_vec()
}

/// Returns every key that a script can write, except for keys made by [`spoil`](crate::grammar::spoil).
pub fn all_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for family in ["s", "h", "l", "t", "z", "g", "p", "x", "n", "f", "w_"] {
        keys.extend((0..9).map(|n| format!("{family}{n}").into_bytes()));
    }
    keys.extend([
        Vec::new(),
        b"bin\x00\xff\r\n".to_vec(),
        b"nothing".to_vec(),
        vec![b'k'; 300],
    ]);
    keys.extend(JUNK.iter().map(|word| word.as_bytes().to_vec()));
    keys.sort();
    keys.dedup();
    keys
}
