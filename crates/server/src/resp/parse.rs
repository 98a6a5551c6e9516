//! An incremental parser of requests that copies nothing.
//!
//! A request is an array of bulk strings (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`) or a line of words. The caller passes all
//! bytes that have arrived, from the request's first byte on. The parser remembers its last position, so bytes may
//! arrive one at a time without a rescan. Arguments are spans of the input. Errors carry Redis's own words. After an
//! error the connection is closed, because the start of the next request cannot be found. A line of a foreign protocol
//! is also an error ([`Foreign`]).
//!
//! Invariant: the result depends on the bytes alone, never on how they were split into reads.

use super::foreign::Foreign;
use super::inline::split_words;
use crate::number::parse_i64;

/// The maximum length of a line, in bytes. A line is an inline request or the digits of a count.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// The number of parsed arguments at which the parser stops parsing ahead.
const AHEAD_ARGS: usize = 128;
/// The maximum number of digits of a number on the fast path. A number with one more digit still fits in a
/// signed 64-bit integer.
const NUMBER_DIGITS: usize = 17;

/// The limits of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The maximum number of arguments.
    pub args_max: i64,
    /// The longest argument, bytes.
    pub bulk_bytes_max: i64,
    /// True if the client has authenticated. If not, the errors of these limits say so.
    pub authenticated: bool,
}

impl Limits {
    /// The limits of a client that has not authenticated.
    pub(crate) const STRANGER: Limits = Limits {
        args_max: 10,
        bulk_bytes_max: 16 * 1024,
        authenticated: false,
    };
}

/// The reason why no request can follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParseError {
    /// A violation of the protocol, in Redis's words.
    Protocol(String),
    /// The client speaks a foreign protocol.
    Foreign(Foreign),
}

impl ParseError {
    fn new(text: &str) -> Self {
        ParseError::Protocol(format!("Protocol error: {text}"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
}

/// One request's arguments; the first is the command's name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// Returns the number of arguments, the name included.
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the number of bytes that the request occupies in the input. The protocol's own bytes are included.
    pub(crate) fn extent(&self) -> usize {
        self.spans.last().map_or(0, |span| span.end)
    }

    /// Returns the argument at `index`, which must exist.
    pub(crate) fn at(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        &self.bytes[span.start..span.end]
    }

    /// Returns the request that begins with the argument at `index`; it is empty if there are fewer
    /// arguments.
    pub(crate) fn tail(&self, index: usize) -> Args<'a> {
        Args {
            bytes: self.bytes,
            spans: &self.spans[index.min(self.spans.len())..],
        }
    }

    /// Returns the arguments from `index` on.
    pub(crate) fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let args = *self;
        (index..args.len()).map(move |i| args.at(i))
    }
}

/// A request stored for later, as in MULTI.
#[derive(Debug, Default)]
pub(crate) struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    /// Copies the arguments without the protocol's bytes between them.
    pub(crate) fn copy(args: &Args<'_>) -> Self {
        OwnedArgs::of(args.from(0))
    }

    /// Replaces the arguments, and reuses the buffers.
    pub(crate) fn refill<'a>(&mut self, args: impl Iterator<Item = &'a [u8]>) {
        self.bytes.clear();
        self.spans.clear();
        args.for_each(|arg| self.push(arg));
    }

    /// Copies these arguments.
    pub(crate) fn of<'a>(args: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut owned = OwnedArgs::default();
        args.for_each(|arg| owned.push(arg));
        owned
    }

    /// Copies the positions of the arguments. The caller adds the bytes by [`fill`](Self::fill).
    pub(crate) fn places(args: &Args<'_>) -> Self {
        OwnedArgs {
            bytes: Vec::new(),
            spans: args.spans.to_vec(),
        }
    }

    /// Takes over the buffer that holds the arguments. The request begins at `begin` in the buffer.
    pub(crate) fn fill(&mut self, bytes: Vec<u8>, begin: usize) {
        for span in &mut self.spans {
            span.start += begin;
            span.end += begin;
        }
        self.bytes = bytes;
        debug_assert!(
            self.args().extent() <= self.bytes.len(),
            "each argument is in the bytes"
        );
    }

    /// Appends an argument.
    pub(crate) fn push(&mut self, arg: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(arg);
        let end = self.bytes.len();
        self.spans.push(Span { start, end });
    }

    /// Returns the arguments.
    pub(crate) fn args(&self) -> Args<'_> {
        Args {
            bytes: &self.bytes,
            spans: &self.spans,
        }
    }

    /// Returns the memory of the arguments, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Before the first byte of a request.
    Start,
    /// Before the length of a bulk string.
    Length { left: i64 },
    /// Within a bulk string.
    Content { left: i64, bytes: usize },
}

