//! What simulated histories found in restores, each as a history of its own.

use perdura::CoreOptions;
use perdura_base::{Epoch, Pos};

use crate::core_steps::small;
use crate::restore::{History, KEYS, STREAMS, set, values};

/// The simulator found a row that was there and that no key led to: the sidecar of a consistent image lists the keys at the
/// end of the sweep, and it counted at a moment between the image's cut and that.
#[test]
fn rows_that_were_removed_while_an_image_was_swept_are_found_by_their_keys_at_the_moments_before() {
    let options = CoreOptions {
        consistent_checkpoints: true,
        ..small()
    };
    let mut history = History::with(5, options);
    let change = |history: &mut History, number: usize, value: Option<&[u8]>| {
        let epoch = set(history.core(), number, value);
        history
            .changes
            .push((epoch, number, value.map(<[u8]>::to_vec)));
        history.core().flush_all().expect("a flush");
        epoch
    };
    for number in 0..KEYS {
        change(&mut history, number, Some(b"value"));
    }
    history.core().checkpoint_begin().expect("it begins");
    let mut moments = Vec::new();
    for number in 0..KEYS {
        moments.push(change(&mut history, number, None));
        history.core().checkpoint_step().expect("a step");
    }
    history.core().checkpoint_now().expect("it ends");
    history.archive();
    history.back_up();
    let backup = *history.backups.last().expect("a backup");
    for moment in moments {
        let (core, _) = history.restore(backup, Some(moment)).expect("a moment");
        assert_eq!(values(&core), history.state(moment), "{moment}");
    }
}

/// The simulator found that the archive of a restored database promised the moment before the one that was restored, which
/// its parent's archive has, and restored the later one in its place.
#[test]
fn a_restored_database_has_no_moments_before_its_own() {
    let mut history = History::new(3);
    let mut rng = fastrand::Rng::with_seed(3);
    history.run(&mut rng, 60);
    history.core().checkpoint_now().expect("an image");
    history.back_up();
    let backup = *history.backups.last().expect("a backup");
    history.core().flush_all().expect("a flush");
    history.archive();
    for target in [Epoch(1), history.at.epoch] {
        let (core, _) = history.restore(backup, Some(target)).expect("a moment");
        let start = core.archive_start().expect("its archive begins");
        assert_eq!(start.epoch, target);
        assert_eq!(start.ends, [Pos(0); STREAMS]);
    }
}
