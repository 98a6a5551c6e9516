use super::*;

const OPEN: Limits = Limits {
    args_max: 1 << 20,
    bulk_bytes_max: 1 << 20,
    authenticated: true,
};

/// Feeds `chunks` in order, and collects the requests and a possible error.
fn feed(chunks: &[&[u8]], limits: &Limits) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    let found = feed_ahead(chunks, limits, 1, || false);
    for most in [2, 3, 16] {
        let ahead = feed_ahead(chunks, limits, most, || false);
        assert_eq!(ahead, found, "up to {most} at once");
        let early = feed_early(chunks, limits, most, || false, || true);
        assert_eq!(early, found, "up to {most} at once, early");
    }
    found
}

/// Like [`feed`], but parses up to `most` requests at once. `forgets` is called after each request, and decides
/// whether the requests parsed ahead are forgotten.
fn feed_ahead(
    chunks: &[&[u8]],
    limits: &Limits,
    most: usize,
    forgets: impl FnMut() -> bool,
) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    feed_early(chunks, limits, most, forgets, || false)
}

/// Like [`feed_ahead`], but calls `parse_early` before a batch whenever `early` returns true.
fn feed_early(
    chunks: &[&[u8]],
    limits: &Limits,
    most: usize,
    mut forgets: impl FnMut() -> bool,
    mut early: impl FnMut() -> bool,
) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    let mut parser = Parser::new();
    let mut input = Vec::new();
    let mut requests = Vec::new();
    for chunk in chunks {
        input.extend_from_slice(chunk);
        loop {
            if parser.is_at_end() && early() {
                parser.parse_early(&input, limits, most);
            }
            let begins = parser.begins();
            match parser.parse(&input, limits, most) {
                Ok(Some(bytes)) => {
                    let args: Vec<_> = parser.args(&input).from(0).map(<[u8]>::to_vec).collect();
                    if begins {
                        let mut parsed = parser.parsed(&input);
                        let first = parsed.next().expect("the first of them");
                        assert!(first.from(0).eq(args.iter().map(Vec::as_slice)));
                        assert!(parsed.count() < most);
                    }
                    if forgets() {
                        parser.forget_ahead();
                        if forgets() {
                            // The request is deferred, and its bytes are passed in again.
                            continue;
                        }
                    }
                    requests.push(args);
                    input.drain(..bytes);
                }
                Ok(None) => break,
                Err(ParseError::Protocol(text)) => return (requests, Some(text)),
                Err(ParseError::Foreign(foreign)) => {
                    return (requests, Some(String::from(foreign.text())));
                }
            }
        }
    }
    (requests, None)
}

const STREAM: &[u8] =
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\nwith\r\nline\r\nPING\r\n*0\r\n\r\n  \n\
*1\r\n$4\r\nPING\r\n*-1\r\nset \"a b\\x41\\n\" 'it\\'s'\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n";

#[test]
fn every_split_of_a_stream_gives_the_same_requests() {
    let good = &STREAM[..STREAM.len()];
    let (whole, _) = feed(&[good], &OPEN);
    assert_eq!(
        whole[0],
        [b"SET".to_vec(), b"k".to_vec(), b"with\r\nline".to_vec()]
    );
    assert_eq!(whole[1], [b"PING".to_vec()]);
    for cut in 0..=good.len() {
        assert_eq!(
            feed(&[&good[..cut], &good[cut..]], &OPEN),
            feed(&[good], &OPEN),
            "cut {cut}"
        );
    }
    let bytes: Vec<&[u8]> = good.chunks(1).collect();
    assert_eq!(feed(&bytes, &OPEN), feed(&[good], &OPEN));
}

#[test]
fn what_was_parsed_ahead_may_be_forgotten_after_any_request() {
    let mut rng = fastrand::Rng::with_seed(11);
    let stream = STREAM.repeat(4);
    for bad in [&b""[..], b"*1\r\n+oops\r\n"] {
        let stream = [&stream[..], bad].concat();
        let plainly = feed_ahead(&[&stream], &OPEN, 1, || false);
        assert_eq!(plainly.1.is_some(), !bad.is_empty());
        for _ in 0..500 {
            let cut = rng.usize(..=stream.len());
            let chunks = [&stream[..cut], &stream[cut..]];
            let most = rng.usize(1..20);
            assert_eq!(
                feed_ahead(&chunks, &OPEN, most, || rng.u8(..3) == 0),
                plainly,
                "cut {cut}, up to {most} at once"
            );
            let mut odds = rng.fork();
            let found = feed_early(
                &chunks,
                &OPEN,
                most,
                || rng.u8(..3) == 0,
                || odds.u8(..3) > 0,
            );
            assert_eq!(found, plainly, "cut {cut}, up to {most} at once, early");
        }
    }
}

