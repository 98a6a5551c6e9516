//! The language of the tables of commands.
//!
//! A line is a weight and a *unit*: commands that belong together, separated by `;`. A word in capitals, a number, or a
//! word after `'` is literal. A word in small letters is a class of [`words`](mod@crate::words): `key`, `int`, `score`.
//! `class:x` stores the chosen word under the name `x` for the rest of the unit.
//!
//! * `[ … ]` is optional, and `( … | … )` is one of its alternatives.
//! * `( … )+` and `class+` are repeated one or more times.
//! * `#( … )` is repeated, too. The number of repetitions comes first, as ZUNION requires.
//! * `@` begins a step that is not a plain command: `@SLEEP 5`, `@SCAN 0 MATCH pat`.

use crate::words;
use fastrand::Rng;
use std::collections::BTreeMap;

/// A parsed line.
#[derive(Debug, Clone)]
pub struct Sentence {
    /// The line's relative frequency within the family.
    pub weight: u32,
    commands: Vec<Vec<Node>>,
}

#[derive(Debug, Clone)]
enum Node {
    Literal(Vec<u8>),
    Class(String, Option<String>),
    Several(Vec<Node>),
    Counted(Vec<Node>),
    Optional(Vec<Node>),
    OneOf(Vec<Vec<Node>>),
}

impl Sentence {
    /// Parses a line of a table.
    ///
    /// # Panics
    /// If the line is malformed: the table has a mistake.
    pub fn parse(line: &str) -> Sentence {
        let mut tokens = line.split_whitespace().peekable();
        let weight = tokens.next().and_then(|w| w.parse().ok());
        let weight = weight.unwrap_or_else(|| panic!("no weight: {line}"));
        let rest: Vec<&str> = tokens.collect();
        let commands = rest
            .split(|token| *token == ";")
            .map(|tokens| {
                let mut at = 0;
                let nodes = sequence(tokens, &mut at);
                assert!(at == tokens.len() && !nodes.is_empty(), "malformed: {line}");
                nodes
            })
            .collect();
        Sentence { weight, commands }
    }

    /// Returns the name of each command, and the name together with the second word.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for nodes in &self.commands {
            let words = nodes.iter().map_while(|node| match node {
                Node::Literal(word) => Some(String::from_utf8_lossy(word).into_owned()),
                _ => None,
            });
            let words: Vec<String> = words.skip_while(|word| word.starts_with('@')).collect();
            names.extend(words.first().cloned());
            names.extend(words.get(..2).map(|two| two.join("|")));
        }
        names
    }

    /// Returns the commands of one unit, with words that `rng` chooses.
    pub fn speak(&self, rng: &mut Rng) -> Vec<Vec<Vec<u8>>> {
        let mut names = BTreeMap::new();
        self.commands
            .iter()
            .map(|nodes| {
                let mut argv = Vec::new();
                say(nodes, rng, &mut names, &mut argv);
                argv
            })
            .collect()
    }
}

/// Parses nodes up to a closing token or the end of the tokens.
fn sequence(tokens: &[&str], at: &mut usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    while let Some(&token) = tokens.get(*at) {
        if matches!(token, "]" | ")" | ")+" | "|") {
            break;
        }
        *at += 1;
        nodes.push(match token {
            "[" => {
                let inner = sequence(tokens, at);
                assert_eq!(tokens.get(*at), Some(&"]"), "[ without ] in {tokens:?}");
                *at += 1;
                Node::Optional(inner)
            }
            "(" | "#(" => {
                let mut choices = vec![sequence(tokens, at)];
                while tokens.get(*at) == Some(&"|") {
                    *at += 1;
                    choices.push(sequence(tokens, at));
                }
                let end = tokens.get(*at).copied();
                *at += 1;
                let one = Node::OneOf(choices);
                match (token, end) {
                    ("#(", Some(")")) => Node::Counted(vec![one]),
                    ("(", Some(")+")) => Node::Several(vec![one]),
                    ("(", Some(")")) => one,
                    _ => panic!("( without ) in {tokens:?}"),
                }
            }
            _ => word(token),
        });
    }
    nodes
}

