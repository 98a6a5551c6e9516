//! The choice of the next view: the mode of each group, and the group of each stream.
//!
//! # Invariants
//! * A group enters the mode `Mirror` only when each node holds all acknowledged bytes. The nodes must be on two
//!   machines, unless the options allow one machine.
//! * A group leaves the mode `Mirror` only when all acknowledged bytes are synced.
//! * A stream moves to a new group only when the group's nodes hold all acknowledged bytes of the stream.

use std::borrow::Cow;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Pos, StreamId};

use crate::link::Link;
use crate::options::MirrorOptions;
use crate::state::State;
use crate::view::{GROUPS_MAX, Member, Mode, View};
use crate::writer::Log;

/// The inputs of the choice.
pub(crate) struct Choice<'a> {
    pub state: &'a State,
    pub options: &'a MirrorOptions,
    pub log: &'a dyn Log,
    /// True if all shipped bytes are synced.
    pub is_synced: bool,
    pub now_ns: u64,
}

impl Choice<'_> {
    /// Returns the view that should be in force. `None`: the present view should stay.
    pub fn view(&self) -> Option<View> {
        let state = self.state;
        // Borrowed, because most calls change nothing.
        let mut next = Cow::Borrowed(&state.view);
        for number in 0..state.groups.len() {
            if let Some(mode) = self.next_mode(number) {
                next.to_mut().groups[number] = mode;
            }
        }
        for number in 0..state.view.homes.len() {
            let stream = StreamId(u8::try_from(number).expect("at most 16 streams"));
            let home = next_home(state, &next, stream);
            if home != next.homes[number] {
                next.to_mut().homes[number] = home;
            }
        }
        let Cow::Owned(mut next) = next else {
            return None;
        };
        assert!(next != state.view, "a view that changes is another one");
        next.v += 1;
        next.hard = self.log.durable();
        assert!(
            next.hard >= state.view.hard,
            "what is durable does not go back"
        );
        self.assert_nothing_is_given_up(&next);
        Some(next)
    }

    /// Checks that the next view loses no acknowledged byte. Each acknowledged byte must already be on the disk or on
    /// the nodes, as the next view requires.
    fn assert_nothing_is_given_up(&self, next: &View) {
        let state = self.state;
        for (number, raised) in (0u8..).zip(&state.raised) {
            let stream = StreamId(number);
            let is_same = next.mode_of(stream) == state.view.mode_of(stream);
            let holds = match next.mode_of(stream) {
                _ if is_same => true,
                Mode::Disk | Mode::Solo(_) => self.log.synced(stream) >= *raised,
                Mode::Mirror(members) => {
                    let links = &state.groups[usize::from(next.homes[usize::from(number)])];
                    let held = |of: &Member| held_by(links, of, stream) >= *raised;
                    members.iter().all(held)
                }
            };
            assert!(
                holds,
                "stream {stream} was acknowledged up to {raised}, and view {} does not hold that",
                next.v
            );
        }
    }

    /// Returns the mode that a group should enter. `None`: the group should stay in its mode.
    fn next_mode(&self, number: usize) -> Option<Mode> {
        let state = self.state;
        let links = &state.groups[number];
        let mode = &state.view.groups[number];
        let is_fine = |link: &Link| {
            let silent = link.silent_since_ns();
            silent.is_none_or(|since| self.now_ns < since + self.options.suspect_ns)
        };
        let is_home =
            |stream: StreamId| usize::from(state.view.homes[usize::from(stream.0)]) == number;
        let streams = || (0u8..).map(StreamId).zip(&state.raised);
        let serves = |member: &Member| {
            let mut streams = streams().map(|(stream, _)| stream);
            link_of(links, member).is_some_and(|link| {
                is_fine(link) && !streams.any(|of| is_home(of) && link.has_spoiled(of))
            })
        };
        if state.is_stopping {
            let is_synced = self.is_synced || armed(Flaw::DiskBeforeTail);
            return (is_synced && *mode != Mode::Disk).then_some(Mode::Disk);
        }
        let has_caught_up = |link: &Link| {
            let mut streams = streams();
            let here = |stream: StreamId| homes(state, stream).any(|home| home == number);
            let behind =
                streams.any(|(stream, raised)| here(stream) && !link.holds(stream, *raised));
            link.is_ready() && is_fine(link) && (!behind || armed(Flaw::ReturnsBehind))
        };
        let both = || {
            let (one, other) = (links[0].identity()?, links[1].identity()?);
            let apart =
                one.inc != other.inc && (self.options.one_machine || one.machine != other.machine);
            if !apart || !links.iter().all(has_caught_up) {
                return None;
            }
            let members = [member_of(&links[0])?, member_of(&links[1])?];
            Some(Mode::Mirror(Box::new(members)))
        };
        match mode {
            Mode::Mirror(members) => {
                let next = match (serves(&members[0]), serves(&members[1])) {
                    (true, true) => return None,
                    (true, false) => Mode::Solo(members[0].clone()),
                    (false, true) => Mode::Solo(members[1].clone()),
                    (false, false) => Mode::Disk,
                };
                // Once this change is in force, a takeover relies only on the disk. So all acknowledged bytes must be
                // on the disk before the change.
                self.log.want_copy();
                let synced = streams()
                    .all(|(stream, raised)| !is_home(stream) || self.log.synced(stream) >= *raised);
                (synced || armed(Flaw::DiskBeforeTail)).then_some(next)
            }
            Mode::Solo(member) if serves(member) => both(),
            Mode::Solo(_) => Some(Mode::Disk),
            Mode::Disk => both(),
        }
    }
}

