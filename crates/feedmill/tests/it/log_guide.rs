//! The guide to the log: what it says to type works, in its order.

use std::path::Path;
use std::process::Command;

use super::peers::Demo;

/// The commands of the guide, without those that run until they are interrupted.
fn commands(guide: &str) -> String {
    let blocks = guide.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("```").next());
    let lines = blocks.flat_map(str::lines);
    let mut wanted = String::new();
    for line in lines.filter(|line| line.starts_with("feedmill log ")) {
        if line.starts_with("feedmill log tail ") {
            continue;
        }
        let line = line.split('#').next().unwrap_or(line).trim();
        // In the guide it keeps running; here it is waited for.
        let waited = line.strip_suffix(" &").map(|line| format!("{line} --once"));
        wanted.push_str(&waited.unwrap_or_else(|| line.to_owned()));
        wanted.push('\n');
    }
    wanted
}

#[test]
fn the_commands_of_the_guide_do_what_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let example = folder.path().join("log-only.toml");
    std::fs::copy(root.join("examples/log-only.toml"), &example).unwrap();
    let environment = [("FEEDMILL_LOG_TOKEN", "secret"), ("PORT", "0")];
    let arguments = ["serve", example.to_str().unwrap()];
    let server = Demo::start_in(&environment, &arguments, "serving on ");
    let url = server.word("serving on ").trim_end_matches('/').to_owned();
    let guide = std::fs::read_to_string(root.join("docs/log.md")).unwrap();
    let commands = commands(&guide);
    assert!(commands.lines().count() > 10, "{commands}");
    // The guide's server has the address that commands take for granted; this one has another.
    let script = format!(
        "set -e\nfeedmill() {{\n  verb=$2; shift 2\n  case \"$verb $*\" in\n    conflicts*|verify*|*--file*) ;;\n    \
         *) set -- --server {url} \"$@\" ;;\n  esac\n  {} log \"$verb\" \"$@\"\n}}\n{commands}",
        env!("CARGO_BIN_EXE_feedmill")
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder.path())
        .env("FEEDMILL_LOG_TOKEN", "secret")
        .env("XDG_STATE_HOME", folder.path())
        .env_remove("FEEDMILL_LOG_KEY")
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{complained}\n{said}\n{script}");
    assert!(said.contains("hello"), "{said}");
}
