#!/usr/bin/python3
"""A memory of vital signs that forgets a patient exactly: a vector session in Python.

    apt-get install python3-grpcio python3-protobuf protobuf-compiler-grpc
    lethe-server --no-model &
    examples/vectors.py [HOST:PORT]

Ends with 0 when everything it says about itself held.
"""
import random
import sys
import tempfile

import grpc

from stubs import generate_stubs

KEY_DIM = 3    # heart rate, blood pressure, temperature, each scaled to about 1
VALUE_DIM = 1  # what we want back for a query: hours to discharge
ROWS = 40      # of each patient
PATIENTS = {"patient-3": 0.0, "patient-17": 2.0, "patient-52": 0.5}  # offsets from the healthy mean


def matrix(rows):
    return memory.Matrix(num_rows=len(rows), num_columns=len(rows[0]), values=sum(rows, []))


def create_session(stub):
    # All of it is fixed before the first vital sign: nothing that outlives a Forget may be computed from what
    # is forgotten.
    options = types.VectorOptions(
        key_dim=KEY_DIM, value_dim=VALUE_DIM,
        sigma=2.0,  # how far a key's influence reaches
        nu=types.NuBox(nu=0.1, reference_size=80))  # of 80 keys about a tenth may count as unusual
    return stub.CreateVectorSession(memory.CreateVectorSessionRequest(options=options)).session.session_id


def append(stub, session_id, patient):
    """Appends a patient's signs, the same for the same patient, under a label to forget them by."""
    source = random.Random(patient)
    keys = [[source.gauss(PATIENTS[patient], 1) for _ in range(KEY_DIM)] for _ in range(ROWS)]
    values = [[48 * PATIENTS[patient]]] * ROWS
    stub.AppendVectors(memory.AppendVectorsRequest(
        session_id=session_id, keys=matrix(keys), values=matrix(values), subject=patient))


def read(stub, session_id):
    queries = {"usual": [0.0] * 3, "as patient 17": [2.0] * 3, "far off": [9.0] * 3}
    answer = stub.Read(memory.ReadRequest(session_id=session_id, queries=matrix(list(queries.values()))))
    # The decision is the anomaly score: below 0 the query is unlike what the memory holds.
    for name, score, hours in zip(queries, answer.decisions, answer.readouts.values):
        print(f"  {name}: score {score:.6g}, {hours:.4g} hours")
    return answer


def main(address):
    # A proof bundle holds every key and value, in hex: 4 MiB, gRPC's limit unless told otherwise, are few.
    channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 1 << 30)])
    stub = memory_grpc.MemoryServiceStub(channel)
    told = create_session(stub)
    for patient in PATIENTS:
        append(stub, told, patient)
    print("A memory of three patients:")
    read(stub, told)

    receipt = forgetting_grpc.ForgettingServiceStub(channel).Forget(forgetting.ForgetRequest(
        session_id=told, selection=forgetting.ForgetSelection(subject="patient-17"),
        derived_policy=forgetting.DERIVED_POLICY_FAIL))
    print(f"Forgot {receipt.num_forgotten} vectors of patient-17:")
    after = read(stub, told)

    never = create_session(stub)
    for patient in ("patient-3", "patient-52"):
        append(stub, never, patient)
    print("A memory that never saw patient-17:")
    if after != read(stub, never):  # doubles, compared as they came
        sys.exit("the two memories answer differently")
    print("Both answer alike, bit for bit.")

    record = certification_grpc.CertificationServiceStub(channel).Certify(
        certification.CertifyRequest(session_id=told, include_bundle=True))
    print(f"Certified as record {record.certificate.ref.seq}, with a bundle of {len(record.bundle)} bytes; "
          "lethe certify writes both to files that lethe verify checks offline.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as stubs:
        generate_stubs(stubs)
        from lethe.v1 import certification_pb2 as certification, certification_pb2_grpc as certification_grpc
        from lethe.v1 import forgetting_pb2 as forgetting, forgetting_pb2_grpc as forgetting_grpc
        from lethe.v1 import memory_pb2 as memory, memory_pb2_grpc as memory_grpc
        from lethe.v1 import types_pb2 as types
        try:
            main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7070")
        except grpc.RpcError as error:
            sys.exit(f"vectors.py: {error.code().name}: {error.details()}")
