"""Goal: an edge of deploy/edge is invisible to a client that behaves: long streams, cancellation, deadlines, trailers, uploads.
Method: lethe-server with the shipped model, the edge's own program with the shipped configuration, python3-grpcio with a client
certificate. Each case runs through every edge; what a cancel did is read from the server, not from the client.
"""
import hashlib
import socket
import ssl
import tempfile
import unittest
import warnings

import attacks
import world

import grpc

LONG_ANSWER = 60_000  # tokens; many seconds of work


class Behaviour:
    """The cases; a subclass names the edge."""

    @classmethod
    def setUpClass(cls):
        cls.world = world.World(cls.EDGE)
        cls.world.__enter__()
        cls.addClassCleanup(cls.world.__exit__)
        cls.channel = cls.world.channel()
        cls.addClassCleanup(cls.channel.close)
        cls.sessions = session_grpc.SessionServiceStub(cls.channel)
        cls.generation = generation_grpc.GenerationServiceStub(cls.channel)

    def setUp(self):
        self.session_id = self.sessions.CreateSession(session.CreateSessionRequest()).session.session_id

    def generate(self, max_tokens, timeout=None, request_id=""):
        return self.generation.Generate(generation.GenerateRequest(
            session_id=self.session_id, prompt={"text": b"The ward is quiet."}, request_id=request_id,
            output={"max_tokens": max_tokens, "ignore_end_of_text": True}), timeout=timeout)

    def expect_work_ended(self, request_id):
        """The server says that the request runs no more, and the session has far less than was asked for."""
        def ended():
            try:
                next(self.generate(LONG_ANSWER, request_id=request_id))
            except grpc.RpcError as error:
                return "REQUEST_DONE" in reason(error) or "REQUEST_RUNNING" not in reason(error) and reason(error)
            raise AssertionError("a repeated request_id was run again")
        self.assertEqual(world.wait_for(ended, "the cancelled request has ended"), True)
        held = self.sessions.GetSession(session.GetSessionRequest(session_id=self.session_id)).session.num_inputs
        self.assertLess(held, LONG_ANSWER)

    def test_long_stream_arrives_whole(self):
        ids, finished = [], None
        for event in self.generate(1500):
            ids += [token.token_id for token in event.delta.tokens]
            if event.HasField("finished"):
                finished = event.finished
        self.assertEqual(ids, list(range(ids[0], ids[0] + 1500)))
        self.assertEqual(finished.usage.num_generated_tokens, 1500)

    def test_cancel_ends_the_work(self):
        call = self.generate(LONG_ANSWER, request_id="cancelled")
        for event in call:
            if event.HasField("delta"):
                break
        call.cancel()
        self.expect_work_ended("cancelled")

    def test_closed_connection_ends_the_work(self):
        with self.world.channel("bob") as channel:
            call = generation_grpc.GenerationServiceStub(channel).Generate(generation.GenerateRequest(
                session_id=self.session_id, prompt={"text": b"hi"}, request_id="lost",
                output={"max_tokens": LONG_ANSWER, "ignore_end_of_text": True}))
            next(call)
        def ended():
            try:
                next(self.generation.Generate(generation.GenerateRequest(
                    session_id=self.session_id, prompt={"text": b"hi"}, request_id="lost",
                    output={"max_tokens": LONG_ANSWER, "ignore_end_of_text": True})))
            except grpc.RpcError as error:
                return "REQUEST_DONE" in reason(error)
            raise AssertionError("a repeated request_id was run again")
        world.wait_for(ended, "the lost client's request has ended")

    def test_deadline_ends_the_work(self):
        with self.assertRaises(grpc.RpcError) as caught:
            for _ in self.generate(LONG_ANSWER, timeout=0.5, request_id="late"):
                pass
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.expect_work_ended("late")

    def test_error_details_arrive(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.sessions.GetSession(session.GetSessionRequest(session_id="no-such-session"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertIn("SESSION_NOT_FOUND", reason(caught.exception))

    def test_upload_arrives_whole(self):
        key = bytes(range(32))
        text = b"[Record] " + b"Patient Kalo-17 takes zelvim. " * 40
        self.sessions.Append(session.AppendRequest(session_id=self.session_id, input={"text": text}))
        file = b"".join(part.data for part in
                        self.sessions.ExportSession(session.ExportSessionRequest(session_id=self.session_id, key=key)))

        def upload():
            yield session.ImportSessionRequest(header={"key": key})
            for at in range(0, len(file), 1000):
                yield session.ImportSessionRequest(data=file[at:at + 1000])
        answer = self.sessions.ImportSession(upload())
        self.assertFalse(answer.reevaluated)
        self.assertEqual(answer.digest.sha256, answer.exported_digest.sha256)
        self.assertEqual(answer.session.num_inputs, len(text))

    def test_more_calls_than_streams_wait_for_their_turn(self):
        calls = [self.sessions.GetSession.future(session.GetSessionRequest(session_id=self.session_id)) for _ in range(200)]
        self.assertEqual({call.result().session.session_id for call in calls}, {self.session_id})

    def test_headers_that_are_too_long_harm_one_call_only(self):
        stream = self.generate(LONG_ANSWER)
        next(stream)
        for size in (7_000, 14_000, 100_000):
            with self.assertRaises(grpc.RpcError) as caught:
                self.sessions.GetSession(session.GetSessionRequest(session_id=self.session_id), timeout=world.PATIENCE,
                                         metadata=[(f"x-{n}", "v" * 1000) for n in range(size // 1000)])
            self.assertNotIn(caught.exception.code(), (grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED))
            if self.EDGE == "haproxy" and size == 7_000:
                self.assertEqual(caught.exception.details(), "edge: more than 6144 bytes of headers")
        if self.EDGE == "haproxy":
            # Headers beyond the edge's buffer end their own connection; another client's goes on.
            with self.world.channel("bob") as other:
                session_grpc.SessionServiceStub(other).GetSession(session.GetSessionRequest(session_id=self.session_id))
        stream.cancel()
        self.assertTrue(self.world.server.alive())

    def test_without_a_certificate_of_the_authority_nothing_is_served(self):
        with tempfile.TemporaryDirectory() as folder:
            world.run([world.SOURCE / "deploy/edge/certificates", f"{folder}/other"])
            for pair in (None, f"{folder}/other/client-alice", f"{self.world.certificates}/edge"):
                with self.subTest(pair=pair), self.assertRaises(OSError):
                    context = self.tls()
                    if pair:
                        context.load_cert_chain(f"{pair}.pem", f"{pair}.key")
                    with self.connect(context) as link:  # in TLS 1.3 the refusal comes after the handshake
                        link.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                        while link.recv(4096):
                            pass
                        raise ConnectionResetError

    def test_old_tls_is_refused(self):
        context = self.tls()
        context.load_cert_chain(f"{self.world.certificates}/client-alice.pem", f"{self.world.certificates}/client-alice.key")
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with self.assertRaisesRegex(ssl.SSLError, "ALERT_PROTOCOL_VERSION"):  # the edge's word, not this side's
            self.connect(context)

    def tls(self):
        context = ssl.create_default_context(cafile=f"{self.world.certificates}/ca.pem")
        context.set_alpn_protocols(["h2"])
        return context

    def connect(self, context):
        link = socket.create_connection(("127.0.0.1", self.world.edge_port), world.PATIENCE)
        return context.wrap_socket(link, server_hostname="localhost")


class HaproxyTest(Behaviour, unittest.TestCase):
    EDGE = "haproxy"

    def test_only_the_services_are_served(self):
        for method in ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/grpc.channelz.v1.Channelz/GetServers"):
            with self.assertRaises(grpc.RpcError) as caught:
                self.channel.unary_unary(method)(b"")
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
            self.assertEqual(caught.exception.details(), "edge: not a method of this service")
        health = self.channel.unary_unary("/grpc.health.v1.Health/Check")
        self.assertEqual(health(b""), b"\x08\x01")  # SERVING

    def test_identity_comes_from_the_certificate_alone(self):
        with world.HeaderCatcher() as catcher, world.World("haproxy", server_port=catcher.port) as edge:
            der = ssl.PEM_cert_to_DER_cert((edge.certificates / "client-alice.pem").read_text())
            # By hand: gRPC's own client ends its process when it is told to send grpclb_client_stats.
            target = attacks.Target("alice", edge.edge_port, edge.certificates, world.PATIENCE)
            block = attacks.request(extra=[
                ("x-lethe-client-cert-sha256", "forged"), ("x-lethe-client-cert-sha256", "forged again"),
                ("x-forwarded-for", "10.0.0.1"), ("grpclb_client_stats", "x"), ("authorization", "Bearer t"),
                ("traceparent", "00-1-2-3")])
            with target.connect() as link:
                target.send(link, attacks.frame(attacks.HEADERS, attacks.END_HEADERS, 1, block) +
                            attacks.frame(attacks.DATA, attacks.END_STREAM, 1, attacks.EMPTY_MESSAGE))
                world.wait_for(lambda: catcher.headers, "the request has passed the edge")
        headers = catcher.headers
        self.assertEqual([value for name, value in headers if name == "x-lethe-client-cert-sha256"],
                         [hashlib.sha256(der).hexdigest()])
        self.assertLessEqual({name for name, _ in headers if not name.startswith(":")},
                             {"te", "content-type", "user-agent", "authorization", "grpc-timeout", "grpc-encoding",
                              "grpc-accept-encoding", "traceparent", "tracestate", "x-lethe-client-cert-sha256", "host"})
        self.assertIn(("authorization", "Bearer t"), headers)
        self.assertIn(("te", "trailers"), headers)


class IdentityTest(unittest.TestCase):
    def test_the_server_takes_the_identity_that_the_edge_passes_on(self):
        with world.World("haproxy", clients=["alice", "bob"], identities=True) as here:
            with here.channel("alice") as alice, here.channel("bob") as bob:
                mine = session_grpc.SessionServiceStub(alice).CreateSession(session.CreateSessionRequest()).session.session_id
                request = session.GetSessionRequest(session_id=mine)
                forged = [("x-lethe-client-cert-sha256", here.fingerprints["alice"])]
                self.assertEqual(session_grpc.SessionServiceStub(alice).GetSession(request).session.session_id, mine)
                with self.assertRaises(grpc.RpcError) as caught:
                    session_grpc.SessionServiceStub(bob).GetSession(request, metadata=forged)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)


class NghttpxTest(Behaviour, unittest.TestCase):
    EDGE = "nghttpx"


def reason(error):
    """The binary status details as text: enough to look for a reason in."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    return details.decode(errors="replace")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as stubs:
        world.generate_stubs(stubs)
        from lethe.v1 import generation_pb2 as generation, generation_pb2_grpc as generation_grpc
        from lethe.v1 import session_pb2 as session, session_pb2_grpc as session_grpc
        world.main()