/// A whole request of the current batch. A batch is all requests of one parse.
#[derive(Debug, Clone, Copy)]
struct Whole {
    /// The number of the request's bytes in the input.
    bytes: usize,
    /// The end of the request's spans: an index in the parser's spans.
    spans: usize,
}

/// The parser of one connection.
#[derive(Debug)]
pub(crate) struct Parser {
    /// The current batch. An inline request is always alone in its batch.
    whole: Vec<Whole>,
    /// The index of the last returned request.
    current: usize,
    /// True if the first request of the batch has not been returned yet.
    early: bool,
    state: Reading,
    /// The index of the next byte to look at, counted from the request's first byte.
    at: usize,
    /// The index at which the search for a line end continues. The bytes of the line before this index contain none.
    scanned: usize,
    spans: Vec<Span>,
    /// The words of an inline request, after the resolution of quotes and escapes.
    words: Vec<u8>,
    inline: bool,
}

impl Parser {
    /// Returns a parser that has seen no byte yet.
    pub(crate) fn new() -> Self {
        Parser {
            whole: Vec::new(),
            current: 0,
            early: false,
            state: Reading::Start,
            at: 0,
            scanned: 0,
            spans: Vec::new(),
            words: Vec::new(),
            inline: false,
        }
    }

    /// Looks for one whole request at the start of `input`. `Some(n)`: the request is `n` bytes long and its arguments
    /// are [`args`](Self::args), perhaps empty. `None`: the request is not whole yet; call again with all these bytes
    /// and further bytes.
    ///
    /// Parses up to `most` requests at once. [`parsed`](Self::parsed) returns their arguments. The caller must pass the
    /// bytes after the first request to the next call. That call returns the second request without parsing again,
    /// unless [`forget_ahead`](Self::forget_ahead) was called in between.
    pub(crate) fn parse(
        &mut self,
        input: &[u8],
        limits: &Limits,
        most: usize,
    ) -> Result<Option<usize>, ParseError> {
        self.current += 1;
        if std::mem::take(&mut self.early) {
            self.current = 0;
        } else if self.current >= self.whole.len() {
            self.begin();
            match self.request(input, limits)? {
                None => return Ok(None),
                Some(bytes) => self.keep(bytes),
            }
            self.more(input, limits, most);
        }
        debug_assert!(
            self.spans.len() >= self.whole[self.current].spans,
            "a request has its arguments"
        );
        Ok(Some(self.whole[self.current].bytes))
    }

    /// Parses ahead for the next call of [`parse`](Self::parse). That call must get all bytes of `input` and may get
    /// more. The requests are in [`parsed`](Self::parsed) afterwards. If there is an error, that call returns it.
    pub(crate) fn parse_early(&mut self, input: &[u8], limits: &Limits, most: usize) {
        debug_assert!(
            self.is_at_end() && !self.early,
            "a request that was parsed was not returned"
        );
        match self.parse(input, limits, most) {
            Ok(found) => self.early = found.is_some(),
            Err(_) => self.start_again(),
        }
    }

    /// Parses more whole requests after the first one. Stops at a request with an error. The later call that reaches
    /// that request returns the error.
    fn more(&mut self, input: &[u8], limits: &Limits, most: usize) {
        let mut at = self.whole[0].bytes;
        while self.whole.len() < most
            && self.spans.len() < AHEAD_ARGS
            && !self.inline
            && input.get(at) == Some(&b'*')
        {
            match self.request(&input[at..], limits) {
                Ok(Some(bytes)) => {
                    self.keep(bytes);
                    at += bytes;
                }
                Ok(None) => return,
                Err(_) => return self.start_again(),
            }
        }
    }

    /// Returns whether the next call of [`parse`](Self::parse) begins a new batch. The batch may already have been
    /// parsed by [`parse_early`](Self::parse_early).
    pub(crate) fn begins(&self) -> bool {
        self.early || self.is_at_end()
    }

    /// Returns whether the last returned request is the last parsed request.
    pub(crate) fn is_at_end(&self) -> bool {
        self.current + 1 >= self.whole.len()
    }

    /// Returns the arguments of all parsed requests. The first of these requests is at the start of `input`.
    pub(crate) fn parsed<'a>(&'a self, input: &'a [u8]) -> impl Iterator<Item = Args<'a>> {
        let (mut byte, mut first) = (0, 0);
        self.whole.iter().map(move |whole| {
            let args = Args {
                bytes: self.bytes_of(&input[byte..]),
                spans: &self.spans[first..whole.spans],
            };
            (byte, first) = (byte + whole.bytes, whole.spans);
            args
        })
    }

