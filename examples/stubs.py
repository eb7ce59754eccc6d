"""generate_stubs, for the examples in this folder."""
import pathlib
import subprocess
import sys

PROTO = pathlib.Path(__file__).resolve().parent.parent / "proto"


def generate_stubs(folder):
    """Compiles proto/lethe/v1 to Python. An application does this once and keeps the result."""
    files = sorted(str(path) for path in (PROTO / "lethe/v1").glob("*.proto"))
    plugin = "/usr/bin/grpc_python_plugin"
    subprocess.run(["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--grpc_out={folder}",
                    f"--plugin=protoc-gen-grpc={plugin}", *files], check=True)
    sys.path.insert(0, folder)
