//! Tokens of users: `AuthAltTypes` and `AuthAltParameters` of slurm.conf(5).

use crate::config::syntax::{
    report::SettingError,
    values::{self, Value},
};
use std::path::{Path, PathBuf};

/// The key where `jwt_key` names no other, in StateSaveLocation.
const KEY: &str = "jwt_hs256.key";

/// Who may show tokens in place of being a user of the host, and who gets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSettings {
    /// `AuthAltTypes=auth/jwt`: commands may show tokens (JSON Web Tokens, HS256).
    pub jwt: bool,
    /// `jwt_key=FILE`.
    jwt_key: Option<PathBuf>,
    /// `disable_token_creation`: only administrators make tokens.
    pub only_admins_make_tokens: bool,
    /// `max_token_lifespan=SECONDS`: of tokens of ordinary users.
    pub max_lifespan_secs: Option<u32>,
}

impl AuthSettings {
    /// The key that tokens are signed with. `state`: `StateSaveLocation`.
    pub fn key(&self, state: &Path) -> PathBuf {
        self.jwt_key.clone().unwrap_or_else(|| state.join(KEY))
    }

    /// Takes `AuthAltTypes`.
    pub(super) fn set_types(&mut self, text: &str) -> Value<Option<SettingError>> {
        let words = values::list(text);
        let is_jwt = |word: &String| word.eq_ignore_ascii_case("auth/jwt") || word.eq_ignore_ascii_case("jwt");
        self.jwt = words.iter().any(is_jwt);
        let other = words.into_iter().find(|word| !is_jwt(word) && !word.eq_ignore_ascii_case("(null)"));
        let note = |word| SettingError::new(format!("{word} is not supported yet")).suggest("there is auth/jwt");
        Ok(other.map(note))
    }

    /// Takes `AuthAltParameters`.
    pub(super) fn set_parameters(&mut self, text: &str) -> Value<Option<SettingError>> {
        *self = Self { jwt: self.jwt, ..Self::default() };
        let mut note = None;
        for word in values::list(text) {
            let (name, value) = word.split_once('=').unwrap_or((&word, ""));
            match name.to_ascii_lowercase().as_str() {
                "jwt_key" if value.starts_with('/') => self.jwt_key = Some(value.into()),
                "jwt_key" => return Err(SettingError::new(format!("jwt_key={value} is no absolute path"))),
                "disable_token_creation" => self.only_admins_make_tokens = true,
                "max_token_lifespan" => self.max_lifespan_secs = Some(values::number(value, 1, u32::MAX)?),
                "(null)" => {}
                _ => {
                    let without = SettingError::new(format!("{word} is not supported yet"));
                    note = Some(without.suggest("jwt_key, disable_token_creation and max_token_lifespan are"));
                }
            }
        }
        Ok(note)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tokens_are_as_the_site_says() {
        let state = Path::new("/state");
        let mut settings = AuthSettings::default();
        assert_eq!(settings.set_types("auth/jwt"), Ok(None));
        assert!(settings.jwt && settings.key(state) == Path::new("/state/jwt_hs256.key"));
        let all = "jwt_key=/etc/jwt.key,disable_token_creation,max_token_lifespan=600";
        assert_eq!(settings.set_parameters(all), Ok(None));
        assert!(settings.only_admins_make_tokens && settings.key(state) == Path::new("/etc/jwt.key"));
        assert_eq!(settings.max_lifespan_secs, Some(600));
        assert!(settings.set_parameters("jwt_key=relative").is_err());
        assert!(settings.set_parameters("jwks=/etc/keys").unwrap().is_some());
        assert!(settings.set_types("auth/other").unwrap().is_some() && !settings.jwt);
    }
}