    /// Forgets the parsed requests after the returned one. The next call of [`parse`](Self::parse) may then get other
    /// bytes.
    pub(crate) fn forget_ahead(&mut self) {
        self.whole.truncate(self.current + 1);
        self.start_again();
    }

    /// Adds a whole request of this number of bytes.
    fn keep(&mut self, bytes: usize) {
        debug_assert!(
            self.whole
                .last()
                .is_none_or(|last| last.spans <= self.spans.len()),
            "requests follow one another"
        );
        debug_assert!(self.state == Reading::Start, "a request is whole");
        self.whole.push(Whole {
            bytes,
            spans: self.spans.len(),
        });
    }

    /// Forgets the parsed part of an unfinished request.
    fn start_again(&mut self) {
        let spans = self.whole.last().map_or(0, |whole| whole.spans);
        self.spans.truncate(spans);
        self.finish();
    }

    /// Forgets the returned requests. The parsed part of an unfinished request stays.
    fn begin(&mut self) {
        let done = self.whole.last().map_or(0, |whole| whole.spans);
        self.whole.clear();
        self.current = 0;
        if self.spans.len() > done {
            self.spans.drain(..done);
            return;
        }
        self.spans.clear();
        if self.spans.capacity() > 4096 {
            self.spans = Vec::new();
        }
        self.inline = false;
    }

