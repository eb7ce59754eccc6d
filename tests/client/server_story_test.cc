// Goal: the commands against a real server: output forms, exit codes, certificate files, verification,
//   replay, and refusals that say the field and the range but no content.
// Method: lethe-server's parts in this process on a free port, with a small synthetic model.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "client/commands/certificate_files.h"
#include "client/commands/files.h"
#include "client/commands/replay_check.h"
#include "gmock/gmock.h"

#include "tests/client/story_server.h"
#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ServerStoryTest : public StoryTest {
 protected:
  std::string CreateSession() {
    std::string id = Run({"session", "create", "--id-only"}).out;
    EXPECT_FALSE(id.empty());
    id.pop_back();
    return id;
  }

  void Append(const std::string& session, const std::string& text,
              const std::string& subject = "") {
    std::vector<std::string> line = {"append", session, "--text", text};
    if (!subject.empty()) line.insert(line.end(), {"--subject", subject});
    const ProgramRun run = Run(line);
    ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  }

  std::string Digest(const std::string& session) { return Run({"session", "digest", session}).out; }
};

std::string LongText(size_t num_bytes) {
  std::string text;
  for (size_t i = 0; text.size() < num_bytes; ++i) {
    text += "the ward was quiet at hour " + std::to_string(i * 7919 % 1000) + ". ";
  }
  return text.substr(0, num_bytes);
}

TEST_F(ServerStoryTest, ForgetLeavesTheStateOfASessionNeverTold) {
  const std::string told = CreateSession();
  const std::string never = CreateSession();
  Append(told, LongText(150));
  Append(told, "patient 17 takes zelvim", "patient-17");
  Append(told, LongText(100));
  Append(never, LongText(150) + LongText(100));
  EXPECT_NE(Digest(told), Digest(never));
  const ProgramRun dry =
      Run({"forget", told, "--subject", "patient-17", "--derived", "fail", "--dry-run"});
  EXPECT_EQ(dry.exit_code, kExitDone) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("Would forget 23 inputs"));
  EXPECT_THAT(dry.out, HasSubstr("Nothing was changed"));
  EXPECT_NE(Digest(told), Digest(never));
  const ProgramRun run = Run({"forget", told, "--subject", "patient-17", "--derived", "fail"});
  EXPECT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("Forgot 23 inputs"));
  EXPECT_THAT(run.out, HasSubstr("token_ids forgotten     151-173"));
  EXPECT_THAT(run.out, HasSubstr("seq 1, leaf 0"));
  EXPECT_EQ(Digest(told), Digest(never));
}

TEST_F(ServerStoryTest, GenerateStreamsTheSameTextForTheSameSeed) {
  const std::string session = CreateSession();
  Append(session, LongText(100));
  const std::vector<std::string> line = {
      "generate", session, "--prompt",      "Who?", "--max-tokens",         "12",
      "--seed",   "7",     "--temperature", "1",    "--ignore-end-of-text", "--no-remember"};
  const ProgramRun first = Run(line);
  const ProgramRun second = Run(line);
  EXPECT_EQ(first.exit_code, kExitDone) << first.err;
  EXPECT_EQ(first.out, second.out);
  EXPECT_THAT(first.err, HasSubstr("seed 7"));
  EXPECT_THAT(first.err, HasSubstr("answer 12 tokens"));
  EXPECT_EQ(RunJson({"session", "get", session})["num_inputs"], 100);
}

TEST_F(ServerStoryTest, GenerateWritesJsonLines) {
  const std::string session = CreateSession();
  const ProgramRun run = Run({"generate", session, "--prompt-file", "-", "--max-tokens", "3",
                              "--ignore-end-of-text", "--top-logprobs", "2", "--json"},
                             "Hello");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  std::istringstream lines(run.out);
  std::vector<Json> events;
  for (std::string line; std::getline(lines, line);) {
    events.push_back(Json::parse(line, nullptr, false));
    ASSERT_TRUE(events.back().is_object()) << line;
  }
  ASSERT_GE(events.size(), 3u);
  EXPECT_TRUE(events.front().contains("started"));
  EXPECT_EQ(events.back()["finished"]["reason"], "max_tokens");
  EXPECT_EQ(events.back()["finished"]["usage"]["num_prompt_tokens"], 5);
}

