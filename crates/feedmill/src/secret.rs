//! Secrets: tokens that the environment gives, or files that it names.
//!
//! In:    `NAME`, or `NAME_FILE` with the path of a file that holds it.
//! Out:   the secret; an empty one is none.
//! Never: a secret in an error, a log or a configuration file.
//!
//! A running process cannot be given another environment, but a file can be written: only secrets
//! from files change at a reload.

use std::ffi::OsString;
use std::path::PathBuf;

/// The operator's token.
pub const ADMIN: &str = "FEEDMILL_ADMIN_TOKEN";
/// The token with which the app writes.
pub const APP: &str = "FEEDMILL_APP_TOKEN";
/// The key under which readers' tokens are made.
pub const SECRET: &str = "FEEDMILL_SECRET";
/// The token of who may notify.
pub const NOTIFY: &str = "FEEDMILL_NOTIFY_TOKEN";

/// Why a secret cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("{0} and {0}_FILE are both set; set one of them")]
    Twice(&'static str),
    #[error("{name}_FILE names {}, which cannot be read", path.display())]
    Unreadable {
        name: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// All of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    pub admin: Option<String>,
    pub app: Option<String>,
    pub secret: Option<String>,
    pub notify: Option<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

impl Secrets {
    /// Those of the environment, files read anew.
    pub fn read() -> Result<Self, SecretError> {
        Self::of(&|name| std::env::var_os(name))
    }

    /// Those of any environment.
    pub fn of(environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, SecretError> {
        let read = |name| one(name, environment);
        Ok(Self {
            admin: read(ADMIN)?,
            app: read(APP)?,
            secret: read(SECRET)?,
            notify: read(NOTIFY)?,
        })
    }
}

fn one(
    name: &'static str,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<String>, SecretError> {
    let filled = |text: &String| !text.is_empty();
    let text = environment(name).and_then(|text| text.into_string().ok());
    let text = text.filter(filled);
    let Some(path) = environment(&format!("{name}_FILE")).map(PathBuf::from) else {
        return Ok(text);
    };
    if text.is_some() {
        return Err(SecretError::Twice(name));
    }
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(filled)),
        Err(source) => Err(SecretError::Unreadable { name, path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_from_the_environment_or_from_a_file_and_not_from_both() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let with_file = |name: &str| match name {
            "FEEDMILL_ADMIN_TOKEN_FILE" => Some(file.clone().into_os_string()),
            "FEEDMILL_APP_TOKEN" => Some("app".into()),
            "FEEDMILL_SECRET" => Some("".into()),
            _ => None,
        };
        let missing = Secrets::of(&with_file).unwrap_err().to_string();
        assert!(missing.contains("FEEDMILL_ADMIN_TOKEN_FILE"), "{missing}");
        std::fs::write(&file, "one\n").unwrap();
        let secrets = Secrets::of(&with_file).unwrap();
        assert_eq!(secrets.admin.as_deref(), Some("one"));
        assert_eq!(secrets.app.as_deref(), Some("app"));
        assert_eq!((secrets.secret, secrets.notify), (None, None));
        let both = |name: &str| match name {
            "FEEDMILL_ADMIN_TOKEN" => Some("two".into()),
            name => with_file(name),
        };
        let refused = Secrets::of(&both);
        assert!(matches!(refused, Err(SecretError::Twice(ADMIN))));
    }
}
