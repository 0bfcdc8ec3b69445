//! Whoever writes and whoever reads do not wait for each other.

use super::*;
use parking_lot::Mutex;

const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.post]
collection = "com.example.post"
validate = false
[feeds.timeline]
follow = "follow"
targets = ["post"]
[store]
url = "sqlite::memory:"
"#;

fn wish(reader: &str) -> Wish<'_> {
    Wish {
        feed: "timeline",
        target: None,
        reader,
        before: None,
        limit: 10,
        now_us: 1,
        is_incomplete: false,
    }
}

/// Whoever writes may be put to sleep by the machine, in the midst of a change that concerns
/// a page, and whoever reads in the midst of a page. Nobody waits for either to wake.
#[test]
fn neither_waits_for_the_other_to_wake() {
    let config = config::Config::parse(CONFIG).unwrap();
    let store = crate::store::open(&config).unwrap();
    let opened = Fanout::open(&config.timelines, 1, &store).unwrap();
    let (fanout, mut drawer) = opened.unwrap();
    let reader = "did:plc:reader";
    fanout.readers.insert(Digest::of(reader), 1);
    let wish = wish(reader);
    assert!(fanout.page(&wish).unwrap().is_some());
    drawer.timelines.begin(1);
    drawer.timelines.account(KeyId(7), true);
    let meanwhile = std::thread::scope(|scope| {
        let page = scope.spawn(|| (fanout.page(&wish), fanout.page_at_once(&wish)));
        page.join().unwrap()
    });
    assert!(meanwhile.0.unwrap().is_none());
    assert!(meanwhile.1.is_none());
    drawer.timelines.end();
    assert!(fanout.page(&wish).unwrap().is_some());
    // A page that takes its time: the drawer goes on, and the page is made again.
    let mut tries = 0;
    let drawer = Mutex::new(drawer);
    let follows = KeyList::default();
    let cold = Cold {
        follows: &follows,
        hidden: &KeyList::default(),
        as_of: 1,
    };
    let request = request(&wish, 0, 1, None).unwrap();
    let read = fanout.pages.read_cold(&request, &cold, |_, page| {
        tries += 1;
        if tries == 1 {
            let mut drawer = drawer.lock();
            drawer.timelines.begin(2);
            drawer.timelines.account(KeyId(7), false);
            drawer.timelines.end();
        }
        page
    });
    assert_eq!(read, Read::Page(Page::default()));
    assert_eq!((tries, fanout.position()), (2, 2));
}
