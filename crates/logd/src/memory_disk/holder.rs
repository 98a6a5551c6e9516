//! The connection of a memory disk to one node.

use std::time::Duration;

use perdura_base::num::to_u64;
use perdura_base::{Pos, StreamId};
use perdura_mirror::{Caller, Generation, Held, Net, READ_BYTES_MAX, Reply, Request, RingState};

use crate::client::{Client, unexpected};

/// The longest wait for a node.
const PATIENCE: Duration = Duration::from_secs(5);
/// The stream of all records.
const STREAM: StreamId = StreamId(0);

/// A node that holds the disk, or did.
pub(super) struct Holder {
    /// The address of the node.
    pub address: String,
    client: Client,
    /// The rings that the node had when it was sealed.
    rings: Vec<RingState>,
}

impl Holder {
    /// Connects to a node, and seals it against earlier servers.
    pub fn connect(net: &dyn Net, address: &str, caller: &Caller) -> Result<Holder, String> {
        let named = |why: String| format!("{address}: {why}");
        let client = Client::connect(net, address, caller, PATIENCE).map_err(named)?;
        let mut holder = Holder {
            address: address.to_owned(),
            client,
            rings: Vec::new(),
        };
        let generation = caller.generation;
        let frame = holder.ask(&Request::Seal { generation })?;
        match Reply::decode(&frame) {
            Ok(Reply::Sealed(sealed)) => holder.rings = sealed.rings,
            other => return Err(named(unexpected(other))),
        }
        Ok(holder)
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<Vec<u8>, String> {
        let reply = self.client.ask(request);
        reply.map_err(|why| format!("{}: {why}", self.address))
    }

    /// Returns the first position and the end of a ring that the node had when it was sealed.
    pub fn extent(&self, generation: Generation) -> Option<(Pos, Pos)> {
        let mut rings = self.rings.iter();
        let ring = rings.find(|ring| ring.generation == generation && ring.stream == STREAM)?;
        Some((ring.low, ring.end))
    }

    /// Opens an empty ring at position 0.
    pub fn open(&mut self, generation: Generation) -> Result<(), String> {
        let frame = self.ask(&Request::Open {
            generation,
            stream: STREAM,
            start: Pos(0),
        })?;
        self.held(&frame, Pos(0))
    }

    /// Sends a record that begins at the end of `held`. The node may drop the bytes before `held`.
    pub fn send(
        &mut self,
        generation: Generation,
        held: std::ops::Range<Pos>,
        record: &[u8],
    ) -> Result<(), String> {
        let sent = self.client.send(&Request::Append {
            generation,
            stream: STREAM,
            pos: held.end,
            low: held.start,
            bytes: record,
            pad: 0,
        });
        sent.map_err(|why| format!("{}: {why}", self.address))
    }

    /// Waits until the node holds everything up to `end`.
    pub fn await_held(&mut self, end: Pos) -> Result<(), String> {
        let frame = self.client.receive();
        let frame = frame.map_err(|why| format!("{}: {why}", self.address))?;
        self.held(&frame, end)
    }

    /// Fails unless a reply says that the ring ends at `end`.
    fn held(&self, frame: &[u8], end: Pos) -> Result<(), String> {
        match Reply::decode(frame) {
            Ok(Reply::Held(Held { ring, .. })) if ring.end == end => Ok(()),
            other => Err(format!("{}: {}", self.address, unexpected(other))),
        }
    }

    /// Reads bytes of a ring.
    pub fn read(&mut self, generation: Generation, from: Pos, len: u64) -> Result<Vec<u8>, String> {
        assert!(len <= u64::from(READ_BYTES_MAX), "one read returns them");
        let len = u32::try_from(len).unwrap_or(READ_BYTES_MAX);
        let frame = self.ask(&Request::Read {
            generation,
            stream: STREAM,
            from,
            len,
        })?;
        match Reply::decode(&frame) {
            Ok(Reply::Bytes { bytes, .. }) if to_u64(bytes.len()) == u64::from(len) => {
                Ok(bytes.to_vec())
            }
            other => Err(format!("{}: {}", self.address, unexpected(other))),
        }
    }

    /// Makes the node drop the rings of older generations.
    pub fn retire(&mut self, generation: Generation) -> Result<(), String> {
        let frame = self.ask(&Request::Retire { generation })?;
        match Reply::decode(&frame) {
            Ok(Reply::Retired { .. }) => Ok(()),
            other => Err(format!("{}: {}", self.address, unexpected(other))),
        }
    }
}
