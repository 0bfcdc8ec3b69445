"""Writes the vectors in this folder that need arithmetic.

In:    nothing; every input is in this file.
Out:   data-model.json, tree.json, proofs.json, keys.json, commits.json.
Never: code of the crate, or a library: what is computed here follows the
       specifications of DAG-CBOR, CIDs, the Merkle search tree, did:key,
       ECDSA (SEC 1) and RFC 6979, so the crate is compared with a second reading.

Run `python3 crates/record/tests/vectors/make.py`; git shows what changed.
The other JSON files of this folder are written by hand.
"""

import base64
import hashlib
import hmac
import json
import pathlib

FOLDER = pathlib.Path(__file__).parent


def sha256(data):
    return hashlib.sha256(data).digest()


# DAG-CBOR and CIDs.


class Link(bytes):
    """The 36 bytes of a CID."""

    def __str__(self):
        return "b" + base64.b32encode(self).decode().lower().rstrip("=")


def cid(codec, data):
    return Link(bytes([1, codec, 0x12, 0x20]) + sha256(data))


def cid_of_cbor(data):
    return cid(0x71, data)


def cid_of_raw(data):
    return cid(0x55, data)


def head(major, number):
    for low, size in [(24, 1), (25, 2), (26, 4), (27, 8)]:
        if number < 24:
            return bytes([major << 5 | number])
        if number < 1 << (8 * size):
            return bytes([major << 5 | low]) + number.to_bytes(size, "big")
    raise ValueError(number)


def cbor(value):
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value]
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, Link):
        return b"\xd8\x2a" + cbor(b"\0" + bytes(value))
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
    return head(5, len(keys)) + b"".join(cbor(key) + cbor(value[key]) for key in keys)


def as_json(value):
    if isinstance(value, Link):
        return {"$link": str(value)}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode().rstrip("=")}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return value


def data_model():
    edges = [0, 1, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**53, 2**63 - 1]
    blob = {"$type": "blob", "ref": cid_of_raw(b"a leaf, pressed"), "mimeType": "image/webp", "size": 4096}
    values = [
        ("an empty object", {}),
        ("null and booleans", {"nothing": None, "yes": True, "no": False}),
        ("integers at every change of width", {f"n{at}": edge for at, edge in enumerate(edges)}),
        ("negative integers at every change of width", {f"n{at}": -1 - edge for at, edge in enumerate(edges)}),
        ("texts at every change of width", {f"t{size}": "x" * size for size in [0, 1, 23, 24, 255, 256]}),
        ("text outside ASCII is counted in bytes", {"text": "Äpfel 🍎 りんご", "twelve": "é" * 12, "Ünïcode": "key"}),
        ("text that JSON escapes", {"text": "quote \" backslash \\ newline \n tab \t bell \u0007"}),
        ("bytes, also none", {"none": b"", "one": b"\xff", "many": bytes(range(256))}),
        ("links to a block and to a blob", {"block": cid_of_cbor(cbor({})), "blob": cid_of_raw(b"")}),
        ("a blob", {"image": blob}),
        ("lists in lists", {"rows": [[], [1], [1, [2, [3, [None]]]]]}),
        ("a list of more than 23 items", {"items": list(range(24))}),
        ("shorter keys come first, then bytewise", {"b": 1, "a": 2, "aa": 3, "B": 4, "é": 5, "z": 6, "ab": 7, "": 8}),
        ("objects in objects", {"a": {"b": {"c": {"d": {}}}}}),
        ("a record", {"$type": "com.example.garden.plant", "name": "Quince", "heightMm": 4200, "photo": blob}),
    ]
    return [
        {"name": name, "json": as_json(value), "cbor": cbor(value).hex(), "cid": str(cid_of_cbor(cbor(value)))}
        for name, value in values
    ]


# The Merkle search tree, by its definition: the whole tree is computed anew.


def height(key):
    bits = bin(int.from_bytes(sha256(key.encode()), "big"))[2:].zfill(256)
    return (len(bits) - len(bits.lstrip("0"))) // 2


def path(letter, wanted):
    """The first path under a letter whose key has the wanted height."""
    number = 0
    while True:
        text = f"com.example.garden.plant/{letter}-{number}"
        if height(text) == wanted:
            return text
        number += 1


