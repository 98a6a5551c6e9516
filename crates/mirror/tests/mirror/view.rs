//! Tests of the views of docs/formats/view.md, and of bytes that are not views.

use perdura_base::{Epoch, Incarnation, StreamId, Uuid};
use perdura_mirror::{Generation, Machine, Member, Mode, NodeInc, View};

pub fn first() -> View {
    let mut uuid = [0; 16];
    (0..16).for_each(|at| uuid[usize::from(at)] = at);
    View {
        uuid: Uuid(uuid),
        v: 2,
        generation: Generation(1),
        writer: 9,
        rings: Generation(1),
        life: Incarnation(3),
        hard: Epoch(42),
        wall_us: 1000,
        groups: vec![Mode::Disk],
        homes: vec![0],
    }
}

fn member(inc: u64) -> Member {
    Member {
        inc: NodeInc(inc),
        machine: Machine([7; 16]),
        address: format!("node-{inc}:7379"),
    }
}

fn full() -> View {
    View {
        groups: vec![
            Mode::Mirror(Box::new([member(1), member(2)])),
            Mode::Solo(member(3)),
            Mode::Disk,
        ],
        homes: vec![0, 2, 0, 1],
        ..first()
    }
}

#[test]
fn the_example_on_the_format_page_is_what_the_codec_writes() {
    let page = include_str!("../../../../docs/formats/view.md");
    let block = page.split("```text hex").nth(1).unwrap();
    let hex = block.split("```").next().unwrap();
    let digits: String = hex.chars().filter(char::is_ascii_hexdigit).collect();
    let bytes = first().encode();
    let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, written);
}

#[test]
fn a_view_is_read_as_it_was_written_and_every_flip_and_cut_is_noticed() {
    for view in [first(), full()] {
        let bytes = view.encode();
        assert_eq!(View::decode(&bytes), Ok(view));
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(View::decode(&flipped).is_err(), "bit {at}");
        }
        (0..bytes.len()).for_each(|len| assert!(View::decode(&bytes[..len]).is_err()));
    }
    assert!(full().is_mirrored() && !first().is_mirrored());
    assert!(full().mode_of(StreamId(2)).is_mirror() && !full().mode_of(StreamId(1)).is_mirror());
}

#[test]
fn a_view_that_contradicts_itself_is_refused() {
    let with = |change: fn(&mut View)| {
        let mut view = full();
        change(&mut view);
        std::panic::catch_unwind(|| view.encode()).is_err()
    };
    assert!(!with(|_| {}));
    assert!(with(|view| view.v = 0));
    assert!(with(|view| view.rings = Generation(2)));
    assert!(with(|view| view.homes[1] = 3));
    assert!(with(|view| view.homes.clear()));
    assert!(with(
        |view| view.groups = vec![Mode::Mirror(Box::new([member(1), member(1)]))]
    ));
    assert!(with(|view| {
        let mut nowhere = member(1);
        nowhere.address.clear();
        view.groups[1] = Mode::Solo(nowhere);
    }));
}