#[test]
fn short_numbers_are_read_as_parse_i64_reads_them() {
    let digits = "1000000000000000000000";
    let mut texts = vec![
        "",
        "0",
        "007",
        "-1",
        "+1",
        "1a",
        " 1",
        "1 ",
        "18446744073709551617",
    ];
    texts.extend((1..digits.len()).map(|n| &digits[..n]));
    texts.extend([
        "42",
        "99",
        "100",
        "101",
        "999999999999999999",
        "9223372036854775807",
    ]);
    for text in texts {
        let line = format!("${text}\r\nrest");
        for max in [100, i64::MAX] {
            let mut parser = Parser::new();
            let short = parser.short_number(line.as_bytes(), 1, max);
            let whole = parse_i64(text.as_bytes()).filter(|n| (1..=max).contains(n));
            let expected = whole.filter(|_| text.len() <= NUMBER_DIGITS);
            assert_eq!(short, expected, "{text} of at most {max}");
            let end = if short.is_some() { line.len() - 4 } else { 0 };
            assert_eq!((parser.at, parser.scanned), (end, end), "{text}");
            for cut in 0..line.len() - 4 {
                let mut parser = Parser::new();
                let cut = parser.short_number(&line.as_bytes()[..cut], 1, max);
                assert_eq!((cut, parser.at), (None, 0), "half a line of {text}");
            }
        }
    }
}

#[test]
fn quotes_and_escapes_of_inline_requests_are_resolved() {
    let (requests, error) = feed(&[b"set \"a b\\x41\\n\\\"\" 'it\\'s' x\n"], &OPEN);
    assert_eq!(error, None);
    let want: Vec<Vec<u8>> = vec![
        b"set".into(),
        b"a bA\n\"".into(),
        b"it's".into(),
        b"x".into(),
    ];
    assert_eq!(requests, [want]);
}

#[test]
fn violations_have_the_words_of_redis() {
    let long = [b'1'; 70_000];
    let mut long_count = b"*".to_vec();
    long_count.extend_from_slice(&long);
    let mut long_bulk = b"*1\r\n$".to_vec();
    long_bulk.extend_from_slice(&long);
    let cases: [(&[u8], &str); 15] = [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$1048577\r\n", "invalid bulk length"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"set \"a\n", "unbalanced quotes in request"),
        (b"set \"a\"b\n", "unbalanced quotes in request"),
        (&long, "too big inline request"),
        (&long_count, "too big mbulk count string"),
        (&long_bulk, "too big bulk count string"),
    ];
    for (bytes, text) in cases {
        let (requests, error) = feed(&[bytes], &OPEN);
        assert!(requests.is_empty());
        assert_eq!(error, Some(format!("Protocol error: {text}")));
    }
}

#[test]
fn strangers_may_send_little() {
    let text = feed(&[b"*11\r\n"], &Limits::STRANGER).1;
    assert_eq!(
        text.as_deref(),
        Some("Protocol error: unauthenticated multibulk length")
    );
    let text = feed(&[b"*1\r\n$16385\r\n"], &Limits::STRANGER).1;
    assert_eq!(
        text.as_deref(),
        Some("Protocol error: unauthenticated bulk length")
    );
}

#[test]
fn random_bytes_never_panic_and_split_like_the_whole() {
    let alphabet = b"*$\r\n0123459-+\"'\\x aPING\0\xff";
    for seed in 0..2_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes: Vec<u8> = (0..random.usize(0..80))
            .map(|_| alphabet[random.usize(0..alphabet.len())])
            .collect();
        if random.bool() {
            let at = random.usize(0..STREAM.len());
            bytes.splice(0..0, STREAM[..at].iter().copied());
        }
        let cut = random.usize(0..=bytes.len());
        let split = feed(&[&bytes[..cut], &bytes[cut..]], &OPEN);
        assert_eq!(split, feed(&[&bytes], &OPEN), "seed {seed}, cut {cut}");
    }
}

#[test]
fn kept_requests_equal_the_original() {
    let mut parser = Parser::new();
    let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\nabc\r\n";
    assert_eq!(parser.parse(bytes, &OPEN, 1), Ok(Some(bytes.len())));
    let owned = OwnedArgs::copy(&parser.args(bytes));
    assert_eq!(owned.args().from(0).collect::<Vec<_>>(), [b"GET", b"abc"]);
}
