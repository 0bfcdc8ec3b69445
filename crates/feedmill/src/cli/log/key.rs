//! The key that a replica writes with.
//!
//! In:    where blocks are written: the file of a replica, or a server.
//! Out:   an author of its own for each, the same at every call.
//! Never: one key for two replicas, unless somebody copies it.
//!
//! Two replicas that write under one actor while they are offline use the same
//! sequences, and one of them loses. So an actor is a key that is made at first use:
//! beside the file of a replica, or, for a server, in the user's own folder.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use blocklog::block::Hash;
use blocklog::signature::Author;

use super::Trouble;

/// The environment variable that holds the key blocks are signed with.
pub(super) const KEY: &str = "FEEDMILL_LOG_KEY";

/// Where blocks are written.
pub(super) enum Keeper<'a> {
    /// Into the file of a replica.
    File(&'a Path),
    /// To a server, which may be a replica.
    Server(&'a str),
}

impl Keeper<'_> {
    /// The file that holds its key.
    fn path(&self) -> Result<PathBuf, Trouble> {
        match self {
            Self::File(file) => {
                let mut path = file.as_os_str().to_owned();
                path.push(".key");
                Ok(path.into())
            }
            Self::Server(server) => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
                let letter = |byte| if plain(byte) { char::from(byte) } else { '_' };
                let name: String = server.bytes().map(letter).collect();
                Ok(folder().ok_or(Trouble::NoFolder)?.join(name + ".key"))
            }
        }
    }
}

/// The user's folder for what programs remember.
fn folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = set("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(set("HOME")?).join(".local/state")));
    Some(state?.join("feedmill/log"))
}

/// Who writes: the actor that was named, the key of the environment, or the keeper's own.
pub(super) fn author(actor: Option<String>, keeper: &Keeper<'_>) -> Result<Author, Trouble> {
    if let Some(actor) = actor {
        return Ok(Author::named(actor));
    }
    if let Ok(digits) = std::env::var(KEY) {
        return parse(&digits).ok_or(Trouble::Key);
    }
    let path = keeper.path()?;
    let failed = |source| Trouble::KeyFile(path.clone(), source);
    match std::fs::read_to_string(&path) {
        Ok(digits) => parse(&digits).ok_or_else(|| Trouble::KeyDamaged(path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            make(&path).map_err(failed)?;
            // Whoever else made one meanwhile was first.
            let digits = std::fs::read_to_string(&path).map_err(failed)?;
            parse(&digits).ok_or_else(|| Trouble::KeyDamaged(path.clone()))
        }
        Err(error) => Err(failed(error)),
    }
}

fn parse(digits: &str) -> Option<Author> {
    let secret = Hash::from_hex(digits.trim())?;
    Some(Author::keyed(secret.bytes()))
}

/// Make a key, whole and durable, unless there is one.
fn make(path: &Path) -> std::io::Result<()> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = path.parent().unwrap_or(Path::new("."));
    if !folder.as_os_str().is_empty() {
        std::fs::create_dir_all(folder)?;
    }
    let unfinished = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(digits.as_bytes())?;
    file.sync_all()?;
    let made = std::fs::hard_link(&unfinished, path);
    std::fs::remove_file(&unfinished)?;
    match made {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}