TEST_F(ServerStoryTest, TextsWithBracketsAndHyphensArriveAsTheyAre) {
  const std::string session = CreateSession();
  Append(session, "[Record] a]");
  ASSERT_EQ(Run({"append", session, "--text=-3 [x]"}).exit_code, kExitDone);
  const ProgramRun run = Run({"generate", session, "--prompt", "[q]", "--stop", "[a,b]", "--stop",
                              "-", "--max-tokens", "0"});
  EXPECT_EQ(run.exit_code, kExitDone) << run.err;
  std::string text;
  const Json listing = RunJson({"session", "inputs", session, "--content"});
  for (const Json& input : listing["inputs"]) {
    text.push_back(static_cast<char>(input["vocab_id"].get<int>()));
  }
  EXPECT_EQ(text, "[Record] a]-3 [x][q]");
}

TEST_F(ServerStoryTest, ReceiptNamesDerivedTokensAndForgetsThem) {
  const std::string session = CreateSession();
  Append(session, "patient 17 takes zelvim", "patient-17");
  const ProgramRun run =
      Run({"generate", session, "--prompt", "Who?", "--max-tokens", "4", "--ignore-end-of-text"});
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_EQ(Run({"forget", session, "--subject", "patient-17", "--derived", "fail"}).exit_code,
            kExitRefused);
  const Json receipt =
      RunJson({"forget", session, "--subject", "patient-17", "--derived", "forget"});
  EXPECT_EQ(receipt["num_forgotten"], 27);
  EXPECT_EQ(receipt["derived_forgotten"], Json::parse(R"([{"first":28,"end":32}])"));
  EXPECT_EQ(receipt["num_inputs"], 4);
}

TEST_F(ServerStoryTest, RefusalsNameFieldAndRangeButNoContent) {
  const std::string session = CreateSession();
  Append(session, "zelvim");
  struct Refusal {
    std::vector<std::string> line;
    const char* text;
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {{"session", "get", "s-unknown"}, "NOT_FOUND"},
           {{"generate", session, "--prompt", "zelvim", "--top-p", "1.5"}, "top_p"},
           {{"generate", session, "--prompt", "zelvim", "--temperature", "-1"}, "temperature"},
           {{"generate", session, "--vocab-ids", "99999"}, "vocab_ids"},
           {{"append", session, "--text", ""}, "input"},
           {{"append", session, "--text=", "--subject=zelvim"}, "input"},
           {{"append", session, "--text", LongText(5000)}, "max_tokens"},
           {{"forget", session, "--ids", "77", "--derived", "keep"}, "NOT_FOUND"},
           {{"forget", session, "--subject", "nobody", "--derived", "keep"}, "NOT_FOUND"},
           {{"session", "create", "--model", "no-such-model"}, "model"},
           {{"audit", "inclusion", "5"}, "leaf_index"}}) {
    const ProgramRun run = Run(refusal.line);
    EXPECT_EQ(run.exit_code, kExitRefused) << refusal.text;
    EXPECT_THAT(run.err, HasSubstr("the server refused: "));
    EXPECT_THAT(run.err, HasSubstr("reason: "));
    EXPECT_THAT(run.err, HasSubstr(refusal.text));
    EXPECT_THAT(run.err, Not(HasSubstr("zelvim")));
    EXPECT_THAT(run.err, Not(HasSubstr("ward")));
  }
  EXPECT_EQ(RunJson({"session", "get", session})["num_inputs"], 6);
}

TEST_F(ServerStoryTest, CertificateVerifiesAndEachChangedFileIsThree) {
  const std::string session = CreateSession();
  Append(session, LongText(200));
  const ProgramRun certify = Run({"certify", session, "--out", Path("c"), "--bundle", "--nonce",
                                  "000102030405060708090a0b0c0d0e0f"});
  ASSERT_EQ(certify.exit_code, kExitDone) << certify.err;
  EXPECT_THAT(certify.out, HasSubstr("bundle.json"));
  EXPECT_THAT(certify.out, HasSubstr("layer.1.group.0.head.0"));
  const std::vector<std::string> verify = {"verify", Path("c"), "--trust", server_->trust_path()};
  const ProgramRun verified = RunLethe(verify);
  EXPECT_EQ(verified.exit_code, kExitDone) << verified.out << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("ok           optimality"));
  for (const char* file : {kEnvelopeFile, kProofFile, kOpeningFile, kBundleFile}) {
    const std::string path = Path("c") + "/" + file;
    const std::string bytes = *ReadFile(path);
    for (const size_t position : {bytes.size() / 3, bytes.size() / 2, bytes.size() - 2}) {
      std::string changed = bytes;
      changed[position] = changed[position] == '1' ? '2' : '1';
      ASSERT_OK(WriteFile(path, changed));
      const ProgramRun refused = RunLethe(verify);
      EXPECT_EQ(refused.exit_code, kExitVerificationFailed) << file << " byte " << position;
      EXPECT_THAT(refused.out, HasSubstr("FAILED"));
    }
    ASSERT_OK(WriteFile(path, bytes));
  }
  EXPECT_EQ(RunLethe(verify).exit_code, kExitDone);
}

