use perdura_base::PartitionId;

use super::*;

crate::table! {
    struct Account in "accounts" { key(id: u64), balance: i64 }
}
crate::table! {
    struct Item in "items", replicated { key(id: u32), price: u32 }
}

crate::procedure! {
    /// Moves money.
    pub fn transfer(cx, from: u64, to: u64, amount: i64) -> i64,
    on [Account(from), Account(to)] {
        let mut payer = cx.get::<Account>(from)?.ok_or("no such account")?;
        if payer.balance < amount {
            return Err(format!("account {from} has less than {amount}").into());
        }
        payer.balance -= amount;
        cx.update(&payer)?;
        cx.modify::<Account>(to, |payee| payee.balance += amount)?;
        Ok(payer.balance)
    }
}

crate::procedure! {
    fn collect(cx, all: Vec<(u64, u8)>, last: u64) -> i64,
    on [Account(each all.iter().map(|(id, _)| id)), Account(*last + 1)] {
        let mut sum = 0;
        for (id, _) in all {
            sum += cx.get::<Account>(id)?.map_or(0, |account| account.balance);
        }
        let last = cx.get::<Account>(last + 1)?;
        Ok(sum + last.map_or(0, |account| account.balance))
    }
}

crate::procedure! {
    fn reprice(cx, id: u32) -> (), on [Item(id)] {
        cx.modify::<Item>(id, |item| item.price += 1)?;
        Ok(())
    }
}

crate::procedure! {
    fn audit(cx) -> u64, on all {
        Ok(cx.now())
    }
}

fn homes<P: Procedure>(args: &P::Args) -> Vec<u16> {
    let geometry = Geometry {
        partitions: 8,
        chunk_pages: 1,
        hash_seed: 1,
    };
    let mut homes = Homes::new(&geometry);
    P::homes(args, &mut homes);
    homes
        .partitions()
        .iter()
        .map(|PartitionId(id)| id)
        .collect()
}

#[test]
fn homes_follow_from_the_arguments() {
    assert_eq!(homes::<transfer>(&(9, 3, 50)), [1, 3]);
    assert_eq!(
        homes::<collect>(&(vec![(2, 0), (10, 1), (5, 2)], 6)),
        [2, 5, 7]
    );
    assert_eq!(homes::<audit>(&()).len(), 8);
    assert_eq!(
        homes::<reprice>(&(7,)).len(),
        8,
        "a replicated row is in all"
    );
}

#[test]
fn a_procedure_has_the_name_and_types_of_its_text() {
    assert_eq!(transfer::NAME, "transfer");
    assert_eq!(<transfer as Procedure>::Args::types(), "(u64,u64,i64)");
    assert_eq!(<collect as Procedure>::Args::types(), "(Vec<(u64,u8)>,u64)");
    assert_ne!(transfer::HASH, collect::HASH);
}

#[test]
fn the_hash_is_that_of_the_text_without_spaces() {
    assert_eq!(text_hash("a + b\n\t"), text_hash("a+b"));
    assert_ne!(text_hash("a + b"), text_hash("a - b"));
    assert_eq!(text_hash(""), 0xcbf2_9ce4_8422_2325, "the basis of FNV-1a");
    assert_eq!(
        text_hash("foobar"),
        0x8594_4171_f739_67e8,
        "its published example"
    );
    mod again {
        use super::Account;
        crate::procedure! {
            /// Another comment, other spaces.
            pub fn transfer(cx,from:u64,to:u64,amount:i64)->i64,on[Account(from),Account(to)]{
                let mut payer=cx.get::<Account>(from)?.ok_or("no such account")?;
                if payer.balance<amount{
                    return Err(format!("account {from} has less than {amount}").into());}
                payer.balance-=amount;cx.update(&payer)?;
                cx.modify::<Account>(to,|payee|payee.balance+=amount)?;
                Ok(payer.balance)
            }
        }
    }
    assert_eq!(transfer::HASH, again::transfer::HASH);
}

#[test]
fn whatever_aborts_says_why() {
    let refused: Abort = "not enough".into();
    assert_eq!(refused.to_string(), "not enough");
    let failed: Abort = Error::Usage("no such table".into()).into();
    assert!(matches!(failed, Abort::Database(_)));
    assert_eq!(Abort::from(String::from("x")).to_string(), "x");
}
