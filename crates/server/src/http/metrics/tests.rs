use super::*;

#[test]
fn names_are_unique_and_microseconds_become_seconds() {
    let rows: Vec<Row> = lines().filter_map(Row::parse).collect();
    assert_eq!(rows.len(), lines().count(), "each line is a row");
    assert!(rows.iter().all(|row| row.meaning.ends_with('.')));
    let mut names: Vec<&str> = rows.iter().map(|row| row.metric).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len());
    assert_eq!(convert("1500000", Micro).as_deref(), Some("1.500000"));
    assert_eq!(convert("", As), None);
    assert_eq!(convert("err", IsOk).as_deref(), Some("0"));
    assert_eq!(part_of("keys=7,expires=2", "expires"), Some("2"));
    assert!(is_database("db15") && !is_database("dbx") && !is_database("db"));
}
