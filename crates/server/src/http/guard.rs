//! Checks the head of a request before anything is answered.
//!
//! A web page can make a browser send requests to this server, if the browser can reach the server. The page may read
//! the answer only if the browser believes that the page and this server are one site. A page achieves that by DNS
//! rebinding: its author makes the page's own host name point to this server's address. `Host` then contains that name.
//! So the `Host` of a request must be the address at which this server has accepted the connection, or one of
//! `http-hosts`. On a loopback address it may also be `localhost`. A request is also refused if its `Origin` is another
//! site.
//!
//! A port in `Host` is not compared: a tunnel (`ssh -L`) changes it, and a page gains nothing by a
//! false port. A port in `http-hosts` is compared.

use crate::host_name::HostName;
use base64ct::{Base64, Encoding};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// The reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The head is not valid for a request to this server.
    Malformed(&'static str),
    /// The request comes from a foreign site's page, or names a foreign host.
    Foreign(&'static str),
    /// The request does not have the password.
    Password,
}

const NO_HOST: &str = "exactly one Host header is needed\n";
const ABSOLUTE: &str = "this server is not a proxy: request a path\n";
const FOREIGN_HOST: &str = "the Host header does not name this server: add its name to \
                            http-hosts\n";
const FOREIGN_ORIGIN: &str = "requests from pages of other sites are refused\n";

/// The settings that requests are compared with.
#[derive(Debug)]
pub(crate) struct Guard {
    hosts: Vec<HostName>,
    /// The password's hash. Hashes are compared in constant time. `None`: no password is needed.
    password: Option<[u8; 32]>,
}

impl Guard {
    /// Returns a guard with the hosts and the password of the settings.
    pub(crate) fn new(hosts: &[String], password: Option<&str>) -> Guard {
        Guard {
            hosts: hosts
                .iter()
                .filter_map(|text| HostName::parse(text))
                .collect(),
            password: password.map(|word| Sha256::digest(word).into()),
        }
    }

    /// Checks a request that has come to the address `local` of this machine.
    pub(crate) fn judge(&self, head: &Parts, local: IpAddr) -> Result<(), Refused> {
        if head.uri.scheme().is_some() || head.uri.authority().is_some() {
            return Err(Refused::Malformed(ABSOLUTE));
        }
        let (host, text) = single(&head.headers, &HOST)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| Some((HostName::parse(text)?, text)))
            .ok_or(Refused::Malformed(NO_HOST))?;
        let known = |known: &HostName| host.is_meant_by(known);
        if !host.is_of(local.to_canonical()) && !self.hosts.iter().any(known) {
            return Err(Refused::Foreign(FOREIGN_HOST));
        }
        if head.headers.contains_key(ORIGIN) {
            let origin = single(&head.headers, &ORIGIN).and_then(|value| value.to_str().ok());
            let site =
                origin.and_then(|o| o.strip_prefix("http://").or(o.strip_prefix("https://")));
            if !site.is_some_and(|site| site.eq_ignore_ascii_case(text)) {
                return Err(Refused::Foreign(FOREIGN_ORIGIN));
            }
        }
        match &self.password {
            Some(password) if !proves(&head.headers, password) => Err(Refused::Password),
            _ => Ok(()),
        }
    }
}

/// Returns the value of a header. `None`: the header is missing or occurs more than once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut all = headers.get_all(name).iter();
    all.next().filter(|_| all.next().is_none())
}

/// Returns whether the request has the password, in the scheme Bearer, or in Basic with any user name.
fn proves(headers: &HeaderMap, password: &[u8; 32]) -> bool {
    let Some(text) = single(headers, &AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let Some((scheme, credentials)) = text.split_once(' ') else {
        return false;
    };
    let offered = if scheme.eq_ignore_ascii_case("Bearer") {
        credentials.as_bytes().to_vec()
    } else if scheme.eq_ignore_ascii_case("Basic") {
        let Ok(pair) = Base64::decode_vec(credentials) else {
            return false;
        };
        let Some(colon) = pair.iter().position(|b| *b == b':') else {
            return false;
        };
        pair[colon + 1..].to_vec()
    } else {
        return false;
    };
    let offered: [u8; 32] = Sha256::digest(offered).into();
    offered.ct_eq(password).into()
}
