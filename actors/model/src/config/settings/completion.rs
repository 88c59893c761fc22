//! Job completion: `JobCompType`, `JobCompLoc` and `JobCompParams` of slurm.conf(5).

use crate::config::syntax::{
    report::SettingError,
    values::{self, Value},
};

/// Where runs of jobs that are over are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionType {
    /// `jobcomp/none`: nowhere.
    #[default]
    None,
    /// `jobcomp/filetxt`: a line of a text file each.
    FileText,
    /// `jobcomp/script`: a program is run for each.
    Script,
    /// `jobcomp/elasticsearch`: a JSON document each, posted over HTTP.
    Elasticsearch,
}

/// Where a text file is if `JobCompLoc` does not say it (slurm.conf(5)).
const DEFAULT_FILE: &str = "/var/log/slurm_jobcomp.log";

/// What is recorded where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletionSettings {
    /// `JobCompType`.
    pub kind: CompletionType,
    /// `JobCompLoc`: path of the file or program, or URL of the server. Set for every type but [`CompletionType::None`].
    pub location: Option<String>,
    /// `JobCompParams=send_comment`.
    pub send_comment: bool,
    /// `JobCompParams=send_script`.
    pub send_script: bool,
}

impl CompletionSettings {
    /// Takes `JobCompType`; a type that is not supported records nothing.
    pub(super) fn set_type(&mut self, text: &str) -> Option<SettingError> {
        let lower = text.to_ascii_lowercase();
        self.kind = match lower.strip_prefix("jobcomp/").unwrap_or(&lower) {
            "none" | "(null)" => CompletionType::None,
            "filetxt" => CompletionType::FileText,
            "script" => CompletionType::Script,
            "elasticsearch" => CompletionType::Elasticsearch,
            _ => {
                self.kind = CompletionType::None;
                let without = SettingError::new(format!("{text} is not supported yet"));
                return Some(without.suggest("nothing is recorded; filetxt, script and elasticsearch are there"));
            }
        };
        None
    }

    /// Takes `JobCompParams`. Returns a note about words that have no effect.
    pub(super) fn set_parameters(&mut self, text: &str) -> Option<SettingError> {
        let mut unknown = Vec::new();
        for word in values::list_or_none(text) {
            match word.to_ascii_lowercase().as_str() {
                "send_comment" => self.send_comment = true,
                "send_script" => self.send_script = true,
                _ => unknown.push(word),
            }
        }
        let without = || SettingError::new(format!("{} is not supported yet", unknown.join(",")));
        (!unknown.is_empty()).then(|| without().suggest("send_comment and send_script are there"))
    }

    /// Checks that the location fits the type, and sets the default one.
    pub(in crate::config) fn settle(&mut self) -> Value<()> {
        if self.kind == CompletionType::FileText {
            self.location.get_or_insert_with(|| DEFAULT_FILE.to_owned());
        }
        let location = self.location.as_deref().unwrap_or_default();
        let instead = match self.kind {
            CompletionType::FileText | CompletionType::Script if !location.starts_with('/') => "an absolute path",
            CompletionType::Elasticsearch if location.is_empty() => "HOST:PORT/INDEX/_doc",
            _ => return Ok(()),
        };
        Err(SettingError::new("does not fit JobCompType").suggest(instead))
    }
}
