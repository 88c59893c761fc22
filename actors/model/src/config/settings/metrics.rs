//! Who may read the controller's metrics over HTTP: `MetricsType` and its relatives of slurm.conf(5), and the key of tokens.

use crate::config::syntax::{
    report::SettingError,
    values::{self, Value},
};
use std::path::PathBuf;

/// Metrics over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSettings {
    /// `MetricsType=metrics/openmetrics`: there are metrics.
    pub on: bool,
    /// `MetricsAuthUsers`: only these users read them, root and `SlurmUser`; they show tokens. Empty: everybody.
    pub users: Vec<String>,
    /// `MetricsParameters=ignore_private_data`: whatever `PrivateData` hides. Without it, `PrivateData` closes all metrics.
    pub ignore_private_data: bool,
    /// `SlurmctldHttpAuthParameters=jwt_key=FILE`: what signs tokens (JSON Web Tokens, HS256).
    pub jwt_key: Option<PathBuf>,
}

impl MetricsSettings {
    /// Takes `MetricsType`.
    pub(super) fn set_type(&mut self, text: &str) -> Value<Option<SettingError>> {
        self.on = match text.to_ascii_lowercase().as_str() {
            "" | "none" | "(null)" | "metrics/none" => false,
            "metrics/openmetrics" | "openmetrics" => true,
            _ => {
                return Err(
                    SettingError::new(format!("{text} is no kind of metrics")).suggest("there is metrics/openmetrics")
                );
            }
        };
        Ok(None)
    }

    /// Takes `MetricsAuthUsers`.
    pub(super) fn set_users(&mut self, text: &str) {
        self.users = values::list(text);
    }

    /// Takes `MetricsParameters`, with a note about words that are not known.
    pub(super) fn set_parameters(&mut self, text: &str) -> Option<SettingError> {
        let (known, unknown): (Vec<String>, Vec<String>) =
            values::list(text).into_iter().partition(|word| word.eq_ignore_ascii_case("ignore_private_data"));
        self.ignore_private_data = !known.is_empty();
        let note =
            || SettingError::new(format!("{} is not known", unknown.join(","))).suggest("there is ignore_private_data");
        (!unknown.is_empty()).then(note)
    }

    /// Takes `SlurmctldHttpAuthParameters`.
    pub(super) fn set_auth(&mut self, text: &str) -> Value<Option<SettingError>> {
        self.jwt_key = None;
        for word in values::list(text) {
            match word.split_once('=') {
                Some((name, file)) if name.eq_ignore_ascii_case("jwt_key") && file.starts_with('/') => {
                    self.jwt_key = Some(file.into());
                }
                Some((name, file)) if name.eq_ignore_ascii_case("jwt_key") => {
                    return Err(SettingError::new(format!("{file} is no absolute path")));
                }
                _ => {
                    let note = SettingError::new(format!("{word} is not supported yet"));
                    return Ok(Some(note.suggest("jwt_key=FILE is")));
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn metrics_are_on_for_whom_the_site_says() {
        let mut settings = MetricsSettings::default();
        assert_eq!(settings.set_type("metrics/openmetrics"), Ok(None));
        settings.set_users("alice, dave");
        assert_eq!(settings.set_parameters("ignore_private_data"), None);
        assert_eq!(settings.set_auth("jwt_key=/etc/slurm/jwt.key"), Ok(None));
        let expected = MetricsSettings {
            on: true,
            users: vec!["alice".to_owned(), "dave".to_owned()],
            ignore_private_data: true,
            jwt_key: Some("/etc/slurm/jwt.key".into()),
        };
        assert_eq!(settings, expected);
        assert!(settings.set_parameters("bogus").unwrap().to_string().contains("bogus is not known"));
        assert!(!settings.ignore_private_data);
        assert!(settings.set_type("metrics/nosuch").unwrap_err().to_string().contains("metrics/openmetrics"));
        assert!(settings.set_auth("jwt_key=jwt.key").unwrap_err().to_string().contains("absolute"));
        assert!(settings.set_auth("jwks=/x").unwrap().unwrap().to_string().contains("not supported yet"));
    }
}
