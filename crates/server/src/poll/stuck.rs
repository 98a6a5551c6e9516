//! Disconnects clients that wait for the server while the server waits for them: see
//! [`crate::connection::backlog`].

use super::EventLoop;

impl EventLoop {
    /// Looks for clients in a mutual wait: the client does not read replies, and the server does not read the client's
    /// requests. Disconnects a client that too many checks in a row have found in this state. The loop calls this about
    /// once a second.
    pub(super) fn end_mutual_waits(&mut self) {
        let mut stuck = Vec::new();
        for at in 0..self.state.connections.places() {
            if let Some(mut connection) = self.state.connections.take(at) {
                if connection.is_stuck(&self.state) {
                    stuck.push(at);
                }
                self.state.connections.put(at, connection);
            }
        }
        for index in stuck {
            if let Some(connection) = self.state.connections.take(index) {
                let (who, unsent) = (connection.session.who(), connection.replies.unsent());
                let why = connection.why_unread(&self.state);
                tracing::warn!(
                    "{who} is disconnected: it has read none of {unsent} bytes of replies for \
                     about 30 s, and {why}"
                );
                self.close(index, connection);
            }
        }
    }
}

#[cfg(test)]
mod tests;
