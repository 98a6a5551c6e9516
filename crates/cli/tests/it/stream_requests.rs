//! Random requests to streams and their groups.

use crate::model::{Bytes, Words};
use crate::requests::Draw;
use crate::stream_model::GROUPS;

fn word(number: u8) -> Bytes {
    number.to_string().into_bytes()
}

impl Draw<'_> {
    /// Chooses an id at random. An entry with this id may or may not exist.
    fn id(&mut self) -> Bytes {
        let ms = self.rng.u8(1..4);
        format!("{ms}-{}", self.rng.u8(..40)).into_bytes()
    }

    fn ids(&mut self, most: usize) -> Words {
        (0..self.rng.usize(1..most)).map(|_| self.id()).collect()
    }

    /// Draws a group: mostly the first, sometimes the second.
    fn group(&mut self) -> Bytes {
        GROUPS[usize::from(self.rng.u8(..4) == 0)].to_vec()
    }

    fn consumer(&mut self) -> Bytes {
        vec![b'c', b'0' + self.rng.u8(..3)]
    }

    pub fn stream(&mut self) -> Words {
        let key = self.key('x');
        let plain = |name: &str| vec![name.as_bytes().to_vec(), key.clone()];
        match self.rng.u8(..20) {
            0..6 => self.entry(plain("XADD")),
            6 | 7 => [plain("XDEL"), self.ids(6)].concat(),
            8 => {
                let most = word(self.rng.u8(..60));
                [plain("XTRIM"), vec![b"MAXLEN".to_vec(), most]].concat()
            }
            9 | 10 => [plain("XGROUP"), self.managed()].concat(),
            11..15 => {
                let (group, consumer) = (self.group(), self.consumer());
                let mut words = plain("XREADGROUP");
                words.extend([group, consumer, word(self.rng.u8(1..12))]);
                if self.rng.u8(..8) == 0 {
                    words.push(b"NOACK".to_vec());
                }
                words
            }
            15 => {
                let (group, consumer) = (self.group(), self.consumer());
                let mut words = [plain("XCLAIM"), vec![group, consumer], self.ids(8)].concat();
                if self.rng.u8(..4) == 0 {
                    words.push(b"JUSTID".to_vec());
                }
                words
            }
            16 => {
                let (group, consumer) = (self.group(), self.consumer());
                let most = word(self.rng.u8(1..12));
                [plain("XAUTOCLAIM"), vec![group, consumer, most]].concat()
            }
            _ => [plain("XACK"), vec![self.group()], self.ids(12)].concat(),
        }
    }

    /// Draws an entry for XADD.
    fn entry(&mut self, mut words: Words) -> Words {
        if self.rng.u8(..4) == 0 {
            words.extend([b"MAXLEN".to_vec(), word(self.rng.u8(..60))]);
        }
        // A later `ms` is rare, so that most ids still ascend.
        let ms = 1 + self.rng.u8(..40) / 39 + self.rng.u8(..40) / 39;
        words.push(format!("{ms}-*").into_bytes());
        for _ in 0..self.rng.usize(1..4) {
            let field = format!("field {}", self.rng.u8(..3)).into_bytes();
            words.extend([field, self.value()]);
        }
        words
    }

    /// Draws a verb of XGROUP, with its arguments.
    fn managed(&mut self) -> Words {
        let group = self.group();
        let verb = |name: &str| vec![name.as_bytes().to_vec(), group.clone()];
        match self.rng.u8(..12) {
            0..6 => {
                let from = [&b"0"[..], b"MKSTREAM"].map(<[u8]>::to_vec);
                [verb("CREATE"), from.to_vec()].concat()
            }
            6 => verb("DESTROY"),
            7 | 8 => [verb("SETID"), vec![self.id()]].concat(),
            9 => [verb("CREATECONSUMER"), vec![self.consumer()]].concat(),
            _ => [verb("DELCONSUMER"), vec![self.consumer()]].concat(),
        }
    }
}
