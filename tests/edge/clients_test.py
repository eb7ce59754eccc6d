"""Goal: clients that nobody here wrote tell the whole story: Python's gRPC (Debian's) and Node's @grpc/grpc-js (npm), on classes made
from proto/lethe/v1, create a session, append, stream an answer, forget by subject, fetch the certificate and delete the session.
Method: examples/python_client.py and examples/node/client.js as they stand, against lethe-server itself and through the edge with
mutual TLS; the certificate that each leaves is verified by `lethe verify`, which asks no server, and a changed one is not.
"""
import os
import subprocess
import unittest

import world

MODULES = world.SOURCE / "build/node/node_modules"


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = world.World("haproxy" if world.has("haproxy") else None)
        cls.world.__enter__()
        cls.addClassCleanup(cls.world.__exit__)

    def tell(self, client, edge):
        here, environment = self.world, {**os.environ, "NODE_PATH": str(MODULES)}
        address = f"127.0.0.1:{here.server_port}"
        if edge:
            world.need("haproxy")
            address = f"localhost:{here.edge_port}"
            environment |= {"LETHE_TLS_CA": f"{here.certificates}/ca.pem",
                            "LETHE_TLS_CERT": f"{here.certificates}/client-alice.pem",
                            "LETHE_TLS_KEY": f"{here.certificates}/client-alice.key"}
        certificate = here.directory / self.id()
        told = subprocess.run([*client, address, str(certificate)], env=environment, capture_output=True, text=True,
                              timeout=world.PATIENCE)
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
        self.assertIn("[Query] Patient Kalo-17 takes zelvim.\nForgot 39 tokens of patient-17:\n"
                      "  [Query] Patient Kalo-17 takes unknown.\n", told.stdout)
        self.assertTrue(told.stdout.endswith("Session deleted; its certificate stays valid.\n"), told.stdout)

        verify = [world.BINARY / "bin/lethe", "verify", certificate, "--trust", here.trust]
        self.assertIn("VERIFIED: no check failed.", world.run(verify))
        envelope = (certificate / "envelope.json").read_bytes()
        (certificate / "envelope.json").write_bytes(envelope.replace(b"e", b"f", 1))
        changed = subprocess.run([str(a) for a in verify], capture_output=True, text=True)
        self.assertEqual(changed.returncode, 3, changed.stdout + changed.stderr)

    def python(self):
        world.need("protoc", "grpc_python_plugin")
        return ["/usr/bin/python3", str(world.SOURCE / "examples/python_client.py")]

    def node(self):
        node = world.need("node")
        if not (MODULES / "@grpc/grpc-js").is_dir():
            self.skipTest("needs the npm packages of examples/node (tests/foreign/install)")
        return [node, str(world.SOURCE / "examples/node/client.js")]

    def test_python_tells_the_story(self):
        self.tell(self.python(), edge=False)

    def test_python_tells_the_story_through_the_edge(self):
        self.tell(self.python(), edge=True)

    def test_node_tells_the_story(self):
        self.tell(self.node(), edge=False)

    def test_node_tells_the_story_through_the_edge(self):
        self.tell(self.node(), edge=True)

    def test_without_a_server_each_says_so(self):
        for client in (self.python(), self.node()):
            environment = {**os.environ, "NODE_PATH": str(MODULES)}
            told = subprocess.run([*client, "127.0.0.1:1", "certificate"], env=environment, capture_output=True, text=True,
                                  timeout=world.PATIENCE)
            self.assertEqual(told.returncode, 1)
            self.assertRegex(told.stderr, r"^(python_client\.py|client\.js): UNAVAILABLE: ")


if __name__ == "__main__":
    world.main()
