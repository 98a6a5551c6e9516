//! scratch
use perdura_sim::{damage, exhaustive::*};
fn main() {
    let t = std::time::Instant::now();
    let r = crash_at_every_io(&histories(3), 1);
    println!(
        "{} {} {} {:?} {:?}",
        r.histories,
        r.cases,
        r.restarts,
        &r.violations[..r.violations.len().min(5)],
        t.elapsed()
    );
    let r = crash_at_every_io(&histories(2), 2);
    println!(
        "{} {} {} {:?} {:?}",
        r.histories,
        r.cases,
        r.restarts,
        &r.violations[..r.violations.len().min(5)],
        t.elapsed()
    );
    use Letter::*;
    for (b, h) in [
        (
            &[][..],
            &[
                Write(0),
                Checkpoint,
                Write(1),
                Checkpoint,
                Write(0),
                Restart,
                Write(1),
                Checkpoint,
                Restart,
            ][..],
        ),
        (
            &[Write(0), Checkpoint, Write(1)][..],
            &[Write(0), Checkpoint, Checkpoint, Write(1)][..],
        ),
    ] {
        let r = nth_failure(b, h, 2);
        println!(
            "{} {} {} {:?} {:?}",
            r.histories,
            r.cases,
            r.restarts,
            r.violations,
            t.elapsed()
        );
    }
    let r = torn_anchor(300);
    println!(
        "torn {} {} {:?} {:?}",
        r.cases,
        r.restarts,
        r.violations,
        t.elapsed()
    );
    let r = damage::flip_bytes(1, 211).unwrap();
    println!(
        "{} {} {} {:?} {:?}",
        r.cases,
        r.started,
        r.refused,
        &r.violations[..r.violations.len().min(5)],
        t.elapsed()
    );
    let r = damage::cut_log(1, 211).unwrap();
    println!(
        "{} {} {} {:?} {:?}",
        r.cases,
        r.started,
        r.refused,
        &r.violations[..r.violations.len().min(5)],
        t.elapsed()
    );
}