TEST_F(ServerStoryTest, ReplayReachesTheCertifiedStateOrSaysWhatDiffers) {
  const TestServer fresh(Path("fresh"));
  const TestServer other(Path("other"), /*model_seed=*/2);
  const std::string session = CreateSession();
  Append(session, LongText(90));
  Append(session, "patient 17 takes zelvim", "patient-17");
  Append(session, LongText(60));
  ASSERT_EQ(Run({"forget", session, "--subject", "patient-17", "--derived", "fail"}).exit_code, 0);
  ASSERT_EQ(Run({"certify", session, "--out", Path("c"), "--bundle"}).exit_code, kExitDone);
  ASSERT_EQ(Run({"session", "inputs", session, "--export", Path("inputs.json")}).exit_code, 0);
  const ProgramRun online = Run({"replay", session, "--certificate", Path("c"), "--fresh-server",
                                 fresh.address(), "--trust", server_->trust_path()});
  EXPECT_EQ(online.exit_code, kExitDone) << online.err;
  EXPECT_THAT(online.out, HasSubstr("150 retained inputs"));
  const std::vector<std::string> offline = {"replay",        "--inputs", Path("inputs.json"),
                                            "--certificate", Path("c"),  "--fresh-server",
                                            fresh.address()};
  EXPECT_EQ(RunLethe(offline).exit_code, kExitDone);
  // Of two servers the one that does not answer is named.
  const ProgramRun nobody =
      Run({"replay", session, "--certificate", Path("c"), "--fresh-server", "127.0.0.1:1"});
  EXPECT_EQ(nobody.exit_code, kExitRefused);
  EXPECT_THAT(nobody.err, HasSubstr("no server answers at 127.0.0.1:1 ("));

  const ProgramRun model =
      Run({"replay", session, "--certificate", Path("c"), "--fresh-server", other.address()});
  EXPECT_EQ(model.exit_code, kExitVerificationFailed);
  EXPECT_THAT(model.err, HasSubstr("another model"));

  ASSERT_OK_AND_ASSIGN(InputsFile inputs, ParseInputsFile(*ReadFile(Path("inputs.json"))));
  std::swap(inputs.vocab_ids[10], inputs.vocab_ids[11]);
  ASSERT_OK(WriteFile(Path("inputs.json"), WriteInputsFile(inputs)));
  const ProgramRun changed = RunLethe(offline);
  EXPECT_EQ(changed.exit_code, kExitVerificationFailed);
  EXPECT_THAT(changed.err, HasSubstr("the replayed state differs: "));
  EXPECT_THAT(changed.err, HasSubstr("layer."));

  Append(session, "and told more since");
  EXPECT_EQ(Run({"replay", session, "--certificate", Path("c"), "--fresh-server", fresh.address()})
                .exit_code,
            kExitDone);
  ASSERT_EQ(Run({"forget", session, "--ids", "3", "--derived", "fail"}).exit_code, kExitDone);
  const ProgramRun forgotten =
      Run({"replay", session, "--certificate", Path("c"), "--fresh-server", fresh.address()});
  EXPECT_EQ(forgotten.exit_code, kExitVerificationFailed);
  EXPECT_THAT(forgotten.err, HasSubstr("149 of the 150"));
}

