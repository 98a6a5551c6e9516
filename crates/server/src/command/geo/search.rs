//! Commands that find the members in an area: GEOSEARCH, GEOSEARCHSTORE, and the older GEORADIUS and
//! GEORADIUSBYMEMBER. They reply with the members, or store them in a key.

use super::{place, place_of, reply_distance, reply_place, unit};
use crate::command::flag::{DENY_OOM, READ, WRITE};
use crate::command::lists::integer;
use crate::command::options::{Grammar, Role, Word, role, word};
use crate::command::spec::{Command, Keys, ONE, TWO, data};
use crate::command::zsets::ranges::store;
use crate::command::{Data, Done, SYNTAX, Stop};
use crate::engine::Shape;
use crate::engine::types::geo::order::{self, First};
use crate::engine::types::geo::{self, Form, Found, Place, Search};
use crate::engine::types::{Source, score};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::{to_u64, to_usize};

const STORES: u32 = WRITE | DENY_OOM;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("georadius", -6, STORES, Keys::Stored(&RADIUS), georadius),
    data("georadius_ro", -6, READ, ONE, georadius_ro),
    data(
        "georadiusbymember",
        -5,
        STORES,
        Keys::Stored(&MEMBER),
        georadiusbymember,
    ),
    data("georadiusbymember_ro", -5, READ, ONE, georadiusbymember_ro),
    data("geosearch", -7, READ, ONE, geosearch),
    data("geosearchstore", -8, STORES, TWO, geosearchstore),
];

/// The options, in four groups. Two are for GEORADIUS and GEORADIUSBYMEMBER, seven for all commands, four for
/// GEOSEARCH and GEOSEARCHSTORE, and one for GEOSEARCHSTORE. Each command uses a slice of this list.
const WORDS: [Word; 14] = [
    role("STORE", Role::Target),
    role("STOREDIST", Role::Target),
    word("WITHDIST", 0),
    word("WITHHASH", 0),
    word("WITHCOORD", 0),
    word("ANY", 0),
    word("ASC", 0),
    word("DESC", 0),
    word("COUNT", 1),
    word("FROMMEMBER", 1),
    word("FROMLONLAT", 2),
    word("BYRADIUS", 2),
    word("BYBOX", 3),
    word("STOREDIST", 0),
];
/// The index of the first option for all commands.
const ALL: usize = 2;
/// The index of the first option for an area.
const AREA: usize = 9;

/// Returns the grammar of the options `WORDS[begin..end]`. The first argument that can be an option has the index
/// `from`.
const fn grammar(from: usize, begin: usize, end: usize) -> Grammar {
    Grammar {
        from,
        words: WORDS.split_at(end).0.split_at(begin).1,
    }
}

static RADIUS: Grammar = grammar(6, 0, AREA);
static RADIUS_RO: Grammar = grammar(6, ALL, AREA);
static MEMBER: Grammar = grammar(5, 0, AREA);
static MEMBER_RO: Grammar = grammar(5, ALL, AREA);
static SEARCH: Grammar = grammar(2, ALL, WORDS.len() - 1);
static SEARCH_STORE: Grammar = grammar(3, ALL, WORDS.len());

const NO_MEMBER: &str = "ERR could not decode requested zset member";

/// The kind of search. The command's name determines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// A circle around coordinates.
    Radius { stores: bool },
    /// A circle around a member.
    Member { stores: bool },
    /// An area that options describe.
    Search { stores: bool },
}

impl Named {
    /// Returns the index of the argument that is the searched key.
    fn source(self) -> usize {
        match self {
            Named::Search { stores: true } => 2,
            _ => 1,
        }
    }

    /// Returns the grammar of the command's options.
    fn grammar(self) -> &'static Grammar {
        match self {
            Named::Radius { stores: true } => &RADIUS,
            Named::Radius { stores: false } => &RADIUS_RO,
            Named::Member { stores: true } => &MEMBER,
            Named::Member { stores: false } => &MEMBER_RO,
            Named::Search { stores: false } => &SEARCH,
            Named::Search { stores: true } => &SEARCH_STORE,
        }
    }

    /// Returns the name of the event that reports a stored result.
    fn event(self) -> &'static str {
        match self {
            Named::Search { .. } => "geosearchstore",
            Named::Radius { .. } | Named::Member { .. } => "georadiusstore",
        }
    }
}

/// The target of a result that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target<'a> {
    key: &'a [u8],
    /// True if the stored scores are distances.
    distances: bool,
}

/// The parsed request.
#[derive(Default)]
struct Query<'a> {
    centre: Option<Place>,
    /// The form of the area, and the length of the form's unit in metres.
    form: Option<(Form, f64)>,
    /// True if an option names a member as the centre, false if an option gives coordinates. `None`: no option does.
    from: Option<bool>,
    distances: bool,
    scores: bool,
    places: bool,
    first: Option<First>,
    count: Option<u64>,
    any: bool,
    target: Option<Target<'a>>,
}

