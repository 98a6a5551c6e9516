//! The behaviour of nodes, network and arbiter: they deliver frames, fail, and work again.

use fastrand::Rng;
use perdura::mirror::sim::{Mood, SimNet, SimRegister, Way};

use crate::cluster::{Groups, deliver};
use crate::swarm::pick;

/// The nodes, the network and the arbiter, with the random numbers that decide when they fail.
pub(super) struct Trouble {
    pub rng: Rng,
    pub net: SimNet,
    pub register: SimRegister,
    pub groups: Groups,
    /// The number of network ids that processes have got so far.
    pub clients: u32,
}

impl Trouble {
    /// Delivers up to `frames` frames. Chooses the connection of each frame at random.
    pub fn deliver(&mut self, frames: usize) {
        deliver(&self.net, &mut self.rng, frames);
    }

    fn draw_node(&mut self) -> String {
        let group = self.rng.usize(0..self.groups.len());
        self.groups[group][self.rng.usize(0..2)].clone()
    }

    fn draw_client(&mut self) -> u32 {
        match self.rng.u8(0..4) {
            0 => self.rng.u32(1..=self.clients.max(1)),
            _ => self.clients,
        }
    }

    /// Makes a node, the network or the arbiter fail, or work again. Returns the name of this event.
    pub fn strike(&mut self) -> &'static str {
        let node = self.draw_node();
        let client = self.draw_client();
        match self.rng.u8(0..20) {
            0 | 1 => {
                self.net.kill(&node);
                "node_killed"
            }
            2 => {
                self.net.kill(&node);
                self.net.start(&node);
                "node_rebooted"
            }
            3 => {
                let pair = self.groups[self.rng.usize(0..self.groups.len())].clone();
                pair.iter().for_each(|node| self.net.kill(node));
                "group_killed"
            }
            4..=7 => {
                self.start_all();
                "nodes_started"
            }
            8 => {
                self.net.pause(&node, true);
                "node_paused"
            }
            9 | 10 => {
                let way = pick(&mut self.rng, &[Way::Up, Way::Down]);
                self.net.cut(client, &node, way);
                "cut"
            }
            11 | 12 => {
                self.net.break_connections(client, &node);
                "connection_broken"
            }
            13 => {
                self.net.half_open(client, &node);
                "half_open"
            }
            14 => {
                self.sway();
                "arbiter_sways"
            }
            _ => {
                self.net.heal();
                "healed"
            }
        }
    }

    /// Chooses the behaviour of the arbiter at random: it answers, fails, or carries out requests and then fails.
    pub fn sway(&mut self) {
        let moods = [
            Mood::Answers,
            Mood::Answers,
            Mood::Fails,
            Mood::DoesAndFails,
        ];
        let mood = pick(&mut self.rng, &moods);
        self.register.set_mood(mood);
    }

    pub fn start_all(&mut self) {
        self.groups
            .iter()
            .flatten()
            .for_each(|node| self.net.start(node));
    }

    /// Repairs network and arbiter, and starts all nodes.
    pub fn heal(&mut self) {
        self.net.heal();
        self.register.set_mood(Mood::Answers);
        self.start_all();
    }
}
