//! What caches are allowed to keep of a stream.

use super::*;

impl Server {
    /// What caches are told about a piece of a stream.
    async fn cache_control(&self, path: &str, headers: &str) -> String {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let text = format!(
            "GET /v1/stream/{path}?offset=-1 HTTP/1.1\r\nhost: log\r\nconnection: close\r\n{headers}\r\n"
        );
        socket.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        let mut lines = answer.lines();
        let found = lines.find_map(|line| line.strip_prefix("cache-control: "));
        found.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

#[tokio::test]
async fn a_cached_piece_does_not_outlive_its_stream() {
    let server = serve(LogSettings::open()).await;
    assert_eq!(server.stream("PUT", "ever", "", "hi").await, 201);
    assert_eq!(
        server.cache_control("ever", "").await,
        "public, max-age=60, stale-while-revalidate=300"
    );
    let lives = |seconds: u64| format!("stream-ttl: {seconds}\r\n");
    for (seconds, expected) in [
        (1000, "public, max-age=60, stale-while-revalidate=300"),
        (101, "public, max-age=60, stale-while-revalidate=40"),
        (11, "public, max-age=10, stale-while-revalidate=0"),
    ] {
        let path = format!("ttl-{seconds}");
        let made = server.stream("PUT", &path, &lives(seconds), "hi").await;
        assert_eq!(made, 201);
        assert_eq!(server.cache_control(&path, "").await, expected);
    }
    // One that ends at a date ends there for caches too, whatever its start.
    let far = "stream-expires-at: 2999-01-01T00:00:00Z\r\n";
    assert_eq!(server.stream("PUT", "dated", far, "hi").await, 201);
    let told = server.cache_control("dated", "").await;
    assert_eq!(told, "public, max-age=60, stale-while-revalidate=300");
}

#[tokio::test]
async fn what_needs_a_token_is_not_kept_for_others() {
    let server = serve(LogSettings::default()).await;
    let all = "authorization: Bearer all\r\n";
    assert_eq!(server.stream("PUT", "a", all, "hi").await, 201);
    let told = server.cache_control("a", all).await;
    assert_eq!(told, "private, max-age=60, stale-while-revalidate=300");
}
