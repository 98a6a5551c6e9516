//! The address of a server: `redis://[user][:password@]host[:port]`, `unix://path`, or `host:port`.

/// The environment variable that holds the password. redis-cli reads the same variable. A password in a flag would be
/// visible in the list of processes.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

/// The default port.
const PORT: u16 = 6379;

/// The address of a server, with the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The server's listening endpoint.
    pub endpoint: Endpoint,
    /// The user name for AUTH. `None`: AUTH is sent with the password alone.
    pub user: Option<String>,
    /// The password for AUTH. `None`: AUTH is not sent.
    pub password: Option<String>,
}

/// A server's listening endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A host and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(std::path::PathBuf),
}

impl Address {
    /// Returns the address. A TCP address without a password gets the password from the environment. The target of an
    /// import does not use this password.
    #[must_use]
    pub fn or_password_of_environment(mut self) -> Address {
        if matches!(self.endpoint, Endpoint::Tcp(..)) && self.password.is_none() {
            self.password = std::env::var(PASSWORD_VARIABLE).ok();
        }
        self
    }
}

impl std::fmt::Display for Address {
    /// Shows the address without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.endpoint {
            Endpoint::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp(host, port) => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            return Ok(Address {
                endpoint: Endpoint::Unix(path.into()),
                user: None,
                password: None,
            });
        }
        let rest = match text.split_once("://") {
            Some(("redis", rest)) => rest,
            Some(("rediss", _)) => {
                return Err("TLS is not supported. Use redis:// through a tunnel".into());
            }
            Some((other, _)) => {
                return Err(format!("'{other}' is not a known scheme. Use redis://"));
            }
            None => text,
        };
        // A password may contain an @, but no slash. So the last @ ends the password.
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let (endpoint, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() {
            return Err("the URL names a database. Choose it with --db instead".into());
        }
        let (host, port) = host_and_port(endpoint)?;
        let (user, password) = match login.map(|login| login.split_once(':')) {
            None => (None, None),
            Some(None) => return Err("the URL has a user but no password before the @".into()),
            Some(Some((user, password))) => (Some(decoded(user)?), Some(decoded(password)?)),
        };
        Ok(Address {
            endpoint: Endpoint::Tcp(host, port),
            user: user.filter(|user| !user.is_empty()),
            password: password.filter(|password| !password.is_empty()),
        })
    }
}

fn host_and_port(endpoint: &str) -> Result<(String, u16), String> {
    let port_of = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| format!("'{text}' is not a port"))
    };
    let (host, port) = match endpoint
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((host, "")) => (host, PORT),
        Some((host, port)) => (host, port_of(port.strip_prefix(':').unwrap_or(port))?),
        None => match endpoint.split_once(':') {
            Some((host, port)) => (host, port_of(port)?),
            None => (endpoint, PORT),
        },
    };
    if host.is_empty() {
        return Err("the URL has no host. Give redis://HOST:PORT".into());
    }
    Ok((host.to_owned(), port))
}

/// Returns a text with `%40` and other escapes decoded.
fn decoded(text: &str) -> Result<String, String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit().zip(digit()).map(|(high, low)| high * 16 + low);
        let value = value.and_then(|value| u8::try_from(value).ok());
        out.push(value.ok_or("two hexadecimal digits must follow a %. Write %25 for a %")?);
    }
    debug_assert!(out.len() <= text.len(), "an escape is longer than its byte");
    String::from_utf8(out).map_err(|_| "the password is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(host.into(), port)
    }

    #[test]
    fn addresses_have_the_usual_forms() {
        let parse = |text: &str| text.parse::<Address>().unwrap();
        assert_eq!(parse("redis://db").endpoint, tcp("db", 6379));
        assert_eq!(parse("127.0.0.1:7000/").endpoint, tcp("127.0.0.1", 7000));
        assert_eq!(parse("redis://[::1]:7000").endpoint, tcp("::1", 7000));
        assert_eq!(
            parse("unix:///run/x").endpoint,
            Endpoint::Unix("/run/x".into())
        );
        let full = parse("redis://me:p%40s%3as@w@db:7000");
        assert_eq!(full.endpoint, tcp("db", 7000));
        assert_eq!(full.user.as_deref(), Some("me"));
        assert_eq!(full.password.as_deref(), Some("p@s:s@w"));
        assert_eq!(full.to_string(), "db:7000");
        let alone = parse("redis://:secret@db");
        assert_eq!((alone.user, alone.password), (None, Some("secret".into())));
    }

    #[test]
    fn what_is_no_address_is_said() {
        for bad in [
            "",
            "redis://",
            "http://db",
            "rediss://db",
            "redis://db:x",
            "redis://db/3",
            "redis://me@db",
            "redis://:%4@db",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
