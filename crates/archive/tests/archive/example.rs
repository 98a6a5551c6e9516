//! The worked examples of the format page: each is written, compared byte by byte, and read.

use perdura_archive::run::header::HEADER_BYTES;
use perdura_archive::{Codec, Moment, Moments, RunHeader, Scope};
use perdura_base::Epoch;
use perdura_device::{Access, read_exact_at};

use crate::common::{Owned, disk, header, id, records, write};

const PAGE: &str = include_str!("../../../../docs/formats/run.md");

/// Returns the bytes of each hex block in a format page.
pub fn examples(page: &str) -> Vec<Vec<u8>> {
    let blocks = page.split("```text hex").skip(1);
    let hex = blocks.map(|rest| rest.split("```").next().unwrap_or_default());
    let bytes = |hex: &str| {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits
            .chunks(2)
            .map(|two| std::str::from_utf8(two).expect("digits"));
        pairs
            .map(|two| u8::from_str_radix(two, 16).expect("hex"))
            .collect()
    };
    hex.map(bytes).collect()
}

fn example() -> Vec<Owned> {
    vec![
        Owned::one((1, 3), 1001, 5, 9, 64, &[0xaa]),
        Owned::one((1, 3), 1003, 6, 10, 64, &[0x55]),
        Owned::one((2, 0), 1000, 6, 1, 16, &[1, 2]),
    ]
}

fn at_1003() -> Moments {
    Moments::sampled(&[Moment {
        epoch: Epoch(1003),
        wall_us: 1_735_689_599_000_000,
    }])
}

/// Returns the bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_run_of_the_format_page_is_written_and_read() {
    let disk = disk();
    let id = id(1000, 1004, 0, 7);
    let run = write(&disk, header(id), Codec::None, &example(), &at_1003()).expect("memory");
    let file = disk
        .open(&id.path(crate::common::DIR), Access::Buffered)
        .expect("the run");
    let mut bytes = vec![0; 4096];
    read_exact_at(file.as_ref(), 0, &mut bytes).expect("a sector");
    let offsets: Vec<usize> = run
        .index()
        .iter()
        .map(|b| usize::try_from(b.offset).expect("small"))
        .collect();
    assert_eq!(offsets, [128, 194]);
    let blocks_end = usize::try_from(run.index()[1].end()).expect("small");
    let footer = bytes.len() - 128;
    let parts_end = footer
        - bytes[..footer]
            .iter()
            .rev()
            .take_while(|b| **b == 0)
            .count();
    let found = [
        &bytes[..HEADER_BYTES],
        &bytes[HEADER_BYTES..blocks_end],
        // The last part ends with the encoded position 8192. Its six high bytes are zeros, which `parts_end` left out.
        &bytes[blocks_end..parts_end + 6],
        &bytes[footer..],
    ];
    let wanted = examples(PAGE);
    assert_eq!(wanted.len(), 8, "the frames have a test of their own");
    for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        assert_eq!(hex(found), hex(wanted), "example {i}");
    }
    assert_eq!(records(&run, &Scope::All).expect("whole"), example());
    assert_eq!(run.counts(), (3, 3));
    assert_eq!(run.moments(), &at_1003());
    let pages: Vec<u32> = run.pages().pages(perdura_base::PartitionId(1)).collect();
    assert_eq!((pages, run.pages().count()), (vec![3], 2));
}

/// The merged run of the format page has one net record.
#[test]
fn the_net_record_of_the_format_page_is_written_and_read() {
    let disk = disk();
    let id = id(1000, 1004, 1, 0);
    let [first, last, _] = example().try_into().expect("three");
    let net = Owned {
        epochs: first.epochs.join(last.epochs),
        updates: first.updates.join(last.updates),
        ..Owned::one((1, 3), 1003, 6, 10, 64, &[0xff])
    };
    let header = RunHeader {
        only_listed_moments: true,
        life: perdura_base::LifeId(0),
        ..header(id)
    };
    let run = write(
        &disk,
        header,
        Codec::None,
        std::slice::from_ref(&net),
        &at_1003(),
    )
    .expect("memory");
    let path = id.path(crate::common::DIR);
    let file = disk.open(&path, Access::Buffered).expect("the run");
    let mut body = vec![0; usize::try_from(run.index()[0].bytes).expect("small") - 44];
    read_exact_at(file.as_ref(), 128 + 44, &mut body).expect("the body");
    assert_eq!(hex(&body), hex(&examples(PAGE)[4]));
    assert_eq!(records(&run, &Scope::All).expect("whole"), [net]);
    assert_eq!(run.counts(), (1, 2));
}