def node(layer, records, low, high, nodes):
    """The CID of the node at a layer over sorted records; its block and the keys around it go to nodes."""
    own = [at for at, (key, _) in enumerate(records) if height(key) == layer]
    entries, last = [], ""
    below = records[: own[0]] if own else records
    left = child(layer, below, low, records[own[0]][0] if own else high, nodes)
    for at, after in zip(own, own[1:] + [len(records)]):
        key, value = records[at]
        end = records[after][0] if after < len(records) else high
        shared = prefix(last.encode(), key.encode())
        entry = {"p": shared, "k": key.encode()[shared:], "v": value}
        entry["t"] = child(layer, records[at + 1 : after], key, end, nodes)
        entries.append(entry)
        last = key
    block = cbor({"e": entries, "l": left})
    nodes.append((cid_of_cbor(block), low, high))
    return cid_of_cbor(block)


def child(layer, records, low, high, nodes):
    return node(layer - 1, records, low, high, nodes) if records else None


def prefix(a, b):
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


def tree(records):
    """The root and all nodes of a tree, each with the keys of its parents around it."""
    nodes = []
    layer = max(map(height, records), default=0)
    return node(layer, sorted(records.items()), None, None, nodes), nodes


def touches(low, high, key):
    return (low is None or low <= key) and (high is None or key <= high)


def proof(name, records, *changes):
    """changes: (path, new record or None)."""
    after = {key: value for key, value in records.items()}
    operations = []
    for key, value in changes:
        operations.append({"path": key, "cid": value and str(value), "prev": str(records[key]) if key in records else None})
        if value is None:
            del after[key]
        else:
            after[key] = value
    root, nodes = tree(after)
    carried = {str(cid) for cid, low, high in nodes if any(touches(low, high, key) for key, _ in changes)}
    return {
        "name": name,
        "records": {key: str(value) for key, value in sorted(records.items())},
        "operations": operations,
        "rootBefore": str(tree(records)[0]),
        "rootAfter": str(root),
        "proof": sorted(carried | {str(root)}),
    }


def proofs():
    old, new = cid_of_cbor(cbor({"version": 1})), cid_of_cbor(cbor({"version": 2}))

    def repo(*keys):
        return {path(*key): old for key in keys}

    flat = [("a", 0), ("c", 0), ("e", 0)]
    deep = [("a", 0), ("c", 1), ("e", 0), ("f", 0), ("h", 1), ("k", 0), ("m", 3), ("p", 0)]
    return [
        proof("the first record of a repo", {}, (path("a", 0), new)),
        proof("the first record of a repo, high up", {}, (path("a", 4), new)),
        proof("a record between two of one node", repo(*flat), (path("b", 0), new)),
        proof("a record before and one after all others", repo(*deep), (path("A", 0), new), (path("z", 0), new)),
        proof("an update", repo(*deep), (path("f", 0), new)),
        proof("an update of the highest key", repo(*deep), (path("m", 3), new)),
        proof("a create that cuts two layers", repo(*deep), (path("g", 2), new)),
        proof("a create above the root, with a layer without keys between", repo(*deep), (path("g", 5), new)),
        proof("a create whose neighbour is two layers below", repo(("a", 0), ("d", 2)), (path("b", 2), new)),
        proof("a delete that joins two layers", repo(*deep, ("g", 2)), (path("g", 2), None)),
        proof("the delete of the highest key lowers the root by two layers", repo(*deep), (path("m", 3), None)),
        proof("the delete of the only record", repo(("a", 3)), (path("a", 3), None)),
        proof(
            "create, update and delete in one commit",
            repo(*deep),
            (path("b", 2), new),
            (path("e", 0), new),
            (path("h", 1), None),
            (path("m", 3), None),
        ),
    ]


def heights():
    return {
        "heights": [{"key": path("x", wanted), "height": wanted} for wanted in range(8)]
        + [{"key": key, "height": height(key)} for key in ["garden", "Garden", "gärten", "a/b", "a/B"]],
        "emptyRoot": str(tree({})[0]),
    }


# Keys and signatures.

CURVES = {
    "k256": {
        "p": 2**256 - 2**32 - 977,
        "a": 0,
        "n": 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
        "g": (
            0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
            0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
        ),
        "codec": b"\xe7\x01",
        "legacy": "EcdsaSecp256k1VerificationKey2019",
    },
    "p256": {
        "p": 2**256 - 2**224 + 2**192 + 2**96 - 1,
        "a": -3,
        "n": 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
        "g": (
            0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
            0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
        ),
        "codec": b"\x80\x24",
        "legacy": "EcdsaSecp256r1VerificationKey2019",
    },
}


def add(curve, left, right):
    if left is None or right is None:
        return left or right
    (x1, y1), (x2, y2), p = left, right, curve["p"]
    if x1 == x2 and (y1 + y2) % p == 0:
        return None
    if left == right:
        slope = (3 * x1 * x1 + curve["a"]) * pow(2 * y1, -1, p)
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, p)
    x = (slope * slope - x1 - x2) % p
    return x, (slope * (x1 - x) - y1) % p


