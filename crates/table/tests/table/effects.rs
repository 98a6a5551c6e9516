//! The effects, which are the changed rows or columns that the verbs record for the log.

use perdura_base::Error;
use perdura_txn::ValueForm;

use crate::world::{Account, Item, World, account};

/// Makes a few changes in a transaction. Returns a hash of their effects.
fn hash(form: ValueForm, change: impl Fn(&mut Account)) -> u64 {
    let world = World::new(form);
    world
        .run(|cx| {
            cx.insert(&account(1, 1, "Ann", 1))?;
            cx.insert(&Item { id: 1, price: 2 })?;
            cx.modify::<Account>((1, 1), &change)?;
            Ok::<_, Error>(cx.effects_hash())
        })
        .unwrap()
}

#[test]
fn effects_depend_on_the_changes_and_on_the_form_alone() {
    let mut hashes = Vec::new();
    for form in ValueForm::ALL {
        let more = |row: &mut Account| row.balance += 1;
        let first = hash(form, more);
        assert_eq!(first, hash(form, more));
        assert_ne!(first, hash(form, |row| row.balance += 2));
        hashes.push(first);
    }
    hashes.dedup();
    assert_eq!(hashes.len(), 3, "each form says something else");
}

#[test]
fn a_savepoint_takes_back_the_effects_too() {
    let world = World::new(ValueForm::Columns);
    world
        .run(|cx| {
            cx.insert(&account(1, 1, "Ann", 1))?;
            let before = cx.effects_hash();
            let savepoint = cx.savepoint();
            cx.modify::<Account>((1, 1), |row| row.balance = 9)?;
            cx.remove::<Account>((1, 1))?;
            assert_ne!(cx.effects_hash(), before);
            cx.rollback_to(&savepoint);
            assert_eq!(cx.effects_hash(), before);
            Ok::<_, Error>(())
        })
        .unwrap();
}
