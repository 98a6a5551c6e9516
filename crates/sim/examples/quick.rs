//! scratch
fn main() {
    let a: Vec<u64> = std::env::args()
        .skip(1)
        .map(|a| a.parse().unwrap())
        .collect();
    let o = perdura_sim::CrashOptions {
        seed: a[0],
        runs: a[1],
        violations_max: 30,
        ..Default::default()
    };
    let r = perdura_sim::run(&o, |_| {});
    println!("{r:#?}");
}
