//! Processor time and memory, from the kernel's own counts.

use rustix::time::{ClockId, clock_gettime};

use super::Ending;

/// Seconds of processor time this thread has used.
pub(super) fn cpu_s() -> f64 {
    read(ClockId::ThreadCPUTime)
}

/// Seconds of processor time this process has used, all its threads together.
pub(super) fn process_s() -> f64 {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds of processor time that the threads of another process have used.
pub(super) fn cpu_of(pid: u32) -> Result<f64, Ending> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let spent_ns = |thread: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    let spent_ns: u64 = threads
        .into_iter()
        .flatten()
        .filter_map(|thread| spent_ns(thread.ok()?))
        .sum();
    // Nobody has started without any: it would pass for a server that costs nothing.
    match spent_ns {
        0 => Err(format!("the kernel does not tell /proc/{pid}/task/*/schedstat").into()),
        spent_ns => Ok(spent_ns as f64 / 1e9),
    }
}

/// Resident memory of this process in bytes.
pub(super) fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// Memory of the machine that nobody needs, in bytes.
pub(super) fn available() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .and_then(|text| text.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}

/// CPU-seconds of one call of `work`, the best of `rounds`.
pub(super) fn best_of(rounds: usize, mut work: impl FnMut()) -> f64 {
    (0..rounds)
        .map(|_| {
            let before = cpu_s();
            work();
            cpu_s() - before
        })
        .fold(f64::MAX, f64::min)
}

/// The middle of some figures, so that one disturbed moment does not count.
pub(super) fn middle(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}
