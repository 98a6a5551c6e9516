//! `/metrics` for Prometheus, `/healthz` for supervisors and a status page for people, on a separate address.
//!
//! A separate thread serves these pages, so that a slow reader costs the database nothing. The thread requests the
//! figures from the event loop and makes the texts itself. A request costs the loop a few microseconds. The thread gets
//! new figures at most ten times a second, however many requests clients send. The thread holds a few connections at
//! most, each for a limited time. A new connection is always accepted. If no slot is free, the address with the most
//! connections loses its oldest one ([`slots`]). So slow or silent readers do not delay others. The figures are INFO's
//! figures ([`crate::command::server::info`]) under different names ([`metrics`]). The figures may show writes that are
//! not on the disk yet.
//!
//! Pages of other sites are kept out ([`guard`]). There is no password unless one is set: every
//! client that reaches the address can read the figures. They hold no keys, no values and no
//! clients' names.

mod commands;
mod guard;
mod ill;
mod metrics;
mod slots;
mod status;

pub(crate) use guard::Guard;

use crate::command::server::info::Fields;
use crate::control::{Control, Message};
use crate::options::ServeError;
use guard::Refused;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use slots::Slots;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, oneshot};

/// The maximum number of connections at a time.
const CONNECTIONS_MAX: usize = 32;
/// The maximum lifetime of a connection.
const CONNECTION_SECONDS_MAX: Duration = Duration::from_secs(60);
/// The longest time to receive a request's head.
const HEAD_SECONDS_MAX: Duration = Duration::from_secs(5);
/// The buffer of a connection, bytes.
const BUFFER_BYTES_MAX: usize = 16 * 1024;
/// The delay of the answer to a wrong password.
const WRONG_PASSWORD_DELAY: Duration = Duration::from_secs(1);
/// The longest time that the event loop may take to answer.
const LOOP_SECONDS_MAX: Duration = Duration::from_secs(3);
/// The maximum age of reused figures.
const FRESH: Duration = Duration::from_millis(100);

/// The thread that serves the metrics and the status page. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Http {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    /// Binds `address` and starts the thread.
    pub(crate) fn start(
        address: SocketAddr,
        guard: Guard,
        control: Control,
    ) -> Result<Http, ServeError> {
        let bind = |source| ServeError::Bind {
            address: address.to_string(),
            source,
        };
        let listener = TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(String::from("metrics"))
            .spawn(move || {
                runtime.block_on(async move {
                    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                        return;
                    };
                    tokio::select! {
                        () = serve(listener, Figures::new(guard, control)) => {}
                        _ = ended => {}
                    }
                });
            })?;
        Ok(Http {
            address,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// Returns the address that the thread listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing.
            let _ = thread.join();
        }
    }
}

/// The latest figures, and the guard that judges requests for them.
struct Figures {
    guard: Guard,
    control: Control,
    last: Mutex<Option<(Instant, Arc<Fields>)>>,
}

impl Figures {
    fn new(guard: Guard, control: Control) -> Arc<Figures> {
        Arc::new(Figures {
            guard,
            control,
            last: Mutex::new(None),
        })
    }

    /// Returns figures that are fresh enough; `None` if the loop is too busy or has ended.
    async fn get(&self) -> Option<Arc<Fields>> {
        let mut last = self.last.lock().await;
        if let Some((at, fields)) = last.as_ref()
            && at.elapsed() < FRESH
        {
            return Some(Arc::clone(fields));
        }
        let (sender, answer) = oneshot::channel();
        self.control.send(Message::Figures(sender));
        let fields = tokio::time::timeout(LOOP_SECONDS_MAX, answer).await;
        let fields = Arc::new(fields.ok()?.ok()?);
        *last = Some((Instant::now(), Arc::clone(&fields)));
        Some(fields)
    }
}

async fn serve(listener: tokio::net::TcpListener, figures: Arc<Figures>) {
    let mut slots = Slots::new(CONNECTIONS_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let served = tokio::spawn(connection(stream, Arc::clone(&figures)));
                slots.take(peer.ip(), served.abort_handle());
            }
            // The process may be out of descriptors for the moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn connection(stream: TcpStream, figures: Arc<Figures>) {
    let Ok(local) = stream.local_addr() else {
        return;
    };
    let answers = service_fn(move |request| {
        let figures = Arc::clone(&figures);
        async move { Ok::<_, Infallible>(answer(request, local.ip(), &figures).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_SECONDS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answers);
    // A client that disconnects early is not an error.
    let _ = tokio::time::timeout(CONNECTION_SECONDS_MAX, served).await;
}

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

async fn answer(
    request: Request<Incoming>,
    local: IpAddr,
    figures: &Figures,
) -> Response<Full<Bytes>> {
    // No request to this server needs its body.
    let (request, _) = request.into_parts();
    match figures.guard.judge(&request, local) {
        Ok(()) => {}
        Err(Refused::Malformed(why)) => return reply(StatusCode::BAD_REQUEST, PLAIN, why),
        Err(Refused::Foreign(why)) => return reply(StatusCode::FORBIDDEN, PLAIN, why),
        Err(Refused::Password) => {
            tokio::time::sleep(WRONG_PASSWORD_DELAY).await;
            let mut response = reply(StatusCode::UNAUTHORIZED, PLAIN, "a password is needed\n");
            let asks = HeaderValue::from_static("Basic realm=\"perdura\", charset=\"UTF-8\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, asks);
            return response;
        }
    }
    if request.method != Method::GET && request.method != Method::HEAD {
        let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    let make: fn(&Fields) -> Response<Full<Bytes>> = match request.uri.path() {
        "/" => return reply(StatusCode::OK, HTML, include_str!("status.html")),
        "/status.js" => return reply(StatusCode::OK, SCRIPT, include_str!("status.js")),
        "/status.css" => return reply(StatusCode::OK, STYLE, include_str!("status.css")),
        "/metrics" => |fields| reply(StatusCode::OK, METRICS, metrics::text(fields)),
        "/status.json" => |fields| reply(StatusCode::OK, JSON, status::json(fields)),
        "/healthz" => |fields| match ill::reasons(fields) {
            None => reply(StatusCode::OK, PLAIN, "ok\n"),
            Some(why) => reply(StatusCode::SERVICE_UNAVAILABLE, PLAIN, why),
        },
        _ => {
            let all = "/, /healthz, /metrics, /status.json\n";
            return reply(StatusCode::NOT_FOUND, PLAIN, all);
        }
    };
    match figures.get().await {
        Some(fields) => make(&fields),
        None => reply(
            StatusCode::SERVICE_UNAVAILABLE,
            PLAIN,
            "the server is busy, or ending\n",
        ),
    }
}

fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                  frame-ancestors 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests;
