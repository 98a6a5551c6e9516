//! `perdura bench voter`

use anyhow::Result;
use clap::Parser;
use perdura_workloads::voter::bench::VoterBench;
use perdura_workloads::voter::inputs::Election;

use super::typed::TypedArgs;
use crate::exit::Usage;

/// Run an election by phone. Its only transaction is short and inserts a vote.
///
/// The phone number determines the partition of a vote.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura bench voter --scheme none --seconds 5\n  \
    perdura bench voter --scheme value --data d --rate 50000 --json")]
pub struct VoterArgs {
    /// Number of contestants, 1 to 12.
    #[arg(long, value_name = "N", default_value_t = 6)]
    contestants: u8,
    /// Number of votes allowed from one phone number.
    #[arg(long, value_name = "N", default_value_t = 2)]
    votes_per_phone: u8,
    #[command(flatten)]
    typed: TypedArgs,
}

pub fn run(args: &VoterArgs) -> Result<()> {
    let election = Election {
        contestants: args.contestants,
        votes_per_phone: args.votes_per_phone,
    };
    election.check().map_err(Usage)?;
    let bench = VoterBench {
        site: args.typed.site(1)?,
        election,
        seed: args.typed.drive.seed,
        drive: args.typed.drive.drive()?,
        digest: args.typed.drive.digest,
    };
    let mut ended = bench.run()?;
    bench.run_beside(&ended.db, args.typed.beside(), &mut ended.report)?;
    args.typed.drive.end(&ended.report)?;
    bench.site.close(ended.db)
}
