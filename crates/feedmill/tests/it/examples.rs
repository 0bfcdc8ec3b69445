//! Every example is a configuration that is good as it stands.

use std::path::Path;
use std::process::Command;

#[test]
fn every_example_passes_check_config() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
                .arg("check-config")
                .arg(&path)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {said}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 0, "there are examples");
}

#[test]
fn init_writes_a_file_that_passes_and_never_over_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.toml");
    let run = |verb: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
            .arg(verb)
            .arg(&file)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert!(run("init").0);
    assert_eq!(run("check-config"), (true, String::new()));
    let (again, said) = run("init");
    assert!(!again && said.contains("cannot create"), "{said}");
}

#[test]
fn a_wrong_file_is_refused_with_key_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    std::fs::write(
        &file,
        "namespace = \"com.example\"\n[intake]\npending_max = 0\n",
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
        .arg("check-config")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("line 3: intake.pending_max: must be at least 1"),
        "{said}"
    );
}

/// The topology of seed 003: ten queues, and every collection in one of them.
#[test]
fn the_layers_example_carries_the_ten_queues_with_their_priorities() {
    use feedmill::config::queue::Priority;
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/layers.toml");
    let config = feedmill::config::Config::load(&path).unwrap();
    let of = |wanted: Priority| {
        let all = config.queues.iter();
        let names = all.filter(|(_, queue)| queue.priority == wanted);
        names.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(
        of(Priority::High),
        [
            "layers:annotation",
            "layers:expression",
            "layers:segmentation"
        ]
    );
    assert_eq!(of(Priority::Medium).len(), 6);
    assert_eq!(of(Priority::Low), ["layers:integration"]);
    assert_eq!(config.collections.len(), 26);
    for collection in config.collections.values() {
        assert!(config.queues.contains_key(&collection.queue));
    }
}
