//! Tokens of users: JSON Web Tokens signed with a key that the site has (HS256), as `scontrol token` of Slurm makes them. The user
//! is in `sun`, `iat` says when it was made, and `exp` until when it holds. Whoever shows one acts as its user, and may do no more:
//! the metrics' readers do, and commands with `SLURM_JWT`.

use super::{
    http::Refused,
    names::{Names, Question},
};
use axum::http::{HeaderMap, header};
use garrick_actors::submission::users::UserDirectory as _;
use garrick_kernel::users;
use garrick_model::{
    config::Config,
    messages::command::{Caller, CommandRequest},
    time::Timestamp,
};
use garrick_transport::Sparing;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, errors::ErrorKind};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A shorter key could be guessed (RFC 7518, section 3.2, wants 32 bytes; sites have shorter ones).
const SHORTEST_KEY: usize = 16;

#[derive(Serialize, Deserialize)]
struct Claims {
    /// The user.
    sun: String,
    /// Seconds since 1970.
    #[serde(default)]
    iat: i64,
    /// Seconds since 1970.
    exp: i64,
}

/// A token that does not hold, or cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The cluster has none.
    #[error("AuthAltTypes does not name auth/jwt")]
    Off,
    /// The key.
    #[error("{}: {cause}", path.display())]
    Key {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        cause: io::Error,
    },
    /// The key is no secret.
    #[error("{}: {what}", path.display())]
    BadKey {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The token.
    #[error("the token: {0}")]
    Token(#[from] jsonwebtoken::errors::Error),
    /// No user of this host is called so.
    #[error("the token's user {0} is not known")]
    User(String),
}

/// The key of the cluster's tokens. It is read each time: a site that changes it shuts out old tokens at once.
fn cluster_key(config: &Config) -> Result<Vec<u8>, TokenError> {
    if !config.auth.jwt {
        return Err(TokenError::Off);
    }
    read_key(&config.auth.key(&config.state_save_location))
}

/// Reads a key: a regular file of root or of this process's user that nobody else can reach.
fn read_key(path: &Path) -> Result<Vec<u8>, TokenError> {
    let failed = |cause| TokenError::Key { path: path.to_owned(), cause };
    let bad = |what: String| Err(TokenError::BadKey { path: path.to_owned(), what });
    // A FIFO must not make it wait.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let mut file = opened.map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return bad("it is not a regular file".to_owned());
    }
    let own = users::effective_uid();
    if found.uid() != 0 && found.uid() != own {
        return bad(format!("it belongs to uid {}: chown it to uid {own}", found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        return bad(format!(
            "its mode is {:o}: others than its owner can reach it, chmod 600 it",
            found.mode() & 0o777
        ));
    }
    let mut key = Vec::new();
    file.read_to_end(&mut key).map_err(failed)?;
    match key.len() < SHORTEST_KEY {
        true => bad(format!("it has {} bytes, and {SHORTEST_KEY} are needed", key.len())),
        false => Ok(key),
    }
}

fn claims(token: &str, key: &[u8]) -> jsonwebtoken::errors::Result<Claims> {
    let mut validation = Validation::new(Algorithm::HS256);
    validation.leeway = 0;
    jsonwebtoken::decode(token, &DecodingKey::from_secret(key), &validation).map(|token| token.claims)
}

/// A token for a user that holds for so long.
pub fn make(config: &Config, user: String, lifespan: Duration) -> Result<String, TokenError> {
    let iat = Timestamp::now().secs();
    let exp = iat.saturating_add(i64::try_from(lifespan.as_secs()).unwrap_or(i64::MAX));
    let key = EncodingKey::from_secret(&cluster_key(config)?);
    Ok(jsonwebtoken::encode(&Header::new(Algorithm::HS256), &Claims { sun: user, iat, exp }, &key)?)
}

/// Takes the token off a request: from here on it is one of the token's user. One whose token does not hold keeps none of it, and is
/// refused by whoever serves it; so is one for another token.
pub async fn take_off(caller: &mut Caller, request: &mut CommandRequest, config: &Config, names: &Names) {
    let CommandRequest::WithToken { token, request: inner } = request else { return };
    let (token, inner) = (std::mem::take(token), std::mem::replace(&mut **inner, CommandRequest::Ping));
    let makes_token = matches!(inner, CommandRequest::MakeUserToken { .. });
    match owner(&token, config, names).await {
        Ok(_) if makes_token => *request = CommandRequest::WithToken { token: String::new(), request: Box::new(inner) },
        Ok((uid, gid)) => {
            tracing::debug!(by = caller.uid, uid, pid = caller.pid, "token.holds");
            (caller.uid, caller.gid) = (uid, gid);
            *request = inner;
        }
        Err(error) => {
            static REFUSED: Sparing = Sparing::new();
            if let Some(left_out) = REFUSED.due(Instant::now()) {
                tracing::warn!(uid = caller.uid, pid = caller.pid, host = caller.host, %error, left_out, "token.refused");
            }
        }
    }
}

/// The user of a token: uid and primary group.
async fn owner(token: &str, config: &Config, names: &Names) -> Result<(u32, u32), TokenError> {
    let Claims { sun, .. } = claims(token, &cluster_key(config)?)?;
    names.prepare(&[Question::UserCalled(sun.clone())]).await;
    let Some(uid) = names.uid_called(&sun) else { return Err(TokenError::User(sun)) };
    names.prepare(&[Question::User(uid)]).await;
    // By name only: digits are no name.
    let user = names.user(uid).filter(|user| user.name == sun);
    user.map(|user| (uid, user.gid)).ok_or(TokenError::User(sun))
}

/// The token: in `X-SLURM-USER-TOKEN`, or in `Authorization: Bearer`.
fn token(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = || text(header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    text("x-slurm-user-token").or_else(bearer).map(str::trim)
}

/// The user whom a token names. `X-SLURM-USER-NAME` must be the same where it is given.
pub fn user_of(headers: &HeaderMap, key: Option<&Path>) -> Result<String, Refused> {
    let (Some(token), Some(file)) = (token(headers), key) else { return Err(Refused::NoCredential) };
    let key = read_key(file).map_err(|error| {
        tracing::error!(%error, "the key of tokens");
        Refused::NoCredential
    })?;
    let user = claims(token, &key).map(|claims| claims.sun).map_err(|error| match error.kind() {
        ErrorKind::ExpiredSignature => Refused::Expired,
        _ => Refused::NoCredential,
    })?;
    let said = headers.get("x-slurm-user-name").map(|name| name.as_bytes());
    if said.is_some_and(|said| said != user.as_bytes()) { Err(Refused::NoCredential) } else { Ok(user) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_kernel::scratch::Scratch;
    use garrick_model::time::Timestamp;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt as _;

    fn signed(user: &str, secs: i64, key: &[u8]) -> String {
        let claims = json!({ "sun": user, "exp": Timestamp::now().secs() + secs });
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(key)).unwrap()
    }

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn write_key(file: &Path, key: &[u8], mode: u32) {
        std::fs::write(file, key).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_key_is_a_file_of_this_user_that_no_other_can_reach() {
        let folder = Scratch::new("token-keys");
        let file = folder.path().join("jwt.key");
        let why = |file: &Path| read_key(file).unwrap_err().to_string();
        write_key(&file, b"a secret of the site", 0o600);
        assert_eq!(read_key(&file).unwrap(), b"a secret of the site");
        for mode in [0o640, 0o604, 0o620] {
            write_key(&file, b"a secret of the site", mode);
            assert!(why(&file).contains(&format!("its mode is {mode:o}")), "{}", why(&file));
        }
        write_key(&file, b"a short one", 0o600);
        assert!(why(&file).contains("it has 11 bytes"), "{}", why(&file));
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(why(&fifo).contains("not a regular file"), "{}", why(&fifo));
        assert!(matches!(read_key(&folder.path().join("none")), Err(TokenError::Key { .. })));
    }

    #[test]
    fn a_token_names_its_user_while_it_holds() {
        let folder = Scratch::new("tokens");
        let file = folder.path().join("jwt.key");
        write_key(&file, b"a secret of the site", 0o600);
        let user = |headers: &HeaderMap| user_of(headers, Some(&file));
        let good = signed("alice", 60, b"a secret of the site");
        let bearer = format!("Bearer {good}");
        assert_eq!(user(&headers(&[("authorization", &bearer)])), Ok("alice".to_owned()));
        let named = |name| headers(&[("x-slurm-user-name", name), ("x-slurm-user-token", &good)]);
        assert_eq!(user(&named("alice")), Ok("alice".to_owned()));
        assert_eq!(user(&named("root")), Err(Refused::NoCredential));
        let old = format!("Bearer {}", signed("alice", -5, b"a secret of the site"));
        assert_eq!(user(&headers(&[("authorization", &old)])), Err(Refused::Expired));
        let forged = format!("Bearer {}", signed("root", 60, b"another secret"));
        assert_eq!(user(&headers(&[("authorization", &forged)])), Err(Refused::NoCredential));
        // {"alg":"none"} . {"sun":"root","exp":9999999999}
        let unsigned = "Bearer eyJhbGciOiJub25lIn0.eyJzdW4iOiJyb290IiwiZXhwIjo5OTk5OTk5OTk5fQ.";
        assert_eq!(user(&headers(&[("authorization", unsigned)])), Err(Refused::NoCredential));
        assert_eq!(user(&headers(&[("authorization", "Basic YWxpY2U6eA==")])), Err(Refused::NoCredential));
        assert_eq!(user_of(&headers(&[("authorization", &bearer)]), None), Err(Refused::NoCredential));
    }
}
