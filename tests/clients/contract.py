"""The Python SDK of the AT Protocol, against a running Feedmill.

    python contract.py <feedmill> <simulated host> <uri of the published feed>

What Feedmill serves is read through the SDK's own client and held against what
the simulated host lists through the same SDK. Prints one JSON line; ends with
an exception at the first thing that is not so.
"""

import json
import sys

from atproto import Client, models
from atproto_client.models.dot_dict import DotDict
from atproto.exceptions import AtProtocolError, BadRequestError

mill, pds, feed = sys.argv[1:4]
ours, theirs = Client(base_url=mill), Client(base_url=pds)
found = {"client": "atproto for Python", "posts": 0, "entries": 0, "errors": 0}


def ask(method, **params):
    return ours.invoke_query(method, params=DotDict(params)).content


def whole(method, **params):
    records, cursor = [], None
    while True:
        page = ask(method, **params, **({"cursor": cursor} if cursor else {}))
        records += page["records"]
        cursor = page.get("cursor")
        if not cursor:
            return records


def listed(did, collection):
    records, cursor = [], None
    while True:
        page = theirs.com.atproto.repo.list_records(
            {"repo": did, "collection": collection, "limit": 100, "cursor": cursor}
        )
        records += page.records
        cursor = page.cursor
        if not cursor:
            return records


dids = [repo.did for repo in theirs.com.atproto.sync.list_repos({"limit": 500}).repos]
posts = {did: listed(did, "app.bsky.feed.post") for did in dids}
every = {record.uri: record.cid for records in posts.values() for record in records}

# Lists, and records one by one.
served = whole("com.example.post.listRecords", limit=9)
assert {record["uri"]: record["cid"] for record in served} == every
assert len(served) == len(every)
for record in served[:10]:
    one = ask("com.example.post.getRecord", uri=record["uri"])
    # The SDK's own model of a post accepts it.
    models.get_or_create(one["value"], models.AppBskyFeedPost.Record)
    assert one == record
found["posts"] = len(served)

# Feeds: the posts of everybody who is followed.
for did in dids:
    followed = {record.value.subject for record in listed(did, "app.bsky.graph.follow")}
    expected = sorted(record.uri for other in followed for record in posts.get(other, []))
    entries = whole("com.example.getFeed", feed="timeline", actor=did, limit=50)
    assert sorted(record["uri"] for record in entries) == expected, did
    keys = [(record["time_us"], record["uri"]) for record in entries]
    assert keys == sorted(keys, reverse=True)
    found["entries"] += len(entries)

# Profiles.
for did in dids[:5]:
    (profile,) = ask("com.example.getProfile", actor=did)["profiles"]
    assert profile["did"] == did and profile["value"]["$type"] == "app.bsky.actor.profile"

# The feed generator, through the SDK's typed methods.
described = ours.app.bsky.feed.describe_feed_generator()
assert described.did == "did:web:feeds.example" and described.feeds[0].uri == feed
assert ours.app.bsky.feed.get_feed_skeleton({"feed": feed}).feed == []

# Errors are the SDK's own, with the name that we gave them.
for method, params, status, name in [
    ("com.example.getFeed", {"feed": "nope", "actor": dids[0]}, 400, "UnknownFeed"),
    ("com.example.getFeed", {"feed": "timeline", "actor": dids[0], "cursor": "x"}, 400, "BadCursor"),
    ("com.example.post.getRecord", {"uri": f"at://{dids[0]}/app.bsky.feed.post/never"}, 404, "RecordNotFound"),
    ("com.example.never", {}, 501, "MethodNotImplemented"),
]:
    try:
        ask(method, **params)
    except AtProtocolError as error:
        assert error.response.status_code == status, error
        assert error.response.content.error == name, error
        assert isinstance(error, BadRequestError) == (status == 400)
        found["errors"] += 1
    else:
        raise AssertionError(f"{method} was not refused")

print(json.dumps(found))
