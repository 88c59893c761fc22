//! Tokens of users: JSON Web Tokens signed with a key that the site has (HS256), as `scontrol token` of Slurm makes them. The user
//! is in `sun`, and `exp` says until when it holds.

use super::http::Refused;
use axum::http::{HeaderMap, header};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, errors::ErrorKind};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
struct Claims {
    sun: String,
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
    // Read each time: a site that changes it shuts out old tokens at once.
    let key = std::fs::read(file).map_err(|error| {
        tracing::error!(file = %file.display(), %error, "the key of tokens (SlurmctldHttpAuthParameters)");
        Refused::NoCredential
    })?;
    let mut validation = Validation::new(Algorithm::HS256);
    validation.leeway = 0;
    let told = jsonwebtoken::decode::<Claims>(token, &DecodingKey::from_secret(&key), &validation);
    let user = told.map(|token| token.claims.sun).map_err(|error| match error.kind() {
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
    use jsonwebtoken::{EncodingKey, Header};
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
