//! Bugs in restores that simulated histories found, each as a separate test.

use perdura::CoreOptions;

use crate::core_steps::small;
use crate::restore::{History, KEYS, set, values};

/// The simulator found a row that could not be found by its key. The sidecar of a consistent image lists the keys that
/// exist at the end of the sweep. There was a bug: restores to earlier moments also used the sidecar. Such a moment is
/// between the image's cut (the instant that its pages show) and the end of the sweep.
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
