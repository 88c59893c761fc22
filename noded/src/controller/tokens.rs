//! Tokens of users: JSON Web Tokens signed with a key that the site has (HS256), as `scontrol token` of Slurm makes them. The user
//! is in `sun`, `iat` says when it was made, and `exp` until when it holds. Whoever shows one acts as its user, and may do no more:
//! the metrics' readers do, and commands with `SLURM_JWT`.

use super::{
    http::Refused,
    names::{Names, Question},
};
use axum::http::{HeaderMap, header};
use garrick_actors::submission::users::UserDirectory as _;
use garrick_model::{
    config::Config,
    messages::command::{Caller, CommandRequest},
    time::Timestamp,
};
use garrick_transport::Sparing;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, errors::ErrorKind};
use serde::{Deserialize, Serialize};
use std::{
    io,
    os::unix::fs::MetadataExt as _,
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
    let path = config.auth.key(&config.state_save_location);
    let failed = |cause| TokenError::Key { path: path.clone(), cause };
    let bad = |what: String| Err(TokenError::BadKey { path: path.clone(), what });
    let mode = std::fs::metadata(&path).map_err(failed)?.mode();
    if mode & 0o077 != 0 {
        return bad(format!("its mode is {:o}: others than its owner can reach it, chmod 600 it", mode & 0o777));
    }
    let key = std::fs::read(&path).map_err(failed)?;
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
    let key = std::fs::read(file).map_err(|error| {
        tracing::error!(file = %file.display(), %error, "the key of tokens");
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

    fn signed(user: &str, secs: i64, key: &[u8]) -> String {
        let claims = json!({ "sun": user, "exp": Timestamp::now().secs() + secs });
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(key)).unwrap()
    }

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_names_its_user_while_it_holds() {
        let folder = Scratch::new("tokens");
        let file = folder.path().join("jwt.key");
        std::fs::write(&file, b"a secret of the site").unwrap();
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