/// Reads a size. The caller refuses a negative size.
fn size(word: &[u8], malformed: &'static str) -> Result<f64, Stop> {
    Ok(score::parse(word).ok_or(malformed)?)
}

/// Reads a radius and its unit.
fn circle(args: &Args<'_>, at: usize) -> Result<(Form, f64), Stop> {
    let radius = size(args.at(at), "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err("ERR radius cannot be negative".into());
    }
    Ok((Form::Circle { radius }, unit(args.at(at + 1))?))
}

/// Reads a width, a height, and their unit.
fn rectangle(args: &Args<'_>, at: usize) -> Result<(Form, f64), Stop> {
    let width = size(args.at(at), "ERR need numeric width")?;
    let height = size(args.at(at + 1), "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err("ERR height or width cannot be negative".into());
    }
    Ok((Form::Box { width, height }, unit(args.at(at + 2))?))
}

impl<'a> Query<'a> {
    /// Reads a request. If a member gives the centre, looks that member up in `set`. Without `set`, the member
    /// is not checked.
    fn parse(args: &Args<'a>, named: Named, set: Option<&Source<'_>>) -> Result<Query<'a>, Stop> {
        let mut query = Query::default();
        match named {
            Named::Radius { .. } => {
                query.centre = Some(place(args, 2)?);
                query.form = Some(circle(args, 4)?);
            }
            Named::Member { .. } if set.is_some() => {
                query.centre = Some(place_of(set, args.at(2)).ok_or(NO_MEMBER)?);
                query.form = Some(circle(args, 3)?);
            }
            Named::Member { .. } | Named::Search { .. } => {}
        }
        let grammar = named.grammar();
        let target = match named {
            Named::Search { stores } => stores.then_some(1),
            Named::Radius { .. } | Named::Member { .. } => grammar.last(args, Role::Target),
        };
        query.target = target.map(|at| Target {
            key: args.at(at),
            distances: false,
        });
        for found in grammar.walk(args) {
            let word = found.word.ok_or(SYNTAX)?.name;
            if !query.output(args, found.at, word)? {
                query.area(args, found.at, word, set)?;
            }
        }
        query.check(args, named)?;
        Ok(query)
    }

    /// Reads an option that concerns the result. Returns false if the word is no such option.
    fn output(&mut self, args: &Args<'a>, at: usize, word: &str) -> Result<bool, Stop> {
        match word {
            "WITHDIST" => self.distances = true,
            "WITHHASH" => self.scores = true,
            "WITHCOORD" => self.places = true,
            "ANY" => self.any = true,
            "ASC" => self.first = Some(First::Nearest),
            "DESC" => self.first = Some(First::Farthest),
            "COUNT" => {
                let count = u64::try_from(integer(args.at(at + 1))?).unwrap_or(0);
                if count == 0 {
                    return Err("ERR COUNT must be > 0".into());
                }
                self.count = Some(count);
            }
            // The grammar has already taken the key from the last such option.
            "STORE" | "STOREDIST" => {
                debug_assert!(self.target.is_some());
                if let Some(target) = &mut self.target {
                    target.distances = word == "STOREDIST";
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads an option that describes the area. If a member gives the centre, looks that member up in `set`.
    fn area(&mut self, args: &Args<'a>, at: usize, word: &str, set: Option<&Source<'_>>) -> Done {
        let other_form = |is_box: bool| match &self.form {
            Some((Form::Box { .. }, _)) => !is_box,
            Some((Form::Circle { .. }, _)) => is_box,
            None => false,
        };
        match word {
            "FROMMEMBER" if self.from != Some(false) => {
                if set.is_some() {
                    self.centre = Some(place_of(set, args.at(at + 1)).ok_or(NO_MEMBER)?);
                }
                self.from = Some(true);
            }
            "FROMLONLAT" if self.from != Some(true) => {
                self.centre = Some(place(args, at + 1)?);
                self.from = Some(false);
            }
            "BYRADIUS" if !other_form(false) => self.form = Some(circle(args, at + 1)?),
            "BYBOX" if !other_form(true) => self.form = Some(rectangle(args, at + 1)?),
            _ => return Err(SYNTAX.into()),
        }
        Ok(())
    }

    /// Refuses conflicting options.
    fn check(&self, args: &Args<'_>, named: Named) -> Done {
        let searches = matches!(named, Named::Search { .. });
        if self.target.is_some() && (self.distances || self.scores || self.places) {
            let what = if searches {
                "GEOSEARCHSTORE"
            } else {
                "STORE option in GEORADIUS"
            };
            let text = "is not compatible with WITHDIST, WITHHASH and WITHCOORD options";
            return Err(format!("ERR {what} {text}").into());
        }
        let name = String::from_utf8_lossy(args.at(0));
        if searches && self.from.is_none() {
            let text = "exactly one of FROMMEMBER or FROMLONLAT can be specified for";
            return Err(format!("ERR {text} {name}").into());
        }
        if searches && self.form.is_none() {
            let text = "exactly one of BYRADIUS and BYBOX can be specified for";
            return Err(format!("ERR {text} {name}").into());
        }
        if self.any && self.count.is_none() {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        Ok(())
    }

    /// Returns the area. `None`: the centre or the form is not known.
    fn search(&self) -> Option<Search> {
        let ((form, unit), centre) = (self.form?, self.centre?);
        Some(Search { centre, form, unit })
    }

    /// Returns the members in the area, in the wanted order.
    fn find<'s>(&self, set: &'s Source<'_>) -> Vec<Found<'s>> {
        let Some(search) = self.search() else {
            return Vec::new();
        };
        let mut found = geo::find(set, &search, self.count.filter(|_| self.any));
        let wanted = self.count.map_or(found.len(), to_usize).min(found.len());
        // COUNT without ANY means the nearest members.
        let nearest = (self.count.is_some() && !self.any).then_some(First::Nearest);
        if let Some(first) = self.first.or(nearest) {
            order::sort(&mut found, first, wanted);
        }
        found.truncate(wanted);
        found
    }

    /// Returns the distance of a found member in the unit of the request.
    fn distance(&self, found: &Found<'_>) -> f64 {
        found.distance / self.form.map_or(1.0, |(_, unit)| unit)
    }

    fn reply(&self, out: &mut Out<'_>, found: &Found<'_>) {
        let more = [self.distances, self.scores, self.places];
        let more = more.into_iter().filter(|wanted| *wanted).count();
        if more > 0 {
            out.array(more + 1);
        }
        out.bulk(&found.member);
        if self.distances {
            reply_distance(out, self.distance(found));
        }
        if self.scores {
            #[allow(clippy::cast_possible_truncation)] // a score becomes a cell by the same cast
            out.integer(found.score as i64);
        }
        if self.places {
            reply_place(out, found.place);
        }
    }
}

fn search(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, named: Named) -> Done {
    let (start, max) = (out.buf.len(), data.reply_bytes_max);
    let set = data.collection(args.at(named.source()), Shape::Zset)?;
    let query = Query::parse(args, named, set.as_ref())?;
    if let (Some(set), Some(search)) = (&set, query.search()) {
        let looked = geo::looked_at(set, &search);
        let most = query.count.filter(|_| query.any).unwrap_or(u64::MAX);
        data.heavy(looked.min(most))?;
    }
    let found = set.as_ref().map_or_else(Vec::new, |set| query.find(set));
    let Some(target) = query.target else {
        out.array(found.len());
        for member in &found {
            query.reply(out, member);
            if out.buf.len() - start > max {
                break;
            }
        }
        return Ok(data.check_reply(out.buf.len() - start)?);
    };
    let score = |found: &Found<'_>| match target.distances {
        true => query.distance(found),
        false => found.score,
    };
    let members = found
        .iter()
        .map(|found| (found.member.to_vec(), score(found)));
    let members: Vec<_> = members.collect();
    drop(found);
    store(data, target.key, named.event(), &members)?;
    out.count(to_u64(members.len()));
    Ok(())
}

/// `GEORADIUS key longitude latitude radius M|KM|FT|MI [WITHCOORD] [WITHDIST] [WITHHASH]
/// [COUNT count [ANY]] [ASC|DESC] [STORE key|STOREDIST key]`
fn georadius(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    search(data, args, out, Named::Radius { stores: true })
}

/// `GEORADIUS_RO`: GEORADIUS without STORE and STOREDIST.
fn georadius_ro(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    search(data, args, out, Named::Radius { stores: false })
}

/// `GEORADIUSBYMEMBER key member radius M|KM|FT|MI`, and the options of GEORADIUS
fn georadiusbymember(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    search(data, args, out, Named::Member { stores: true })
}

/// `GEORADIUSBYMEMBER_RO`: GEORADIUSBYMEMBER without STORE and STOREDIST.
fn georadiusbymember_ro(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    search(data, args, out, Named::Member { stores: false })
}

/// `GEOSEARCH key FROMMEMBER member|FROMLONLAT longitude latitude BYRADIUS radius unit|BYBOX width
/// height unit [ASC|DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]`
fn geosearch(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    search(data, args, out, Named::Search { stores: false })
}

/// `GEOSEARCHSTORE destination source [STOREDIST]`, and the options of GEOSEARCH for the area, the order and the count
fn geosearchstore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    search(data, args, out, Named::Search { stores: true })
}
