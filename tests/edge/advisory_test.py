"""Goal: the answer to the advisories that name Debian's gRPC 1.51 (deploy/edge/README.md): CVE-2023-1428, headers that are refused and
then more than 8 KB of them, ends no lethe-server here; and what such headers do to their own connection is known.
Method: the headers by hand, in every shape that the advisory names, one connection each, to the server itself without an edge and to
the edge. gRPC's limit holds once the client has acknowledged the server's settings, so that comes first.
"""
import unittest

import attacks
import world

PADDING = [(f"x-pad-{n}", "a" * 900) for n in range(20)]  # 18 KB
SHAPES = {
    "te": [("te", "x")],
    "scheme": [(":scheme", "x")],
    "grpclb_client_stats": [("grpclb_client_stats", "x")],
    "timeout": [("grpc-timeout", "x")],
    "encoding": [("grpc-encoding", "x"), ("grpc-accept-encoding", "x,,")],
    "content-type": [("content-type", "text/html")],
    "status": [("grpc-status", "x"), (":status", "x")],
    "retries": [("grpc-previous-rpc-attempts", "x"), ("grpc-retry-pushback-ms", "x")],
    "binary": [("lb-cost-bin", "x"), ("grpc-server-stats-bin", "x"), ("grpc-trace-bin", "x"), ("grpc-tags-bin", "x")],
}


def headers(shape):
    """A request's headers with those of the shape in the place of the good ones."""
    good = [(":method", "POST"), (":scheme", "http"), (":path", attacks.LIST_MODELS), (":authority", "localhost"),
            ("te", "trailers"), ("content-type", "application/grpc")]
    changed = dict(shape)
    pseudo = [(name, changed.get(name, value)) for name, value in good if name.startswith(":")]
    pseudo += [pair for pair in shape if pair[0].startswith(":") and pair[0] not in dict(good)]
    plain = [pair for pair in good if not pair[0].startswith(":") and pair[0] not in changed]
    return pseudo + [pair for pair in shape if not pair[0].startswith(":")] + plain


def send(target, fields):
    """Sends the request with its settings acknowledged; what came back, and whether the connection outlived it."""
    with target.connect() as link:
        link.settimeout(world.PATIENCE)
        received = read_until(link, b"", lambda kind, flags: kind == attacks.SETTINGS and not flags & attacks.ACK)
        block = b"".join(attacks.literal(name, value) for name, value in fields)
        pieces = [block[at:at + 16_000] for at in range(0, len(block), 16_000)]
        out = attacks.frame(attacks.SETTINGS, attacks.ACK, 0)
        for n, piece in enumerate(pieces):
            out += attacks.frame(attacks.CONTINUATION if n else attacks.HEADERS,
                                 attacks.END_HEADERS if n + 1 == len(pieces) else 0, 1, piece)
        try:
            link.sendall(out + attacks.frame(attacks.DATA, attacks.END_STREAM, 1, attacks.EMPTY_MESSAGE))
            received = read_until(link, received, lambda kind, flags: kind in (attacks.RESET, attacks.GOAWAY) or
                                  kind in (attacks.HEADERS, attacks.DATA) and flags & attacks.END_STREAM)
            link.sendall(attacks.frame(attacks.PING, 0, 0, b"outlived"))
            received = read_until(link, received, lambda kind, flags: kind == attacks.PING and flags & attacks.ACK)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return received, any(payload == b"outlived" for _, _, _, payload in attacks.frames(received))


def read_until(link, received, done):
    """`received` and more, up to a frame that is what was waited for, or to the end."""
    while not any(done(kind, flags) for kind, flags, _, _ in attacks.frames(received)):
        more = link.recv(65536)
        if not more:
            break
        received += more
    return received


class AdvisoryTest(unittest.TestCase):
    def target(self, here):
        if here.edge_kind:
            return attacks.Target("alice", here.edge_port, here.certificates, world.PATIENCE)
        return attacks.Target("alice", here.server_port, None, world.PATIENCE)

    def expect_served(self, here):
        received, lives = send(self.target(here), headers([]))
        self.assertTrue(here.server.alive(), here.server.text())
        self.assertTrue(lives)
        self.assertEqual(attacks.grpc_statuses(received), ["0"])

    def test_refused_headers_end_no_server(self):
        with world.World() as here:
            for name, shape in SHAPES.items():
                for padding in ([], PADDING):
                    with self.subTest(shape=name, padded=bool(padding)):
                        send(self.target(here), headers(shape) + padding)
                        self.expect_served(here)

    def test_without_an_edge_long_headers_end_their_connection(self):
        # So connections to the server may not be shared by clients: http-reuse never, and a lower limit at the edge.
        with world.World() as here:
            received, lives = send(self.target(here), headers([]) + PADDING)
            self.assertFalse(lives)
            self.assertEqual(attacks.grpc_statuses(received)[0], "8")
            self.expect_served(here)

    def test_the_edge_lets_none_of_it_through(self):
        with world.World("haproxy") as here:
            for name, shape in SHAPES.items():
                for padding in ([], PADDING):
                    with self.subTest(shape=name, padded=bool(padding)):
                        received, _ = send(self.target(here), headers(shape) + padding)
                        if padding:
                            self.assertNotIn("0", attacks.grpc_statuses(received))
                        self.expect_served(here)
            self.assertTrue(here.edge.alive())


if __name__ == "__main__":
    world.main()
