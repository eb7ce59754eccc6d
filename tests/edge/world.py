"""What the tests of this folder share: lethe-server, an edge before it, certificates, generated stubs. All real programs.

LETHE_SOURCE_DIR and LETHE_BINARY_DIR come from CMake.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCE = pathlib.Path(os.environ["LETHE_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "examples"))
import stubs  # noqa: E402: it lies beside the examples, which use it too
BINARY = pathlib.Path(os.environ["LETHE_BINARY_DIR"])
MODEL = SOURCE / "models/lethe-tiny"
LONG = os.environ.get("LETHE_TEST_LONG") == "1"
PATIENCE = 60  # seconds that a condition may take on a busy machine


def has(program):
    """Its path, or None."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def need(*programs):
    """The programs' paths; skips the test case where one is not installed."""
    paths = []
    for program in programs:
        path = has(program)
        if path is None:
            raise unittest.SkipTest(f"needs {program} (deploy/packages test)")
        paths.append(path)
    return paths[0] if len(paths) == 1 else paths


def wait_for(condition, what, patience=PATIENCE):
    """Polls until condition() is true; its value. Fails after `patience` seconds."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"after {patience} s still not: {what}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Process:
    """A child with its output in a file; stop() ends it, and what it did not survive by itself is seen by alive()."""

    def __init__(self, arguments, log, environment=None):
        self.log = log
        with open(log, "wb") as out:
            # A test that is killed takes its programs along.
            wrapped = ["setpriv", "--pdeathsig", "KILL", "--", *(str(a) for a in arguments)]
            self.popen = subprocess.Popen(wrapped, stdout=out, stderr=subprocess.STDOUT,
                                          env={**os.environ, **(environment or {})})

    def alive(self):
        return self.popen.poll() is None

    def text(self):
        return self.log.read_text(errors="replace")

    def rss_mib(self):
        """Resident now, of the process and its children."""
        total = 0
        for pid in [self.popen.pid, *children(self.popen.pid)]:
            with contextlib.suppress(OSError):
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                total += int(re.search(r"VmRSS:\s+(\d+)", status)[1])
        return total / 1024

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.popen.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        if self.alive():
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        self.popen.wait()


def children(pid):
    with contextlib.suppress(OSError):
        return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class World:
    """A server, and an edge where one is named ("haproxy", "nghttpx"); a context manager. With identities=True the server asks for
    credentials: each client's certificate is a tenant's of the same name, with every role, and edge and server use mutual TLS."""

    def __init__(self, edge=None, clients=("alice", "bob"), environment=None, server_port=None, identities=False,
                 server_options=()):
        self.identities = identities
        self.server_options = server_options
        self.server_port = server_port  # given: of something else in the server's place
        self.edge_kind = edge
        self.clients = clients
        self.edge_environment = environment or {}
        self.edge_program = need(edge) if edge else None

    def __enter__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="lethe-edge-"))
        self.processes = []
        try:
            if self.edge_kind:
                self._make_certificates()
            if not self.server_port:
                self._start_server()
            if self.edge_kind:
                self._start_edge()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.stop()
        shutil.rmtree(self.directory)

    def _start(self, name, arguments, environment=None):
        process = Process(arguments, self.directory / f"{name}.log", environment)
        self.processes.append(process)
        return process

    def _start_server(self):
        self.server = self._start("server", [BINARY / "bin/lethe-server", "--model", MODEL, "--data", self.directory / "data",
                                             "--listen", "127.0.0.1:0", *(self._identity_options() if self.identities else []), *self.server_options])
        line = wait_for(lambda: re.search(r"listening on (\S+):(\d+)\n", self.server.text()) or not self.server.alive(),
                        "lethe-server listens")
        if line is True:
            raise AssertionError(self.server.text())
        self.server_port = int(line[2])
        self.trust = self.directory / "data/trust.txt"

    def _make_certificates(self):
        self.certificates = self.directory / "certificates"
        printed = run([SOURCE / "deploy/edge/certificates", self.certificates, "localhost", *self.clients])
        self.fingerprints = {name: digest for digest, name in (line.split() for line in printed.splitlines())}

    def _identity_options(self):
        if not knows("--edge-cert-sha256"):
            raise unittest.SkipTest("this lethe-server has no --edge-cert-sha256")
        known = self.directory / "clients"
        known.write_text("".join(f"{name} {name} user,eraser,auditor never {self.fingerprints[name]}\n" for name in self.clients))
        folder = self.certificates
        return ["--tls-cert", folder / "server.pem", "--tls-key", folder / "server.key", "--client-ca", folder / "ca.pem",
                "--client-certificates", known, "--edge-cert-sha256", self.fingerprints["edge"]]

    def _start_edge(self):
        self.edge_port = free_port()
        start = {"haproxy": self._haproxy, "nghttpx": self._nghttpx}[self.edge_kind]
        self.edge = start()
        wait_for(lambda: accepts(self.edge_port) or not self.edge.alive(), "the edge listens")
        if not self.edge.alive():
            raise AssertionError(self.edge.text())

    def _haproxy(self):
        environment = {"LETHE_EDGE_LISTEN": f"127.0.0.1:{self.edge_port}",
                       "LETHE_EDGE_CERTIFICATE": str(self.certificates / "edge.pem"),
                       "LETHE_EDGE_CLIENT_CA": str(self.certificates / "ca.pem"),
                       "LETHE_SERVER": f"127.0.0.1:{self.server_port}", **self.edge_environment}
        if self.identities:
            environment |= {"LETHE_EDGE_IDENTITY": str(self.certificates / "edge-identity.pem"),
                            "LETHE_SERVER_CA": str(self.certificates / "ca.pem")}
        if os.geteuid() != 0:
            environment["LETHE_EDGE_KEEP_USER"] = "1"
        return self._start("edge", [self.edge_program, "-db", "-f", SOURCE / "deploy/edge/haproxy.cfg"], environment)

    def _nghttpx(self):
        conf = (SOURCE / "deploy/edge/nghttpx.conf").read_text()
        for name, value in {"frontend": f"127.0.0.1,{self.edge_port}", "backend": f"127.0.0.1,{self.server_port};;proto=h2",
                            "private-key-file": f"{self.certificates}/edge.key",
                            "certificate-file": f"{self.certificates}/edge.pem",
                            "verify-client-cacert": f"{self.certificates}/ca.pem"}.items():
            conf, count = re.subn(f"^{name}=.*$", f"{name}={value}", conf, flags=re.M)
            if count != 1:
                raise AssertionError(f"nghttpx.conf has {count} lines {name}=")
        own = self.directory / "nghttpx.conf"
        own.write_text(conf)
        return self._start("edge", [self.edge_program, f"--conf={own}"])

    def channel(self, client="alice", direct=False, options=()):
        """To the edge with the client's certificate (None: without one), or directly to the server."""
        import grpc
        if direct or not self.edge_kind:
            return grpc.insecure_channel(f"127.0.0.1:{self.server_port}", options=options)
        read = lambda name: (self.certificates / name).read_bytes()
        pair = (None, None) if client is None else (read(f"client-{client}.key"), read(f"client-{client}.pem"))
        return grpc.secure_channel(f"127.0.0.1:{self.edge_port}",
                                   grpc.ssl_channel_credentials(read("ca.pem"), *pair), options=options)