TEST_F(ServerStoryTest, RecordsAndProofsOfTheLog) {
  const std::string session = CreateSession();
  Append(session, LongText(70));
  ASSERT_EQ(Run({"certify", session, "--out", Path("a")}).exit_code, kExitDone);
  ASSERT_EQ(Run({"forget", session, "--ids", "0-4", "--derived", "fail"}).exit_code, kExitDone);
  for (int repeat = 0; repeat < 2; ++repeat)
    ASSERT_EQ(Run({"certify", session, "--out", Path("b"), "--request-id", "r"}).exit_code, 0);
  EXPECT_EQ(RunJson({"audit", "records", "--session", session})["records"].size(), 3u);
  EXPECT_EQ(RunJson({"audit", "log"})["tree_size"], 3);
  const ProgramRun consistency = Run({"audit", "consistency", "1", "3"});
  EXPECT_EQ(consistency.exit_code, kExitDone) << consistency.err;
  EXPECT_THAT(consistency.out, HasSubstr("Consistent"));
  // Refused before the server signs: no record that nobody keeps.
  for (const std::string& place : {Path("a"), Path("a/envelope.json")}) {
    const ProgramRun refused = Run({"certify", session, "--out", place});
    EXPECT_EQ(refused.exit_code, kExitUsage) << refused.out;
  }
  EXPECT_THAT(Run({"certify", session, "--out", Path("a")}).err,
              HasSubstr("holds another certificate"));
  EXPECT_EQ(Run({"certificate", "get", session, "--seq", "2", "--out", Path("a")}).exit_code,
            kExitUsage);
  EXPECT_EQ(Run({"certificate", "get", session, "--seq", "4"}).exit_code, kExitRefused);
  EXPECT_EQ(Run({"audit", "inclusion", "1", "--out", Path("proof.tlog")}).exit_code, kExitDone);
  ASSERT_EQ(Run({"certificate", "get", session, "--seq", "2", "--out", Path("f")}).exit_code, 0);
  EXPECT_EQ(RunLethe({"verify", Path("b"), "--previous", Path("a"), Path("f"), "--trust",
                      server_->trust_path()})
                .exit_code,
            kExitDone);
  const ProgramRun destroyed =
      Run({"certificate", "get", session, "--seq", "1", "--out", Path("a")});
  EXPECT_THAT(destroyed.out, HasSubstr("destroyed by a later Forget"));
  EXPECT_FALSE(std::filesystem::exists(Path("a/opening.json")));
}

TEST_F(ServerStoryTest, ListsPartitionModelsAndInputs) {
  const std::string session = CreateSession();
  Append(session, LongText(128), "day");
  const Json partition = RunJson({"partition", session});
  EXPECT_EQ(partition["rows"].size(), 128u);
  EXPECT_EQ(RunJson({"partition", session, "--limit", "2"})["rows"].size(), 2u);
  EXPECT_EQ(RunJson({"partition", session, "--limit", "129"})["rows"].size(), 128u);
  EXPECT_THAT(Run({"partition", session, "--limit", "2"}).out, HasSubstr("and 126 more"));
  EXPECT_EQ(RunJson({"models", "get"})["name"], "test-model");
  EXPECT_EQ(Run({"models", "tokenize", "--text", "Pat"}).out, "80,97,116\n");
  EXPECT_EQ(Run({"models", "detokenize", "80,97,116"}).out, "Pat");
  const ProgramRun inputs = Run({"session", "inputs", session, "--content"});
  EXPECT_THAT(inputs.out, HasSubstr("0-127"));
  EXPECT_THAT(inputs.out, HasSubstr("the ward was quiet"));
  EXPECT_THAT(Run({"session", "list"}).out, HasSubstr(session));
  EXPECT_EQ(Run({"session", "delete", session}).exit_code, kExitDone);
  EXPECT_EQ(Run({"session", "get", session}).exit_code, kExitRefused);
}

TEST_F(ServerStoryTest, LabelsCannotForgeRows) {
  const std::string session = CreateSession();
  const std::string label = "a\n  0-9  forgotten\u2028\u202e\t";
  const std::string shown = "a\\n  0-9  forgotten\\u{2028}\\u{202e}\\t";
  const ProgramRun append = Run({"append", session, "--text", "t\u009b", "--subject", label});
  EXPECT_THAT(append.out, HasSubstr("subject " + shown + ". The session"));
  const ProgramRun inputs = Run({"session", "inputs", session, "--content"});
  EXPECT_THAT(inputs.out, HasSubstr(shown));
  EXPECT_THAT(inputs.out, HasSubstr("\"t\\u{9b}\""));
  EXPECT_EQ(RunJson({"session", "inputs", session})["inputs"][0]["subject"], label);
}

TEST_F(ServerStoryTest, AFileOfAnyBytesIsAppendedAsItIs) {
  const std::string session = CreateSession();
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  ASSERT_OK(WriteFile(Path("bytes"), bytes));
  ASSERT_EQ(Run({"append", session, Path("bytes")}).exit_code, kExitDone);
  const Json inputs = RunJson({"session", "inputs", session, "--content"});
  ASSERT_EQ(inputs["inputs"].size(), 256u);
  EXPECT_EQ(inputs["inputs"][255]["vocab_id"], 255);
}

