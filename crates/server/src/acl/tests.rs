use super::log::{Context, Entry, Log};
use super::*;
use std::time::{Duration, Instant};

fn acl(rules: &[&str]) -> Acl {
    let mut acl = Acl::new();
    let words = rules
        .iter()
        .flat_map(|line| line.split(' '))
        .map(str::as_bytes);
    acl.set_user(b"u", words, false).expect("good rules");
    acl.take_fresh().iter().for_each(|secret| secret.hash());
    acl
}

fn described(rules: &[&str]) -> String {
    let acl = acl(rules);
    let text = acl.user(b"u").expect("a user").describe();
    String::from_utf8(text.expect("it is hashed")).expect("text")
}

#[test]
fn users_are_described_as_in_redis() {
    for (rules, text) in [
        ("off", "u off resetchannels -@all"),
        ("reset", "u off sanitize-payload resetchannels -@all"),
        (
            "on nopass allkeys allchannels allcommands",
            "u on nopass ~* &* +@all",
        ),
        ("+@all -get", "u off resetchannels +@all -get"),
        ("+@all -get +get", "u off resetchannels +@all"),
        (
            "on %R~x %W~x ~y* +@transaction -exec +config|get +select|0 +select|1 (+set ~z) (+@all \
             -@dangerous &ch*)",
            "u on ~x ~y* resetchannels -@all +@transaction +config|get -exec +select|0 +select|1 \
             (~z resetchannels -@all +set) (resetchannels &ch* +@all -@dangerous)",
        ),
    ] {
        assert_eq!(described(&[rules]), text, "{rules}");
    }
}

#[test]
fn a_description_makes_the_same_user_again() {
    for rules in [
        "+@all -@admin -set +client",
        "+@string -@fast",
        "+@read +@write -flushall %R~a %W~b &c (~d +get) (%RW~e -@all +config|set)",
        "on >secret #5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8 nopass >x",
        "skip-sanitize-payload +@all -select +select|3",
        "-@all +@all -@slow",
    ] {
        let once = acl(&[rules]);
        let user = once.user(b"u").expect("a user");
        let text = user.describe().expect("it is hashed");
        let text = String::from_utf8(text).expect("text");
        let words = text.strip_prefix("u ").expect("its name");
        let again = acl(&[words]);
        assert_eq!(again.user(b"u").expect("a user"), user, "{rules}: {text}");
    }
}

#[test]
fn a_wrong_word_changes_nothing() {
    let mut acl = acl(&["+get ~x"]);
    let before = acl.user(b"u").expect("a user").describe();
    for (word, why) in [
        ("+nosuch", "Unknown command or category name in ACL"),
        ("%~x", "Syntax error"),
        ("%X~x", "Syntax error"),
        ("foo", "Syntax error"),
        ("+config|", "Syntax error"),
        (
            "+config|get|x",
            "Allowing first-arg of a subcommand is not supported",
        ),
        ("+get|x|y", "Unknown command or category name in ACL"),
        ("-select|0", "Unknown command or category name in ACL"),
        ("+@nosuch", "Unknown command or category name in ACL"),
        (
            "<zz",
            "The password you are trying to remove from the user does not exist",
        ),
    ] {
        let words = [&b"on"[..], b"allcommands", word.as_bytes()];
        let error = acl
            .set_user(b"u", words.into_iter(), false)
            .expect_err(word);
        assert_eq!(
            error.to_string(),
            format!("Error in ACL SETUSER modifier '{word}': {why}")
        );
        assert_eq!(acl.user(b"u").expect("a user").describe(), before);
    }
    let words = [&b"(+get"[..], b"~x"];
    let error = acl
        .set_user(b"u", words.into_iter(), false)
        .expect_err("open");
    assert_eq!(
        error.to_string(),
        "Unmatched parenthesis in acl selector starting at '(+get ~x'."
    );
}

#[test]
fn repeats_of_a_denial_are_counted_and_the_log_is_bounded() {
    let mut log = Log::default();
    let now = Instant::now();
    let denied = |object: &str| Denied {
        reason: Reason::Key,
        at: 0,
        object: object.as_bytes().to_vec(),
    };
    for seconds in [0, 30, 80, 200] {
        let at = now + Duration::from_secs(seconds);
        log.add(Entry::new(denied("k"), Context::TopLevel, b"u", "", at), 5);
    }
    let counts: Vec<u64> = log.iter().map(|entry| entry.count).collect();
    assert_eq!(counts, [1, 3]);
    for n in 0..20 {
        let denied = denied(&n.to_string());
        log.add(Entry::new(denied, Context::Multi, b"u", "", now), 5);
    }
    assert_eq!(log.iter().len(), 5);
}