def knows(option):
    """Whether this lethe-server has it."""
    return option in run([BINARY / "bin/lethe-server", "--help"])


class HeaderCatcher:
    """An HTTP/2 server without TLS that keeps the headers of the last request and answers UNAVAILABLE: the one stand-in for
    lethe-server, where what matters is what the edge sends it. A context manager."""

    def __enter__(self):
        self.headers = []
        self.links = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        # Shut down, for a close alone does not wake who waits in accept().
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(1)
        for link in [self.listener, *self.links]:
            link.close()

    def _serve(self):
        import h2.config
        import h2.connection
        import h2.events
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.listener.accept()
                self.links.append(link)
                connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
                connection.initiate_connection()
                link.sendall(connection.data_to_send())
                while data := link.recv(65536):
                    for event in connection.receive_data(data):
                        if isinstance(event, h2.events.RequestReceived):
                            self.headers = [tuple(header) for header in event.headers]
                            connection.send_headers(event.stream_id, [
                                (":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "14")], end_stream=True)
                    link.sendall(connection.data_to_send())


def run(arguments):
    """A program that ends with 0; its output."""
    done = subprocess.run([str(a) for a in arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{arguments[0]} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def main():
    """Runs the calling module's tests. A run in which every case was skipped ends with 77, which ctest counts as skipped."""
    result = unittest.main(exit=False, verbosity=2).result
    for case, why in result.skipped:
        print(f"Skipped: {case}: {why}")
    if not result.wasSuccessful() or result.testsRun == 0:
        sys.exit(1)
    sys.exit(77 if len(result.skipped) == result.testsRun else 0)


def generate_stubs(folder):
    """Python's classes of proto/lethe/v1, importable from here on; skips where the compiler is missing."""
    need("protoc", "grpc_python_plugin")
    stubs.generate_stubs(str(folder))
