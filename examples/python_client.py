#!/usr/bin/python3
"""Lethe from Python: a session is told of a patient, asked, made to forget the patient, and leaves a certificate.

    apt-get install python3-grpcio python3-protobuf protobuf-compiler-grpc
    lethe-server --model models/lethe-tiny --data data &
    examples/python_client.py [HOST:PORT [DIRECTORY]]      # the certificate's files go to DIRECTORY (default: certificate)
    lethe verify certificate --trust data/trust.txt        # offline

With TLS: LETHE_TLS_CA, and LETHE_TLS_CERT and LETHE_TLS_KEY for a client certificate (files); LETHE_TOKEN_FILE for a bearer token, which
needs TLS. Ends with 0 when the story came out as told.
"""
import os
import pathlib
import sys
import tempfile

import grpc

from stubs import generate_stubs

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUERY = b"[Query] Patient Kalo-17 takes"


def open_channel(address):
    def read(variable):
        return pathlib.Path(os.environ[variable]).read_bytes() if variable in os.environ else None
    if "LETHE_TLS_CA" not in os.environ:
        return grpc.insecure_channel(address)
    credentials = grpc.ssl_channel_credentials(read("LETHE_TLS_CA"), read("LETHE_TLS_KEY"), read("LETHE_TLS_CERT"))
    if token := read("LETHE_TOKEN_FILE"):
        credentials = grpc.composite_channel_credentials(
            credentials, grpc.access_token_call_credentials(token.decode().strip()))
    return grpc.secure_channel(address, credentials)


def ask(stub, session_id):
    """Streams an answer. remember=False: neither question nor answer enters the session."""
    events = stub.Generate(generation.GenerateRequest(
        session_id=session_id, prompt=types.Content(text=QUERY), remember=False,
        output=generation.OutputOptions(max_tokens=32, stop=[b"."])), timeout=60)
    answer = ""
    for event in events:
        answer += event.delta.text  # "" in events of another kind
    print(f"  {QUERY.decode()}{answer}.")
    return answer.strip()


def write_certificate(certificate, directory):
    directory.mkdir(mode=0o700)
    (directory / "envelope.json").write_bytes(certificate.envelope)  # the signed statement
    (directory / "proof.tlog").write_bytes(certificate.log_proof)    # its inclusion in the audit log
    (directory / "opening.json").write_bytes(certificate.opening)    # opens what the statement hides; keep it to yourself
    print(f"Certificate in {directory}; lethe verify {directory} --trust TRUST checks it offline.")


def main(address, directory):
    channel = open_channel(address)
    sessions = session_grpc.SessionServiceStub(channel)
    generations = generation_grpc.GenerationServiceStub(channel)
    session_id = sessions.CreateSession(session.CreateSessionRequest()).session.session_id

    print("Told of a night on the ward and of two patients:")
    # What one person's request must be able to forget carries that person's label.
    for text, subject in (((ROOT / "deploy/texts/1-night.txt").read_bytes(), ""),
                          (b"[Record] Patient Kalo-17 takes zelvim.\n", "patient-17"),
                          (b"[Record] Patient Mira-52 takes torol.\n", "patient-52")):
        sessions.Append(session.AppendRequest(session_id=session_id, input=types.Content(text=text), subject=subject))
    before = ask(generations, session_id)

    # With a request_id the call may be repeated when its answer was lost: it returns the same receipt.
    receipt = forgetting_grpc.ForgettingServiceStub(channel).Forget(forgetting.ForgetRequest(
        session_id=session_id, selection=forgetting.ForgetSelection(subject="patient-17"),
        derived_policy=forgetting.DERIVED_POLICY_FORGET_DERIVED, request_id="forget-patient-17"))
    print(f"Forgot {receipt.num_forgotten} tokens of patient-17:")
    after = ask(generations, session_id)

    record = certification_grpc.CertificationServiceStub(channel).GetCertificate(
        certification.GetCertificateRequest(session_id=session_id, seq=receipt.certificate.seq))
    write_certificate(record.certificate, directory)
    sessions.DeleteSession(session.DeleteSessionRequest(session_id=session_id))
    print("Session deleted; its certificate stays valid.")
    if before == after:
        sys.exit("the answer did not change")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as stubs:
        generate_stubs(stubs)
        from lethe.v1 import certification_pb2 as certification, certification_pb2_grpc as certification_grpc
        from lethe.v1 import forgetting_pb2 as forgetting, forgetting_pb2_grpc as forgetting_grpc
        from lethe.v1 import generation_pb2 as generation, generation_pb2_grpc as generation_grpc
        from lethe.v1 import session_pb2 as session, session_pb2_grpc as session_grpc
        from lethe.v1 import types_pb2 as types
        try:
            main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7070",
                 pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "certificate"))
        except grpc.RpcError as error:
            sys.exit(f"python_client.py: {error.code().name}: {error.details()}")
        except OSError as error:
            sys.exit(f"python_client.py: {error}")