#[test]
fn a_file_is_taken_whole_or_not_at_all() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("users.acl");
    let mut acl = acl(&["on >pw ~a* +@read -ttl (+set ~b)"]);
    acl.save(&path).expect("a save");
    let mut other = Acl::new();
    other.load(&path, false).expect("a load");
    let lines = |acl: &Acl| acl.users().map(|u| u.describe()).collect::<Vec<_>>();
    assert_eq!(lines(&other), lines(&acl));
    let mark = Mark::of(b"pw");
    let Judged::Unknown(secrets) = other.user(b"u").expect("a user").judge(&mark) else {
        panic!("nobody has given this password yet");
    };
    assert!(secrets[0].verify(b"pw") && !secrets[0].verify(b"pW"));
    secrets[0].learn(mark);
    assert!(other.login(b"u", b"pw").is_some());
    assert!(other.login(b"u", b"pW").is_none());
    std::fs::write(&path, "user a on\nuser a off\nsomething\nuser b +nosuch\n").expect("a file");
    let error = other.load(&path, false).expect_err("wrong").to_string();
    for part in [
        "Duplicate user 'a' found on line 2",
        ":3: line should",
        ":4: Unknown command",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(lines(&other), lines(&acl), "nothing has changed");
    acl.set_requirepass(Some(b"door"));
    std::fs::write(&path, "user b on nopass +get ~*\n").expect("a file");
    acl.load(&path, false).expect("a load");
    assert!(
        !acl.open(),
        "a file that is silent about default leaves it as it is"
    );
    assert!(acl.user(b"u").is_none());
}

/// Returns a random word. Most of its bytes have a meaning in rules.
fn random_text(rng: &mut fastrand::Rng) -> Vec<u8> {
    const BYTES: &[u8] = b"aab*?()[]|~&+-@%#<>!:\\\"' \t\n\r\x0b\0\xff";
    let len = rng.usize(..6);
    (0..len).map(|_| BYTES[rng.usize(..BYTES.len())]).collect()
}

/// Returns a random rule, which is usually valid.
fn random_rule(rng: &mut fastrand::Rng, depth: usize) -> Vec<u8> {
    let entries: Vec<&str> = CATALOG
        .iter()
        .map(|(_, entry)| entry.name.as_str())
        .collect();
    let pick = |rng: &mut fastrand::Rng, words: &[&str]| {
        words[rng.usize(..words.len())].as_bytes().to_vec()
    };
    let sign = pick(rng, &["+", "-"]);
    match rng.u8(..12) {
        0 if depth == 0 => {
            let words: Vec<_> = (0..rng.usize(..5)).map(|_| random_rule(rng, 1)).collect();
            [&b"("[..], &words.join(&b' '), b")"].concat()
        }
        0 | 1 => [
            &sign[..],
            b"@",
            catalog::CATEGORIES[rng.usize(..21)].as_bytes(),
        ]
        .concat(),
        2 | 3 => [&sign[..], entries[rng.usize(..entries.len())].as_bytes()].concat(),
        4 | 5 => {
            let command = pick(rng, &["get", "select", "set", "config", "eval"]);
            [&b"+"[..], &command, b"|", &random_text(rng)].concat()
        }
        6 | 7 => {
            let access = pick(rng, &["~", "%R~", "%W~", "%RW~"]);
            let pattern = if rng.u8(..4) == 0 {
                b"*".to_vec()
            } else {
                random_text(rng)
            };
            [access, pattern].concat()
        }
        8 => [&b"&"[..], &random_text(rng)].concat(),
        9 => random_text(rng),
        _ => pick(
            rng,
            &[
                "on",
                "off",
                "nopass",
                "resetpass",
                "reset",
                "clearselectors",
                "resetkeys",
                "allkeys",
                "resetchannels",
                "allchannels",
                "allcommands",
                "nocommands",
                "+@all",
                "-@all",
                "sanitize-payload",
                "skip-sanitize-payload",
                "#5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8",
            ],
        ),
    }
}

/// Makes users with random names and rules. Writes the accepted users to an ACL file and to configuration lines. Checks
/// that reading them back gives the same users. `PERDURA_ACL_USERS` sets the number of users.
#[test]
fn every_user_that_is_accepted_comes_back_as_it_was() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let users: u64 = number("PERDURA_ACL_USERS").unwrap_or(200);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("users.acl");
    let mut rng = fastrand::Rng::with_seed(number("PERDURA_FUZZ_SEED").unwrap_or(1));
    let (mut accepted, mut as_text) = (0, 0);
    for _ in 0..users {
        let mut acl = Acl::new();
        let all_channels = rng.bool();
        let name = if rng.bool() {
            b"default".to_vec()
        } else {
            random_text(&mut rng)
        };
        if !is_name(&name) {
            continue;
        }
        for _ in 0..rng.usize(1..8) {
            let words: Vec<_> = (0..rng.usize(..4))
                .map(|_| random_rule(&mut rng, 0))
                .collect();
            // A refused request changes nothing.
            let words = words.iter().map(Vec::as_slice);
            accepted += u64::from(acl.set_user(&name, words, all_channels).is_ok());
        }
        acl.take_fresh().iter().for_each(|secret| secret.hash());
        acl.save(&path).expect("a file");
        let shown = || String::from_utf8_lossy(&std::fs::read(&path).expect("a file")).into_owned();
        // The default for channels may be different at the next start. That must not change existing users.
        let mut again = Acl::new();
        let loaded = again.load(&path, rng.bool());
        loaded.unwrap_or_else(|error| panic!("{error}: {}", shown()));
        assert!(again.users().eq(acl.users()), "{}", shown());
        if let Ok(lines) = acl.lines() {
            as_text += 1;
            let mut again = Acl::new();
            again.configure(&lines, rng.bool()).expect("sound lines");
            assert!(again.users().eq(acl.users()), "{lines:?}");
        }
    }
    assert!(
        accepted > users / 2 && as_text > users / 4,
        "{accepted} {as_text}"
    );
}
