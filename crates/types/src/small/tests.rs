use super::*;

fn texts(packed: &Packed<'_>) -> Vec<Vec<u8>> {
    packed.iter().map(|element| element.key.to_vec()).collect()
}

#[test]
fn any_text_comes_back_as_it_was_and_is_found() {
    let long = [b'x'; CELL_BYTES_MAX];
    let all: [&[u8]; 18] = [
        b"",
        b"a",
        b"0",
        b"-1",
        b"182",
        b"183",
        b"-128",
        b"-129",
        b"32767",
        b"32768",
        b"01",
        b"+1",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"9223372036854775808",
        b"1.5",
        b"-",
        &long,
    ];
    for (shape, extra) in [(Shape::Set, 0), (Shape::Hash, 1), (Shape::Zset, 2)] {
        let mut editor = Editor::new(shape);
        for text in all {
            let new = match extra {
                0 => New::One(text),
                1 => New::Pair(text, text),
                _ => New::Scored(text, -0.5),
            };
            assert!(editor.push(new));
        }
        let packed = Packed::parse(editor.packed().bytes(), shape).expect("whole");
        assert_eq!(packed.len(), all.len());
        assert_eq!(texts(&packed), all);
        for (index, text) in all.iter().enumerate() {
            let found = packed.find(text).expect("there");
            assert_eq!(&*packed.at(index).expect("there").key, *text);
            assert_eq!(&*found.key, *text);
            if shape == Shape::Hash {
                assert_eq!(&*found.value, *text);
            }
        }
        assert!(packed.find(b"absent").is_none());
        for cut in 0..packed.bytes().len() {
            assert!(Packed::parse(&packed.bytes()[..cut], shape).is_none());
        }
    }
}

#[test]
fn integers_take_the_fewest_bytes() {
    for (text, bytes) in [
        ("0", 1),
        ("182", 1),
        ("183", 3),
        ("-1", 2),
        ("-32768", 3),
        ("99999", 4),
    ] {
        let mut editor = Editor::new(Shape::Set);
        assert!(editor.push(New::One(text.as_bytes())));
        assert_eq!(editor.packed().bytes().len(), 1 + bytes, "{text}");
    }
}

#[test]
fn scores_come_back_bit_by_bit() {
    let eight_digits = f64::from_le_bytes(*b"12345678");
    for score in [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        1e300,
        f64::MAX,
        f64::MIN_POSITIVE,
        f64::INFINITY,
        f64::NEG_INFINITY,
        9_007_199_254_740_992.0,
        9_007_199_254_740_994.0,
        eight_digits,
        12_345_678.0,
    ] {
        let mut editor = Editor::new(Shape::Zset);
        assert!(editor.push(New::Scored(b"m", score)));
        let got = editor.packed().find(b"m").expect("there").score();
        assert_eq!(got.to_bits(), score.to_bits(), "{score}");
    }
}

#[test]
fn what_would_go_beyond_a_limit_is_refused_and_changes_nothing() {
    let mut editor = Editor::new(Shape::Set);
    assert!(!editor.push(New::One(&[b'x'; CELL_BYTES_MAX + 1])));
    for n in 0..COUNT_MAX {
        assert!(editor.push(New::One(n.to_string().as_bytes())));
    }
    assert!(!editor.push(New::One(b"x")));
    assert_eq!(editor.packed().len(), usize::from(COUNT_MAX));

    let mut editor = Editor::new(Shape::Hash);
    let mut pushed = 0;
    while editor.push(New::Pair(&[b'f'; 40], &[b'v'; 40])) {
        pushed += 1;
    }
    assert_eq!(pushed, (BYTES_MAX - 1) / 82);
    let (start, end) = editor
        .packed()
        .at(0)
        .map(|e| (e.start, e.end))
        .expect("there");
    let before = editor.packed().bytes().to_vec();
    assert!(!editor.replace(start..end, New::Pair(&[b'f'; 64], &[b'v'; 64])));
    assert_eq!(editor.packed().bytes(), before);
    assert!(Packed::parse(before, Shape::Hash).is_some());
}

#[test]
fn random_edits_agree_with_a_vector() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let (mut model, mut editor) = (Vec::<(Vec<u8>, Vec<u8>)>::new(), Editor::new(Shape::Hash));
        for _ in 0..200 {
            let text = |rng: &mut fastrand::Rng| match rng.u8(0..3) {
                0 => rng.i64(-300..300).to_string().into_bytes(),
                1 => rng.i64(..).to_string().into_bytes(),
                _ => (0..rng.usize(0..20)).map(|_| rng.u8(..)).collect(),
            };
            let (key, value) = (text(&mut rng), text(&mut rng));
            let index = rng.usize(0..=model.len());
            let place = editor.packed().at(index).map(|e| e.start..e.end);
            match (rng.u8(0..3), place) {
                (0, Some(range)) => {
                    editor.remove(range);
                    model.remove(index);
                }
                (1, Some(range)) => {
                    if editor.replace(range, New::Pair(&key, &value)) {
                        model[index] = (key, value);
                    }
                }
                (_, place) => {
                    let at = place.map_or(editor.packed().bytes().len(), |range| range.start);
                    if editor.insert(at, New::Pair(&key, &value)) {
                        model.insert(index, (key, value));
                    }
                }
            }
            let parsed = Packed::parse(editor.packed().bytes(), Shape::Hash).expect("whole");
            let got: Vec<_> = parsed
                .iter()
                .map(|e| (e.key.to_vec(), e.value.to_vec()))
                .collect();
            assert_eq!(got, model);
        }
    }
}

#[test]
fn random_bytes_never_panic_the_reader() {
    let mut rng = fastrand::Rng::with_seed(9);
    for _ in 0..100_000 {
        let bytes: Vec<u8> = (0..rng.usize(0..40)).map(|_| rng.u8(..)).collect();
        for shape in [Shape::Set, Shape::Hash, Shape::Zset] {
            if let Some(packed) = Packed::parse(&bytes[..], shape) {
                assert_eq!(packed.iter().count(), packed.len());
                let _ = packed.iter().map(|e| e.key.len()).sum::<usize>();
                if shape == Shape::Zset {
                    packed.iter().for_each(|e| drop(e.score().to_string()));
                }
            }
        }
    }
}

#[test]
fn the_examples_of_the_format_page_are_what_is_packed() {
    let page = include_str!("../../../../docs/formats/small.md");
    let hex = |editor: &Editor| {
        let bytes: Vec<String> = editor
            .packed()
            .bytes()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        bytes.join("")
    };
    let blocks: Vec<String> = page
        .split("```")
        .skip(1)
        .step_by(2)
        .map(|block| {
            block
                .trim_start_matches("text")
                .split_whitespace()
                .collect()
        })
        .collect();
    let mut hash = Editor::new(Shape::Hash);
    assert!(hash.push(New::Pair(b"a", b"1")) && hash.push(New::Pair(b"id", b"300")));
    let mut zset = Editor::new(Shape::Zset);
    assert!(zset.push(New::Scored(b"m", 1.5)) && zset.push(New::Scored(b"n", 2.0)));
    assert_eq!(blocks[1..], [hex(&hash), hex(&zset)]);
}