def multiply(curve, scalar, point):
    total = None
    while scalar:
        if scalar & 1:
            total = add(curve, total, point)
        point = add(curve, point, point)
        scalar >>= 1
    return total


def base58(data):
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = alphabet[digit] + text
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + text


def nonces(curve, secret, digest):
    """RFC 6979, section 3.2, for SHA-256 and curves of 256 bits."""
    seed = secret.to_bytes(32, "big") + (int.from_bytes(digest, "big") % curve["n"]).to_bytes(32, "big")
    v, k = b"\x01" * 32, b"\x00" * 32
    for mark in [b"\x00", b"\x01"]:
        k = hmac.digest(k, v + mark + seed, "sha256")
        v = hmac.digest(k, v, "sha256")
    while True:
        v = hmac.digest(k, v, "sha256")
        if 0 < int.from_bytes(v, "big") < curve["n"]:
            yield int.from_bytes(v, "big")
        k = hmac.digest(k, v + b"\x00", "sha256")
        v = hmac.digest(k, v, "sha256")


def sign(curve, secret, message):
    digest, n = sha256(message), curve["n"]
    for nonce in nonces(curve, secret, digest):
        r = multiply(curve, nonce, curve["g"])[0] % n
        s = pow(nonce, -1, n) * (int.from_bytes(digest, "big") + r * secret) % n
        if r and s:
            return r, min(s, n - s)


def compact(r, s):
    return (r.to_bytes(32, "big") + s.to_bytes(32, "big")).hex()


def der(r, s):
    def integer(number):
        data = number.to_bytes(number.bit_length() // 8 + 1, "big")
        return bytes([2, len(data)]) + data

    body = integer(r) + integer(s)
    return (bytes([0x30, len(body)]) + body).hex()


def did_key(curve, secret):
    x, y = multiply(curve, secret, curve["g"])
    return "did:key:z" + base58(curve["codec"] + bytes([2 + y % 2]) + x.to_bytes(32, "big"))


def keys():
    cases = []
    for name, curve in CURVES.items():
        n = curve["n"]
        for secret in [1, 2, n - 1, int.from_bytes(sha256(b"garden gate"), "big") % n]:
            x, y = multiply(curve, secret, curve["g"])
            compressed = bytes([2 + y % 2]) + x.to_bytes(32, "big")
            uncompressed = b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")
            message = f"water the quince, secret {secret % 1000} on {name}".encode()
            r, s = sign(curve, secret, message)
            cases.append(
                {
                    "curve": name,
                    "secret": secret.to_bytes(32, "big").hex(),
                    "did": did_key(curve, secret),
                    "legacyType": curve["legacy"],
                    "compressed": "z" + base58(compressed),
                    "uncompressed": "z" + base58(uncompressed),
                    "message": message.decode(),
                    "signature": compact(r, s),
                    "refused": {
                        "high S": compact(r, n - s),
                        "DER": der(r, s),
                        "r and s swapped": compact(s, r),
                        "r is zero": compact(0, s),
                        "s is zero": compact(r, 0),
                        "r is the order": compact(n, s),
                        "s is the order": compact(r, n),
                        "a byte is missing": compact(r, s)[:-2],
                        "a byte follows": compact(r, s) + "00",
                        "of another message": compact(*sign(curve, secret, message + b".")),
                    },
                }
            )
    return cases


def commits():
    cases = []
    for name, curve in CURVES.items():
        secret = int.from_bytes(sha256(b"commit key"), "big") % curve["n"]
        fields = {
            "did": "did:plc:gardener234567gardener23",
            "rev": "3lbqy5qk2ss2k",
            "data": tree({path("a", 0): cid_of_cbor(cbor({}))})[0],
            "prev": None,
            "version": 3,
        }
        r, s = sign(curve, secret, cbor(fields))
        block = cbor(fields | {"sig": bytes.fromhex(compact(r, s))})
        cases.append(
            {
                "curve": name,
                "secret": secret.to_bytes(32, "big").hex(),
                "key": did_key(curve, secret),
                "did": fields["did"],
                "rev": fields["rev"],
                "data": str(fields["data"]),
                "block": block.hex(),
                "cid": str(cid_of_cbor(block)),
            }
        )
    return cases


for file, vectors in [
    ("data-model", data_model()),
    ("tree", heights()),
    ("proofs", proofs()),
    ("keys", keys()),
    ("commits", commits()),
]:
    text = json.dumps(vectors, indent=1, ensure_ascii=False)
    (FOLDER / f"{file}.json").write_text(text + "\n")
