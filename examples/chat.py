#!/usr/bin/python3
"""Chat completions in the manner of OpenAI's API over a session of Lethe's; docs/from-openai.md explains each line.

    apt-get install python3-grpcio python3-protobuf protobuf-compiler-grpc
    lethe-server --model models/lethe-tiny &
    examples/chat.py [HOST:PORT]

Ends with 0 when everything it says about itself held.
"""
import pathlib
import sys
import tempfile

import grpc

from stubs import generate_stubs

ROOT = pathlib.Path(__file__).resolve().parent.parent


def render(message):
    """A message as the text that the model reads. lethe-tiny was trained on records and queries, which begin so; a chat
    model wants its own template here."""
    tag = {"system": "", "user": "[Record] ", "question": "[Query] ", "assistant": ""}[message["role"]]
    return (tag + message["content"]).encode()


class Chat:
    """One conversation: chat.create() takes what client.chat.completions.create() takes, as far as it makes sense."""

    def __init__(self, channel):
        self.sessions = session_grpc.SessionServiceStub(channel)
        self.generation = generation_grpc.GenerationServiceStub(channel)
        self.forgetting = forgetting_grpc.ForgettingServiceStub(channel)
        self.session_id = self.sessions.CreateSession(session.CreateSessionRequest()).session.session_id
        self.told = []

    def tell(self, messages):
        """Sends what the session has not been told yet: it remembers, so nothing goes twice."""
        if messages[:len(self.told)] != self.told:
            raise ValueError("these messages are not a continuation: chat.forget() takes some back, a new Chat begins anew")
        for message in messages[len(self.told):]:
            self.sessions.Append(session.AppendRequest(
                session_id=self.session_id, input=types.Content(text=render(message) + b"\n"),
                subject=message.get("name", "")))  # the label to forget it by
            self.told.append(message)

    def create(self, messages, stream=False, stop=(), seed=None, max_tokens=256, temperature=1.0, top_p=1.0,
               user="", store=True):
        """The answer to the last message, as OpenAI's chat.completion or an iterator of chat.completion.chunk."""
        self.tell(messages[:-1])
        request = generation.GenerateRequest(
            session_id=self.session_id, prompt=types.Content(text=render(messages[-1])), subject=user, remember=store,
            sampling=generation.SamplingParams(temperature=temperature, top_p=top_p, seed=seed),
            output=generation.OutputOptions(max_tokens=max_tokens, stop=[text.encode() for text in stop]))
        chunks = self._chunks(self.generation.Generate(request, timeout=600))
        if stream:
            return chunks
        text, last = "", None
        for last in chunks:
            text += last["choices"][0]["delta"].get("content", "")
        return {"object": "chat.completion", "seed": last["seed"], "usage": last["usage"], "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text},
             "finish_reason": last["choices"][0]["finish_reason"]}]}

    @staticmethod
    def _chunks(events):
        seed = None
        for event in events:
            kind = event.WhichOneof("event")
            chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": None}]}
            if kind == "started":
                seed = event.started.seed
                chunk["choices"][0]["delta"] = {"role": "assistant"}
            elif kind == "delta":
                chunk["choices"][0]["delta"] = {"content": event.delta.text}
            elif kind == "finished":
                usage = event.finished.usage
                # OpenAI counts the whole conversation as the prompt, and what was not read again as cached.
                prompt = usage.num_cached_tokens + usage.num_prompt_tokens
                chunk["choices"][0]["finish_reason"] = FINISH_REASONS[event.finished.reason]
                chunk["usage"] = {"prompt_tokens": prompt, "completion_tokens": usage.num_generated_tokens,
                                  "total_tokens": prompt + usage.num_generated_tokens,
                                  "prompt_tokens_details": {"cached_tokens": usage.num_cached_tokens}}
            else:  # progress, forget_notice
                continue
            chunk["seed"] = seed
            yield chunk

    def forget(self, user):
        """What OpenAI's API has no word for: the session is afterwards one that was never told by this user."""
        receipt = self.forgetting.Forget(forgetting.ForgetRequest(
            session_id=self.session_id, selection=forgetting.ForgetSelection(subject=user),
            derived_policy=forgetting.DERIVED_POLICY_FORGET_DERIVED))
        self.told = [message for message in self.told if message.get("name") != user]
        return receipt


def expect(claim, holds):
    if not holds:
        sys.exit(f"chat.py: this did not hold: {claim}")
    print(f"  [held] {claim}")


def main(address):
    chat = Chat(grpc.insecure_channel(address))
    messages = [
        {"role": "system", "content": (ROOT / "deploy/texts/1-night.txt").read_text()},
        {"role": "user", "name": "patient-17", "content": "Patient Kalo-17 takes zelvim."},
        {"role": "user", "name": "patient-52", "content": "Patient Mira-52 takes orvane."},
        {"role": "question", "content": "Patient Kalo-17 takes"},
    ]
    question = dict(stop=["."], max_tokens=24, temperature=0, store=False)
    streamed = list(chat.create(messages, stream=True, **question))
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in streamed)
    print(f"Patient Kalo-17 takes{text}.")
    expect("the model recalls what it was told", text == " zelvim")
    expect("the stream begins with the assistant's role", streamed[0]["choices"][0]["delta"] == {"role": "assistant"})
    whole = chat.create(messages, **question)
    expect("an answer in one piece is the same", whole["choices"][0]["message"]["content"] == text)
    expect("finish_reason is stop", whole["choices"][0]["finish_reason"] == "stop")
    usage = whole["usage"]
    print(f"usage: {usage}")
    expect("what was told before is cached", usage["prompt_tokens_details"]["cached_tokens"] > 1400)

    drawn = dict(question, temperature=1, stop=[])
    first = chat.create(messages, **drawn)
    again = chat.create(messages, seed=first["seed"], **drawn)
    expect("the seed that came back repeats the answer", again["choices"] == first["choices"])
    expect("finish_reason is length", first["choices"][0]["finish_reason"] == "length")

    receipt = chat.forget("patient-17")
    never = Chat(grpc.insecure_channel(address))
    del messages[1]
    never.tell(messages[:-1])
    digest = never.sessions.GetStateDigest(session.GetStateDigestRequest(session_id=never.session_id)).digest
    expect("after forget() the session is one that was never told", receipt.digest_after == digest)
    answer = chat.create(messages, **question)["choices"][0]["message"]["content"]
    print(f"Patient Kalo-17 takes{answer}.")
    expect("nor does it answer as if it had been", "zelvim" not in answer)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as stubs:
        generate_stubs(stubs)
        from lethe.v1 import forgetting_pb2 as forgetting, forgetting_pb2_grpc as forgetting_grpc
        from lethe.v1 import generation_pb2 as generation, generation_pb2_grpc as generation_grpc
        from lethe.v1 import session_pb2 as session, session_pb2_grpc as session_grpc
        from lethe.v1 import types_pb2 as types
        FINISH_REASONS = {generation.FINISH_REASON_STOP_STRING: "stop", generation.FINISH_REASON_END_OF_TEXT: "stop",
                          generation.FINISH_REASON_MAX_TOKENS: "length",
                          generation.FINISH_REASON_CONTEXT_LIMIT: "length",
                          # No counterparts: go on with last_token_id, and nothing to go on from.
                          generation.FINISH_REASON_SHUTDOWN: "shutdown",
                          generation.FINISH_REASON_FORGOTTEN: "forgotten"}
        try:
            main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7070")
        except grpc.RpcError as error:
            sys.exit(f"chat.py: {error.code().name}: {error.details()}")