fn word(token: &str) -> Node {
    if let Some(literal) = token.strip_prefix('\'') {
        return Node::Literal(literal.as_bytes().to_vec());
    }
    if !token.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Node::Literal(token.as_bytes().to_vec());
    }
    if let Some(class) = token.strip_suffix('+') {
        return Node::Several(vec![word(class)]);
    }
    match token.split_once(':') {
        Some((class, name)) => Node::Class(class.to_owned(), Some(name.to_owned())),
        None => Node::Class(token.to_owned(), None),
    }
}

fn say(
    nodes: &[Node],
    rng: &mut Rng,
    names: &mut BTreeMap<String, Vec<u8>>,
    argv: &mut Vec<Vec<u8>>,
) {
    for node in nodes {
        match node {
            Node::Literal(word) => argv.push(word.clone()),
            Node::Class(class, None) => argv.push(words::choose(class, rng)),
            Node::Class(class, Some(name)) => {
                let word = names
                    .entry(name.clone())
                    .or_insert_with(|| words::choose(class, rng));
                argv.push(word.clone());
            }
            Node::Optional(inner) => {
                if rng.u8(..) < 100 {
                    say(inner, rng, names, argv);
                }
            }
            Node::OneOf(choices) => {
                let choice = rng.usize(..choices.len());
                say(&choices[choice], rng, names, argv);
            }
            Node::Several(inner) => {
                for _ in 0..several(rng) {
                    say(inner, rng, names, argv);
                }
            }
            Node::Counted(inner) => {
                let count = several(rng);
                let told = match rng.u8(..) {
                    0..6 => words::choose("int", rng),
                    6..9 => (count + 1).to_string().into_bytes(),
                    _ => count.to_string().into_bytes(),
                };
                argv.push(told);
                for _ in 0..count {
                    say(inner, rng, names, argv);
                }
            }
        }
    }
}

/// Returns a number from one to many, mostly a small one.
fn several(rng: &mut Rng) -> usize {
    match rng.u8(..) {
        0..130 => 1,
        130..200 => 2,
        200..252 => rng.usize(3..8),
        _ => rng.usize(20..60),
    }
}

/// Changes one command at random. The result is often invalid. An argument is added, removed, moved or replaced by a
/// junk value, or a word is put in lower case.
pub fn spoil(argv: &mut Vec<Vec<u8>>, rng: &mut Rng) {
    let any = rng.usize(..argv.len());
    match rng.u8(..8) {
        0 if argv.len() > 1 => {
            argv.pop();
        }
        1 if any > 0 => {
            argv.remove(any);
        }
        2 => argv.push(words::choose("junk", rng)),
        3 => {
            let twice = argv[any].clone();
            if any > 0 {
                argv.insert(any, twice);
            }
        }
        4 if argv.len() > 2 => {
            let other = rng.usize(1..argv.len());
            if any > 0 {
                argv.swap(any, other);
            }
        }
        5 => argv[0] = argv[0].to_ascii_lowercase(),
        6 => argv[any] = argv[any].to_ascii_lowercase(),
        _ => {
            if any > 0 {
                argv[any] = words::choose("junk", rng);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_spoken_as_it_is_written() {
        let sentence = Sentence::parse("3 SET 'key 1 ; MGET ( 'a )+ ; X #( 'k )");
        assert_eq!(sentence.weight, 3);
        assert_eq!(sentence.names(), ["SET", "SET|key", "MGET", "X"]);
        let mut rng = Rng::with_seed(1);
        for _ in 0..50 {
            let unit = sentence.speak(&mut rng);
            assert_eq!(unit[0], [b"SET".to_vec(), b"key".to_vec(), b"1".to_vec()]);
            assert!(unit[1].len() >= 2 && unit[1][1..].iter().all(|word| word == b"a"));
            assert!(unit[2].len() >= 3);
        }
    }

    #[test]
    fn a_name_is_the_same_word_in_all_of_a_unit() {
        let sentence = Sentence::parse("1 GET key:a ; DEL key:a");
        let mut rng = Rng::with_seed(2);
        for _ in 0..50 {
            let unit = sentence.speak(&mut rng);
            assert_eq!(unit[0][1], unit[1][1]);
        }
    }
}