    /// Looks for one whole request at the start of `input`, and appends its arguments to `spans`.
    fn request(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ParseError> {
        loop {
            match self.state {
                Reading::Start => match input.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        let Some(count) = self.count(input, limits)? else {
                            return Ok(None);
                        };
                        if count <= 0 {
                            return Ok(Some(self.finish()));
                        }
                        self.state = Reading::Length { left: count };
                    }
                    Some(_) => return self.inline(input),
                },
                Reading::Length { left } => {
                    let Some(bytes) = self.length(input, limits)? else {
                        return Ok(None);
                    };
                    self.state = Reading::Content { left, bytes };
                }
                Reading::Content { left, bytes } => {
                    debug_assert!(left > 0, "an argument is awaited");
                    let end = self.at + bytes;
                    if input.len() < end + 2 {
                        return Ok(None);
                    }
                    self.spans.push(Span {
                        start: self.at,
                        end,
                    });
                    self.at = end + 2;
                    self.scanned = self.at;
                    if left == 1 {
                        return Ok(Some(self.finish()));
                    }
                    self.state = Reading::Length { left: left - 1 };
                }
            }
        }
    }

    /// Returns the arguments of the request that [`parse`](Self::parse) found at the start of
    /// `input`.
    pub(crate) fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        let spans = |at: usize| self.whole.get(at).map_or(0, |whole| whole.spans);
        let first = self.current.checked_sub(1).map_or(0, spans);
        Args {
            bytes: self.bytes_of(input),
            spans: &self.spans[first..spans(self.current)],
        }
    }

    /// Returns the bytes that the spans of a request at the start of `input` refer to.
    fn bytes_of<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        if self.inline { &self.words } else { input }
    }

    /// Returns a lower bound, in bytes, on the length of the unfinished request in the input. Returns 0 if no bound is
    /// known.
    pub(crate) fn needed(&self) -> usize {
        match self.state {
            Reading::Content { bytes, .. } => self.at + bytes + 2,
            _ => 0,
        }
    }

    /// Returns the parser's memory, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.whole.capacity() * size_of::<Whole>()
    }

    fn finish(&mut self) -> usize {
        let bytes = self.at;
        self.state = Reading::Start;
        self.at = 0;
        self.scanned = 0;
        bytes
    }

    /// Consumes the line that begins at `from` if it is whole and holds a number from 1 to `max`, as nearly every
    /// line does. `None`: the slow path must read the line.
    #[inline]
    fn short_number(&mut self, input: &[u8], from: usize, max: i64) -> Option<i64> {
        let line = input.get(from..)?;
        if let [digit @ b'1'..=b'9', b'\r', _, ..] = line
            && i64::from(digit - b'0') <= max
        {
            (self.at, self.scanned) = (from + 3, from + 3);
            return Some(i64::from(digit - b'0'));
        }
        let mut number = 0;
        for (at, byte) in line.iter().enumerate().take(NUMBER_DIGITS + 1) {
            let digit = byte.wrapping_sub(b'0');
            if digit < 10 {
                number = number * 10 + i64::from(digit);
                if number == 0 {
                    return None;
                }
            } else if *byte == b'\r' && (1..=max).contains(&number) && line.len() > at + 1 {
                self.at = from + at + 2;
                self.scanned = self.at;
                return Some(number);
            } else {
                return None;
            }
        }
        None
    }

    #[inline]
    fn count(&mut self, input: &[u8], limits: &Limits) -> Result<Option<i64>, ParseError> {
        match self.short_number(input, 1, limits.args_max) {
            Some(count) => Ok(Some(count)),
            None => self.any_count(input, limits),
        }
    }

    fn any_count(&mut self, input: &[u8], limits: &Limits) -> Result<Option<i64>, ParseError> {
        self.at = 1;
        let Some(line) = self.line(input, "too big mbulk count string")? else {
            self.at = 0;
            return Ok(None);
        };
        match parse_i64(line) {
            Some(count) if count > limits.args_max && !limits.authenticated => {
                Err(ParseError::new("unauthenticated multibulk length"))
            }
            Some(count) if count <= limits.args_max => Ok(Some(count)),
            _ => Err(ParseError::new("invalid multibulk length")),
        }
    }

    #[inline]
    fn length(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ParseError> {
        if input.get(self.at) == Some(&b'$') {
            let bytes = self.short_number(input, self.at + 1, limits.bulk_bytes_max);
            if let Some(Ok(bytes)) = bytes.map(usize::try_from) {
                return Ok(Some(bytes));
            }
        }
        self.any_length(input, limits)
    }

    fn any_length(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ParseError> {
        let Some(first) = input.get(self.at) else {
            return Ok(None);
        };
        if *first != b'$' {
            let got = char::from(*first);
            return Err(ParseError::new(&format!("expected '$', got '{got}'")));
        }
        self.at += 1;
        let Some(line) = self.line(input, "too big bulk count string")? else {
            self.at -= 1;
            return Ok(None);
        };
        match parse_i64(line) {
            Some(bytes) if bytes > limits.bulk_bytes_max && !limits.authenticated => {
                Err(ParseError::new("unauthenticated bulk length"))
            }
            Some(bytes) if bytes <= limits.bulk_bytes_max => usize::try_from(bytes)
                .map(Some)
                .map_err(|_| ParseError::new("invalid bulk length")),
            _ => Err(ParseError::new("invalid bulk length")),
        }
    }

    /// Consumes and returns the rest of a line that ends in CR and one more byte. As in Redis, only
    /// the CR is checked.
    fn line<'a>(
        &mut self,
        input: &'a [u8],
        too_long: &str,
    ) -> Result<Option<&'a [u8]>, ParseError> {
        let from = self.scanned.max(self.at);
        let found = input
            .get(from..)
            .and_then(|rest| rest.iter().position(|b| *b == b'\r'));
        let Some(end) = found.map(|offset| from + offset) else {
            self.scanned = input.len();
            if input.len() - self.at > LINE_BYTES_MAX {
                return Err(ParseError::new(too_long));
            }
            return Ok(None);
        };
        if end - self.at > LINE_BYTES_MAX {
            return Err(ParseError::new(too_long));
        }
        if input.len() < end + 2 {
            self.scanned = end;
            return Ok(None);
        }
        let line = &input[self.at..end];
        self.at = end + 2;
        self.scanned = self.at;
        Ok(Some(line))
    }

    fn inline(&mut self, input: &[u8]) -> Result<Option<usize>, ParseError> {
        if let Some(foreign) = input.first().and_then(|b| Foreign::by_first_byte(*b)) {
            return Err(ParseError::Foreign(foreign));
        }
        let rest = &input[self.scanned..];
        let found = rest
            .iter()
            .position(|b| *b == b'\n')
            .map(|offset| self.scanned + offset);
        if found.unwrap_or(input.len()) > LINE_BYTES_MAX {
            return Err(ParseError::new("too big inline request"));
        }
        let Some(end) = found else {
            self.scanned = input.len();
            return Ok(None);
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        if let Some(foreign) = Foreign::by_line(line) {
            return Err(ParseError::Foreign(foreign));
        }
        let spans = &mut self.spans;
        self.words.clear();
        split_words(line, &mut self.words, |start, end| {
            spans.push(Span { start, end })
        })
        .ok_or_else(|| ParseError::new("unbalanced quotes in request"))?;
        self.inline = true;
        self.at = end + 1;
        Ok(Some(self.finish()))
    }
}

#[cfg(test)]
mod tests;
