//! scratch
use perdura_base::flaw::{Flaw, arm};
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let only: Option<String> = std::env::args().nth(1);
    for f in Flaw::ALL {
        if only.as_ref().is_some_and(|o| *o != format!("{f:?}")) {
            continue;
        }
        arm(Some(f));
        let mut seed = 1;
        let start = std::time::Instant::now();
        let mut found = None;
        while found.is_none() && start.elapsed().as_secs() < 10 {
            let o = perdura_sim::CrashOptions {
                seed,
                runs: 20,
                violations_max: 1,
                ..Default::default()
            };
            let r = perdura_sim::run(&o, |_| {});
            found = r
                .violations
                .into_iter()
                .find(|v| !v.what.contains("spare-"));
            seed += 20;
            if seed == 2001 {
                let r = perdura_sim::exhaustive::torn_anchor(100);
                if !r.violations.is_empty() {
                    println!("{:?} {:?}", start.elapsed(), r.violations[0]);
                    break;
                }
            }
        }
        println!(
            "{f:?} {:.2}s {:?}",
            start.elapsed().as_secs_f64(),
            found.map(|v| (v.seed, v.what.chars().take(150).collect::<String>()))
        );
    }
}
