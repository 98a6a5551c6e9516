use super::*;

#[test]
fn names_are_unique_and_microseconds_become_seconds() {
    let mut names: Vec<&str> = ROWS.iter().map(|row| row.1).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ROWS.len());
    assert_eq!(convert("1500000", Micro).as_deref(), Some("1.500000"));
    assert_eq!(convert("", As), None);
    assert_eq!(convert("err", IsOk).as_deref(), Some("0"));
    assert_eq!(part_of("keys=7,expires=2", "expires"), Some("2"));
    assert!(is_database("db15") && !is_database("dbx") && !is_database("db"));
}
