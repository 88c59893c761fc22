//! The controller over HTTP, at the number of `SlurmctldPort` (QUIC has the UDP port of that number, this the TCP one): health for
//! who supervises daemons, and metrics for Prometheus. Paths, answers and errors are those of Slurm 26.05. It runs on a thread of
//! its own, reads views, and asks the controller's actors for counters only.

use super::{
    links::tell,
    metrics::{self, Page},
    tokens,
};
use crate::background::Background;
use actix_rt::Arbiter;
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use garrick_actors::controller::{
    messages::ControllerMsg,
    shells::{env::Env, ports::ReplySink},
};
use garrick_model::messages::{
    command::{Caller, CommandReply, CommandRequest},
    statistics::Statistics,
};
use garrick_runtime::{Address, TraceContext};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
};

/// Connections at a time; more wait.
const MOST_CONNECTIONS: usize = 64;
/// A request must have come after so long, and a connection is closed after the other time, whoever reads slowly.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(60);
/// Accepting failed (too many open files): so long until the next try.
const PAUSE: Duration = Duration::from_secs(1);

/// What answers are made of.
#[derive(Clone)]
pub struct Http {
    /// Views, configuration and traces.
    pub env: Arc<Env>,
    /// Has the counters.
    pub frontend: Address<ControllerMsg>,
}

/// Why a request is not served, in Slurm's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is nothing at that path.
    #[error("Invalid or unknown URL path")]
    UnknownPath,
    /// Who asks is not known, or nobody may.
    #[error("Invalid authentication credential")]
    NoCredential,
    /// The token has run out.
    #[error("Authentication credential expired")]
    Expired,
    /// The user is not one of those who may.
    #[error("Operation not permitted")]
    Forbidden,
    /// The controller's actors do not answer.
    #[error("Unable to contact the controller's scheduler")]
    NoCounters,
}

impl Refused {
    const fn status(self) -> StatusCode {
        match self {
            Self::UnknownPath => StatusCode::NOT_FOUND,
            Self::NoCredential | Self::Expired => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NoCounters => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn answer(self, request: &Request) -> Response {
        let (method, path) = (request.method(), request.uri().path());
        let text = format!("slurmctld HTTP server request for '{method} {path}':\nFailed: {self}\n");
        (self.status(), plain(text)).into_response()
    }
}

fn plain(text: impl Into<String>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain")], text.into())
}

const INDEX: &str = "slurmctld index of endpoints:
  '/readyz': check slurmctld is servicing RPCs
  '/livez': check slurmctld is running
  '/healthz': check slurmctld is running
  '/metrics': print available metric endpoints
";

impl Http {
    /// Serves at that address. `None`: it cannot, which is logged; the controller goes on without.
    pub fn start(self, at: SocketAddr) -> Option<Background> {
        let bound = StdListener::bind(at).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = match bound {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(address = %at, %error, "no health and metrics over HTTP: the TCP port of SlurmctldPort is not to be had");
                return None;
            }
        };
        let arbiter = Arbiter::new();
        arbiter.spawn(self.serve(listener));
        Some(Background::new("HTTP", arbiter))
    }

    async fn serve(self, listener: StdListener) {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "no health and metrics over HTTP"),
        };
        let router = self.router();
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let router = router.clone();
                    tokio::spawn(async move {
                        let served = tokio::time::timeout(LONGEST, connection(stream, router)).await;
                        tracing::debug!(?served, "a connection over HTTP is over");
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection over HTTP");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn router(self) -> Router {
        let well = || get(|| async { StatusCode::NO_CONTENT });
        let router = Router::new()
            .route("/", get(|| async { plain(INDEX) }))
            .route("/livez", well())
            .route("/healthz", well())
            .route("/readyz", get(readiness))
            .route("/metrics", get(metrics_index));
        let pages = Page::ALL.iter().fold(router, |router, page| {
            router.route(page.path(), get(move |state, request| metrics_page(state, *page, request)))
        });
        pages
            .fallback(unknown)
            .method_not_allowed_fallback(unknown)
            .layer(axum::middleware::from_fn(no_head))
            .with_state(self)
    }

    /// May whoever sent these headers read metrics? With `MetricsAuthUsers`, only these users, root and `SlurmUser`.
    fn may_read_metrics(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let config = self.env.config();
        let settings = &config.metrics;
        if !config.private_data.is_empty() && !settings.ignore_private_data {
            return Err(Refused::NoCredential);
        }
        if settings.users.is_empty() {
            return Ok(());
        }
        // Those of scontrol token hold here too.
        let of_cluster = config.auth.jwt.then(|| config.auth.key(&config.state_save_location));
        let user = tokens::user_of(headers, settings.jwt_key.as_deref().or(of_cluster.as_deref()))?;
        let known = user == "root" || user == config.slurm_user || settings.users.contains(&user);
        if known { Ok(()) } else { Err(Refused::Forbidden) }
    }

    /// Asks the controller's actors. `None`: they do not answer.
    async fn ask(&self, question: CommandRequest) -> Option<CommandReply> {
        let (sender, mut replies) = mpsc::channel(1);
        // Who asks is this process.
        let caller = Caller { uid: 0, gid: 0, pid: std::process::id(), host: String::new() };
        let asked = ControllerMsg::command(caller, Box::new(question), 0, Box::new(Answer(sender)));
        tell(&self.frontend, TraceContext::root(), asked).await;
        replies.recv().await
    }

    /// The controller's counters (`sdiag`).
    pub async fn counters(&self) -> Result<Statistics, Refused> {
        match self.ask(CommandRequest::ShowStatistics).await {
            Some(CommandReply::Statistics(counted)) => Ok(*counted),
            _ => Err(Refused::NoCounters),
        }
    }
}

/// Takes the one reply.
struct Answer(mpsc::Sender<CommandReply>);

impl ReplySink for Answer {
    fn send(&mut self, reply: CommandReply) -> bool {
        self.0.try_send(reply).is_ok()
    }

    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

async fn connection(stream: TcpStream, router: Router) -> Result<(), hyper::Error> {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN).keep_alive(false);
    server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await
}

/// Slurm knows no HEAD.
async fn no_head(request: Request, next: axum::middleware::Next) -> Response {
    match *request.method() {
        Method::HEAD => unknown(request).await,
        _ => next.run(request).await,
    }
}

async fn unknown(request: Request) -> Response {
    Refused::UnknownPath.answer(&request)
}

fn told(request: &Request, outcome: Result<impl IntoResponse, Refused>) -> Response {
    outcome.map_or_else(|refused| refused.answer(request), IntoResponse::into_response)
}

/// It serves commands: the frontend's actor answers.
async fn readiness(State(http): State<Http>, request: Request) -> Response {
    let ready = match http.ask(CommandRequest::Ping).await {
        Some(CommandReply::Pong { .. }) => Ok(StatusCode::NO_CONTENT),
        _ => Err(Refused::NoCounters),
    };
    told(&request, ready)
}

async fn metrics_index(State(http): State<Http>, request: Request) -> Response {
    told(&request, http.may_read_metrics(request.headers()).map(|()| plain(metrics::index())))
}

async fn metrics_page(State(http): State<Http>, page: Page, request: Request) -> Response {
    let text = match http.may_read_metrics(request.headers()) {
        Ok(()) if !http.env.config().metrics.on => Ok(String::new()),
        Ok(()) => page.text(&http).await,
        Err(refused) => Err(refused),
    };
    told(&request, text.map(plain))
}