TEST_F(ServerStoryTest, DigestExplainNamesThePartThatDiffers) {
  const std::string session = CreateSession();
  Append(session, LongText(70));
  ASSERT_EQ(Run({"session", "digest", session, "--parts", "--out", Path("1")}).exit_code, 0);
  Append(session, "more");
  ASSERT_EQ(Run({"session", "digest", session, "--parts", "--out", Path("2")}).exit_code, 0);
  EXPECT_EQ(RunLethe({"digest", "--explain", Path("1"), Path("1")}).exit_code, kExitDone);
  const ProgramRun run = RunLethe({"digest", "--explain", Path("1"), Path("2")});
  EXPECT_EQ(run.exit_code, kExitVerificationFailed);
  EXPECT_THAT(run.out, HasSubstr("Different: "));
}

TEST_F(ServerStoryTest, TheLogIsExportedCheckedAndHeldAgainstHeadsThatWereKept) {
  const std::string session = CreateSession();
  Append(session, LongText(70));
  const std::string trust = server_->trust_path();
  ASSERT_EQ(Run({"certify", session, "--out", Path("held")}).exit_code, kExitDone);
  ASSERT_EQ(Run({"audit", "export", Path("mirror"), "--bodies", "--trust", trust}).exit_code, 0);
  const std::string earlier = *ReadFile(Path("mirror/checkpoint"));
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(Run({"certify", session, "--out", Path("c" + std::to_string(i))}).exit_code, 0);
  const std::vector<std::string> consistency = {"audit", "consistency", Path("held"), "--trust",
                                                trust};
  const ProgramRun consistent = Run(consistency);
  EXPECT_EQ(consistent.exit_code, kExitDone) << consistent.err;
  EXPECT_THAT(consistent.out, HasSubstr("the log of 4 records extends the one of 1"));
  EXPECT_EQ(Run({"audit", "consistency", Path("held")}).exit_code, kExitVerificationFailed);
  EXPECT_EQ(Run({"audit", "consistency", Path("c2"), Path("held"), "--trust", trust}).exit_code,
            kExitVerificationFailed);
  // The mirror goes on from where it was.
  const ProgramRun exported =
      Run({"audit", "export", Path("mirror"), "--bodies", "--trust", trust});
  EXPECT_THAT(exported.out, HasSubstr("Exported 4 records"));
  EXPECT_NE(*ReadFile(Path("mirror/checkpoint")), earlier);
  const std::vector<std::string> fsck = {"audit", "fsck", Path("mirror"), "--trust", trust};
  const ProgramRun whole = RunLethe(fsck);
  EXPECT_EQ(whole.exit_code, kExitDone) << whole.out << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("Whole: "));
  EXPECT_THAT(whole.out, HasSubstr("sessions        1"));
  for (const char* file : {"tile/0/000.p/4", "tile/entries/000.p/4", "checkpoint"}) {
    const std::string bytes = *ReadFile(Path("mirror/") + file);
    std::string changed = bytes;
    changed[50] = static_cast<char>(changed[50] ^ 1);
    ASSERT_OK(WriteFile(Path("mirror/") + file, changed));
    const ProgramRun refused = RunLethe(fsck);
    EXPECT_EQ(refused.exit_code, kExitVerificationFailed) << file;
    EXPECT_THAT(refused.out, HasSubstr("FAILED  ")) << file;
    ASSERT_OK(WriteFile(Path("mirror/") + file, bytes));
  }
  // A body of another leaf under this one's name.
  std::vector<std::string> bodies;
  for (const auto& body : std::filesystem::directory_iterator(Path("mirror/bodies"))) {
    bodies.push_back(body.path());
  }
  ASSERT_EQ(bodies.size(), 4u);
  ASSERT_OK(WriteFile(bodies[0], *ReadFile(bodies[1])));
  EXPECT_THAT(RunLethe(fsck).out, HasSubstr("its body is not the envelope of this leaf"));
  std::filesystem::remove(bodies[0]);
  EXPECT_EQ(RunLethe(fsck).exit_code, kExitDone);  // bodies may go
  // The same from the data directory, once nobody uses it.
  EXPECT_EQ(RunLethe({"audit", "fsck", Path("data"), "--trust", trust}).exit_code, kExitUsage);
  server_.reset();
  const ProgramRun stopped = RunLethe({"audit", "fsck", Path("data"), "--trust", trust, "--json"});
  EXPECT_EQ(stopped.exit_code, kExitDone) << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("\"num_heads\":5"));
  EXPECT_EQ(RunLethe({"audit", "export", Path("offline"), "--data", Path("data")}).exit_code, 0);
  EXPECT_EQ(*ReadFile(Path("offline/tile/0/000.p/4")), *ReadFile(Path("mirror/tile/0/000.p/4")));
}

}  // namespace
}  // namespace lethe::client