/// Returns the groups that receive a stream. These are the stream's group in the present view and in the pending view,
/// the group that the stream should return to, and a spare group.
pub(crate) fn homes(state: &State, stream: StreamId) -> impl Iterator<Item = usize> + use<> {
    let (at, count) = (usize::from(stream.0), state.groups.len());
    let pending = state.pending.as_ref();
    let pending = pending.map(|pending| usize::from(pending.homes[at]));
    let first = at % count;
    let all = [
        Some(usize::from(state.view.homes[at])),
        pending,
        Some(first),
        spare_home(state, stream),
    ];
    const { assert!(GROUPS_MAX <= 16, "a bit for each group") };
    let bits = all
        .into_iter()
        .flatten()
        .fold(0_u16, |bits, home| bits | 1 << home);
    (0..count).filter(move |group| bits & 1 << group != 0)
}

/// Returns a spare group that can take the stream while the stream's own group is not a mirror.
fn spare_home(state: &State, stream: StreamId) -> Option<usize> {
    let count = state.groups.len();
    let first = usize::from(stream.0) % count;
    if state.view.groups[first].is_mirror() {
        return None;
    }
    let others = (1..count).map(|step| (first + step) % count);
    others
        .filter(|group| *group != first)
        .find(|group| state.view.groups[*group].is_mirror())
}

/// Returns the group for a stream: the stream's own group if the group is a mirror, otherwise a mirror that holds the
/// stream.
fn next_home(state: &State, next: &View, stream: StreamId) -> u8 {
    let at = usize::from(stream.0);
    let raised = state.raised[at];
    let now = state.view.homes[at];
    let first = at % state.groups.len();
    let takes = |group: usize| {
        let mode = &next.groups[group];
        let links = &state.groups[group];
        // Only links to the members count, not links to a new node at the same address.
        let holds = |of: &Member| link_of(links, of).is_some_and(|link| link.holds(stream, raised));
        let same = *mode == state.view.groups[group];
        let all_hold = mode.members().iter().all(holds) || armed(Flaw::MovesUnheld);
        mode.is_mirror() && same && all_hold
    };
    let home = match usize::from(now) {
        home if home == first || takes(first) => first,
        home if next.groups[home].is_mirror() => home,
        // The stream's own group is a mirror again but lacks the end of the stream. The stream stays where it is
        // until that group holds everything.
        home if next.groups[first].is_mirror() => home,
        _ => first,
    };
    let home = match (next.groups[home].is_mirror(), spare_home(state, stream)) {
        // The stream moves to a spare group only from a group whose acknowledgements wait for the disk.
        (false, Some(spare))
            if takes(spare) && !state.view.groups[usize::from(now)].is_mirror() =>
        {
            spare
        }
        _ => home,
    };
    u8::try_from(home).expect("at most 16 groups")
}

fn link_of<'a>(links: &'a [Link; 2], member: &Member) -> Option<&'a Link> {
    links.iter().find(|link| match armed(Flaw::AmnesiaCounts) {
        true => link.address == member.address,
        false => link.identity().is_some_and(|of| of.inc == member.inc),
    })
}

pub(crate) fn held_by(links: &[Link; 2], member: &Member, stream: StreamId) -> Pos {
    link_of(links, member).map_or(Pos(0), |link| link.held(stream))
}

fn member_of(link: &Link) -> Option<Member> {
    let identity = link.identity()?;
    Some(Member {
        inc: identity.inc,
        machine: identity.machine,
        address: link.address.clone(),
    })
}
