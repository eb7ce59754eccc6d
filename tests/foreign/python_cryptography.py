"""python_cryptography.py DIR: certificates checked with python3-cryptography and hashlib.

DIR/cases/*/{envelope.json,proof.tlog}, DIR/trust.txt; prints "<case> ok" or "<case> bad".
"""

import base64
import hashlib
import json
import pathlib
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def read_trust(path):
    for line in path.read_text().splitlines():
        words = line.split()
        if words[0] == "record":
            spki = bytes.fromhex(words[1])
        if words[0] == "log":
            origin, hint, key = words[1].split("+", 2)
            log_key = base64.b64decode(key, validate=True)[1:]
    return spki, origin, bytes.fromhex(hint), log_key


def inclusion_root(index, size, node, proof):
    if index >= size:
        raise ValueError("index")
    fn, sn = index, size - 1
    for sibling in proof:
        if sn == 0:
            raise ValueError("proof too long")
        if fn % 2 == 1 or fn == sn:
            node = hashlib.sha256(b"\x01" + sibling + node).digest()
            while fn % 2 == 0 and fn != 0:
                fn, sn = fn // 2, sn // 2
        else:
            node = hashlib.sha256(b"\x01" + node + sibling).digest()
        fn, sn = fn // 2, sn // 2
    if sn != 0:
        raise ValueError("proof too short")
    return node


def check(case, trust):
    spki, origin, hint, log_key = trust
    envelope = json.loads((case / "envelope.json").read_bytes())
    (signature,) = envelope["signatures"]
    if signature["keyid"] != hashlib.sha256(spki).hexdigest():
        raise ValueError("keyid")
    payload = base64.b64decode(envelope["payload"], validate=True)
    sig = base64.b64decode(signature["sig"], validate=True)
    kind = envelope["payloadType"].encode()
    pae = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    Ed25519PublicKey.from_public_bytes(spki[12:]).verify(sig, pae)
    leaf = (
        '{"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":{"data":{"algorithm":'
        '"SHA2_256","digest":"%s"},"signature":{"content":"%s","verifier":{"keyDetails":"PKIX_ED25519",'
        '"publicKey":{"rawBytes":"%s"}}}}}}'
        % tuple(base64.b64encode(x).decode() for x in (hashlib.sha256(pae).digest(), sig, spki))
    ).encode()
    head, _, note = (case / "proof.tlog").read_text().partition("\n\n")
    magic, index, *hashes = head.split("\n")
    if magic != "c2sp.org/tlog-proof@v1" or not index.startswith("index "):
        raise ValueError("proof file")
    text, _, signatures = note.partition("\n\n")
    text += "\n"
    dash, name, raw = signatures.split("\n")[0].split(" ")
    raw = base64.b64decode(raw, validate=True)
    if dash != "\u2014" or name != origin or raw[:4] != hint:
        raise ValueError("signature line")
    Ed25519PublicKey.from_public_bytes(log_key).verify(raw[4:], text.encode())
    stated_origin, size, root = text.splitlines()
    if stated_origin != origin:
        raise ValueError("origin")
    proof = [base64.b64decode(h, validate=True) for h in hashes]
    found = inclusion_root(int(index[6:]), int(size), hashlib.sha256(b"\0" + leaf).digest(), proof)
    if found != base64.b64decode(root, validate=True):
        raise ValueError("root")


def main():
    directory = pathlib.Path(sys.argv[1])
    trust = read_trust(directory / "trust.txt")
    for case in sorted((directory / "cases").iterdir()):
        try:
            check(case, trust)
            print(case.name, "ok")
        except (ValueError, KeyError, InvalidSignature):
            print(case.name, "bad")


main()
