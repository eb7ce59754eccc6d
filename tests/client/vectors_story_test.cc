// Goal: vector sessions as the user of `lethe` meets them: append, read, forget by every selection, certify,
// verify, replay and evict; a session that forgot is, byte for byte, one never told; refusals name the field
// and the range, and change nothing.
// Method: lethe-server's parts in this process; random keys in files, a second session as the oracle.
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/certificate_files.h"
#include "client/commands/files.h"
#include "client/inputs_file.h"
#include "gmock/gmock.h"

#include "tests/client/story_server.h"
#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A matrix of normal numbers in a text file's form.
std::string Matrix(int num_rows, int num_columns, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::string text;
  for (int i = 0; i < num_rows * num_columns; ++i) {
    char word[40];
    std::snprintf(word, sizeof word, "%.17g", normal(random));
    absl::StrAppend(&text, word, (i + 1) % num_columns == 0 ? "\n" : ",");
  }
  return text;
}

class VectorsStoryTest : public StoryTest {
 protected:
  std::string Create(std::vector<std::string> box = {"--nu", "0.2", "--reference-size", "33"}) {
    std::vector<std::string> line = {"vectors",     "create",   "--key-dim", "3",
                                     "--value-dim", "2",        "--sigma",   "1.7",
                                     "--selection", "--id-only"};
    line.insert(line.end(), box.begin(), box.end());
    const ProgramRun run = Run(line);
    EXPECT_EQ(run.exit_code, kExitDone) << run.err;
    return run.out.substr(0, run.out.size() - 1);
  }

  // Tells the session `count` rows, which depend on `seed` alone.
  void Append(const std::string& session, int count, unsigned seed,
              const std::string& subject = "") {
    ASSERT_OK(WriteFile(Path("values"), Matrix(count, 2, seed + 1000)));
    std::vector<std::string> line = {"vectors", "append", session, "-", "--values", Path("values")};
    if (!subject.empty()) line.insert(line.end(), {"--subject", subject});
    const ProgramRun run = Run(line, Matrix(count, 3, seed));
    ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  }

  std::string Digest(const std::string& session) { return Run({"session", "digest", session}).out; }

  std::string Reads(const std::string& session) {
    return Run({"vectors", "read", session, "-", "--json"}, Matrix(20, 3, 99)).out;
  }
};

TEST_F(VectorsStoryTest, ForgetLeavesTheStateAndTheReadsOfASessionNeverTold) {
  const std::string told = Create();
  Append(told, 12, 1);                // token_ids 1-12
  Append(told, 9, 2, "patient-17");   // 13-21
  Append(told, 10, 3, "patient-52");  // 22-31
  Append(told, 11, 4);                // 32-42
  const std::string never = Create();
  Append(never, 12, 1);
  Append(never, 10, 3, "other");
  Append(never, 11, 4);
  const std::vector<std::string> forget = {"forget",     told,        "--subject",
                                           "patient-17", "--derived", "fail"};
  const std::string before = Digest(told);
  std::vector<std::string> dry = forget;
  dry.push_back("--dry-run");
  EXPECT_THAT(Run(dry).out, HasSubstr("Would forget 9 inputs"));
  EXPECT_EQ(Digest(told), before);
  EXPECT_NE(Reads(told), Reads(never));
  const ProgramRun run = Run(forget);
  EXPECT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("token_ids forgotten     13-21"));
  EXPECT_THAT(run.out, HasSubstr("decremental, bounded"));
  EXPECT_EQ(Digest(told), Digest(never));
  EXPECT_EQ(Reads(told), Reads(never));
}

TEST_F(VectorsStoryTest, EverySelectionAndBothWaysEndInTheSameState) {
  const std::string session = Create();
  Append(session, 30, 1, "a");
  Append(session, 12, 2);
  const std::string want = Create();
  Append(want, 12, 2);
  const auto forget = [&](const std::vector<std::string>& selection) {
    std::vector<std::string> line = {"forget", session, "--derived", "fail"};
    line.insert(line.end(), selection.begin(), selection.end());
    const ProgramRun run = Run(line);
    EXPECT_EQ(run.exit_code, kExitDone) << run.err;
    return run.out;
  };
  forget({"--ids", "3,7,20-21"});
  forget({"--range", "5:12"});
  EXPECT_THAT(forget({"--before", "16", "--way", "re-evaluation"}), HasSubstr("canonical"));
  forget({"--subject", "a"});
  EXPECT_EQ(Digest(session), Digest(want));
  const std::string fresh = Create();
  forget({"--everything"});
  EXPECT_EQ(Digest(session), Digest(fresh));
  Append(session, 12, 2);
  EXPECT_EQ(Digest(session), Digest(want));
}

TEST_F(VectorsStoryTest, ListsAndTablesShowWhatItIs) {
  const std::string session = Create({"--c", "0.25"});
  Append(session, 30, 1, "a\nb");
  const ProgramRun get = Run({"session", "get", session});
  EXPECT_THAT(get.out, HasSubstr("model                none (vector session)"));
  EXPECT_THAT(get.out, HasSubstr("box mass 1/C         4"));
  EXPECT_THAT(get.out, HasSubstr("ridge                0.000488281"));
  EXPECT_THAT(get.out, HasSubstr("inputs retained      30"));
  EXPECT_THAT(get.out, HasSubstr("epoch                1"));
  EXPECT_THAT(get.out, HasSubstr("slow solves"));
  EXPECT_THAT(get.out, Not(HasSubstr("snapshots")));
  EXPECT_THAT(Run({"session", "list"}).out, HasSubstr("none (vector session)"));
  const Json json = RunJson({"session", "get", session});
  EXPECT_EQ(json["vector_options"]["box_mass"], 4);
  EXPECT_FALSE(json["vector_options"].contains("c"));
  const ProgramRun inputs = Run({"session", "inputs", session, "--content"});
  EXPECT_THAT(inputs.out, HasSubstr("1-30   0-29  appended  a\\nb     no"));
  EXPECT_THAT(inputs.out, HasSubstr("30 inputs. Keys and values: lethe vectors list."));
  EXPECT_THAT(Run({"partition", session}).out, HasSubstr("30 keys, "));
  const ProgramRun reads = Run({"vectors", "read", session, "-"}, "0 0 0\n90 90 90\n");
  EXPECT_THAT(reads.out, HasSubstr("inside"));
  EXPECT_THAT(reads.out, HasSubstr("1 of 2 queries inside (decision 0 or above)."));
  const Json read_json = Json::parse(Reads(session), nullptr, false);
  ASSERT_EQ(read_json["reads"].size(), 20u);
  EXPECT_EQ(read_json["reads"][0]["readout"].size(), 2u);
  const std::string list = Run({"vectors", "list", session}).out;
  const Json row = Json::parse(list.substr(0, list.find('\n')), nullptr, false);
  EXPECT_EQ(row["token_id"], 1);
  EXPECT_EQ(row["subject"], "a\nb");
  EXPECT_EQ(row["key"].size(), 3u);
}

TEST_F(VectorsStoryTest, CertificateVerifiesAndEachChangedFileIsThree) {
  const std::string session = Create();
  Append(session, 40, 1);
  const ProgramRun certify = Run({"certify", session, "--out", Path("c"), "--bundle"});
  ASSERT_EQ(certify.exit_code, kExitDone) << certify.err;
  const std::vector<std::string> verify = {"verify", Path("c"), "--trust", server_->trust_path()};
  const ProgramRun verified = RunLethe(verify);
  EXPECT_EQ(verified.exit_code, kExitDone) << verified.out << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("ok           optimality"));
  EXPECT_THAT(verified.out, HasSubstr("ok           bundle path"));
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

TEST_F(VectorsStoryTest, ReplayReachesTheCertifiedStateWhateverTheBoxMass) {
  const TestServer fresh(Path("fresh"));
  int round = 0;
  // 3.3 and 1/0.3 are doubles that 1/(1/M) does not give back, 409.6 is nu n0 of the papers' setting.
  for (const std::vector<std::string>& box :
       std::vector<std::vector<std::string>>{{"--nu", "0.1", "--reference-size", "33"},
                                             {"--nu", "0.1", "--reference-size", "4096"},
                                             {"--box-mass", "3.3"},
                                             {"--c", "0.3"},
                                             {"--c", "0.020408163265306124"}}) {  // 1/49
    const std::string session = Create(box);
    Append(session, 25, 1);
    Append(session, 9, 2, "a");
    ASSERT_EQ(Run({"forget", session, "--subject", "a", "--derived", "fail"}).exit_code, 0);
    const std::string directory = Path(absl::StrCat("c", ++round));
    ASSERT_EQ(Run({"certify", session, "--out", directory, "--bundle"}).exit_code, kExitDone);
    Append(session, 3, 5);  // told since, so left out
    const ProgramRun replay =
        Run({"replay", session, "--certificate", directory, "--fresh-server", fresh.address()});
    EXPECT_EQ(replay.exit_code, kExitDone) << replay.err;
    EXPECT_THAT(replay.out, HasSubstr("25 retained inputs"));
    EXPECT_THAT(replay.out, HasSubstr("model         none (vector session)"));
  }
}

TEST_F(VectorsStoryTest, ReplayFromAFileNamesTheFirstPartThatDiffers) {
  const TestServer fresh(Path("fresh"));
  const std::string session = Create();
  Append(session, 25, 1);
  ASSERT_EQ(Run({"certify", session, "--out", Path("c")}).exit_code, kExitDone);
  ASSERT_EQ(Run({"session", "inputs", session, "--export", Path("in.json")}).exit_code, kExitDone);
  const std::string file = *ReadFile(Path("in.json"));
  const auto replay = [&](const std::string& json) {
    EXPECT_OK(WriteFile(Path("in.json"), json));
    return RunLethe({"replay", "--inputs", Path("in.json"), "--certificate", Path("c"),
                     "--fresh-server", fresh.address()});
  };
  EXPECT_EQ(replay(file).exit_code, kExitDone);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string json = file;
    const size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos);
    return json.replace(at, from.size(), to);
  };
  ASSERT_OK_AND_ASSIGN(InputsFile inputs, ParseInputsFile(file));
  std::vector<double>& keys = inputs.vectors.value().rows.keys.values;
  std::swap(keys[7], keys[8]);
  const ProgramRun key = replay(WriteInputsFile(inputs));
  EXPECT_EQ(key.exit_code, kExitVerificationFailed);
  EXPECT_THAT(key.err, HasSubstr("the replayed state differs: "));
  EXPECT_THAT(key.err, HasSubstr("layer.0.group.0.head.0.support"));
  const ProgramRun sigma = replay(changed("\"sigma\":1.7", "\"sigma\":1.6"));
  EXPECT_EQ(sigma.exit_code, kExitVerificationFailed);
  EXPECT_THAT(sigma.err, HasSubstr("other parameters of a vector session"));
  const ProgramRun width = replay(changed("\"key_dim\":3", "\"key_dim\":2"));
  EXPECT_EQ(width.exit_code, kExitUsage);
  EXPECT_THAT(width.err, HasSubstr("keys: want a list of rows of 2 numbers"));
  const ProgramRun model = RunLethe({"replay", "--inputs", Path("in.json"), "--certificate",
                                     Path("c"), "--model", "m", "--fresh-server", "h:1"});
  EXPECT_EQ(model.exit_code, kExitUsage);
}

TEST_F(VectorsStoryTest, EvictedReserveIsCertifiedAndReadsStay) {
  const std::string session = Create();
  Append(session, 60, 1);
  const std::string reads = Reads(session);
  const ProgramRun run = Run({"vectors", "evict", session, "--out", Path("e")});
  const Json session_json = RunJson({"session", "get", session});
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("Evicted "));
  EXPECT_LT(session_json["num_inputs"], 60);
  EXPECT_EQ(session_json["epoch"], 2);
  EXPECT_EQ(session_json["audit_seq"], 2);
  EXPECT_EQ(Reads(session), reads);
  const std::vector<std::string> verify = {"verify",     Path("e/2-select"),
                                           "--trust",    server_->trust_path(),
                                           "--previous", Path("e/1-certify")};
  const ProgramRun verified = RunLethe(verify);
  EXPECT_EQ(verified.exit_code, kExitDone) << verified.out << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("ok           sequence selections"));
  EXPECT_THAT(verified.out, HasSubstr("evicted-inputs"));
  const TestServer fresh(Path("fresh"));
  for (const char* certificate : {"e/2-select", "e3"}) {
    if (std::string(certificate) == "e3") {
      ASSERT_EQ(Run({"certify", session, "--out", Path("e3"), "--bundle"}).exit_code, kExitDone);
    }
    EXPECT_EQ(Run({"replay", session, "--certificate", Path(certificate), "--fresh-server",
                   fresh.address()})
                  .exit_code,
              kExitDone);
  }
  // Nothing is left to evict; the directory holds another certificate.
  EXPECT_EQ(Run({"vectors", "evict", session, "--out", Path("e")}).exit_code, kExitUsage);
  const ProgramRun again = Run({"vectors", "evict", session, "--out", Path("again")});
  EXPECT_EQ(again.exit_code, kExitRefused);
  EXPECT_THAT(again.err, HasSubstr("no reserve keys"));
}

TEST_F(VectorsStoryTest, EvictIsRefusedBeforeAnythingIsSigned) {
  const ProgramRun create =
      Run({"vectors", "create", "--key-dim", "1", "--sigma", "1", "--c", "0.5", "--id-only"});
  const std::string session = create.out.substr(0, create.out.size() - 1);
  ASSERT_EQ(Run({"vectors", "append", session, "-"}, "1\n2\n3\n").exit_code, kExitDone);
  const ProgramRun run = Run({"vectors", "evict", session, "--out", Path("e")});
  EXPECT_EQ(run.exit_code, kExitUsage);
  EXPECT_THAT(run.err, HasSubstr("created with --selection"));
  EXPECT_EQ(RunJson({"session", "get", session})["audit_seq"], 0);
}

TEST_F(VectorsStoryTest, ALargeFileGoesInPartsAndSaysWhatWentIn) {
  const ProgramRun create =
      Run({"vectors", "create", "--key-dim", "1024", "--sigma", "40", "--c", "0.1", "--id-only"});
  const std::string session = create.out.substr(0, create.out.size() - 1);
  // 2 MiB hold 256 rows of 1,024 numbers.
  ASSERT_OK(WriteFile(Path("keys"), Matrix(280, 1024, 1)));
  const std::vector<std::string> line = {"vectors",    "append",       session,
                                         Path("keys"), "--request-id", "load"};
  for (int round = 0; round < 2; ++round) {  // a repeat returns the first answers
    const ProgramRun run = Run(line);
    EXPECT_EQ(run.exit_code, kExitDone) << run.err;
    EXPECT_THAT(run.out, HasSubstr("Appended 280 vectors, token_ids 1-280"));
  }
  EXPECT_EQ(RunJson({"session", "get", session})["num_inputs"], 280);
  const ProgramRun create_small =
      Run({"vectors", "create", "--key-dim", "1024", "--sigma", "40", "--c", "0.1", "--id-only"});
  const std::string full = create_small.out.substr(0, create_small.out.size() - 1);
  ASSERT_OK(WriteFile(Path("keys"), Matrix(310, 1024, 1)));
  const ProgramRun run = Run({"vectors", "append", full, Path("keys")});
  EXPECT_EQ(run.exit_code, kExitRefused);
  EXPECT_THAT(run.err, HasSubstr("only the first part of the file was appended, token_ids 1-256"));
  EXPECT_THAT(run.err, HasSubstr("keys: got 54 rows, the session can take 44 more (limit 300)"));
  EXPECT_THAT(run.err, HasSubstr("TOO_MANY_VECTORS"));
}

TEST_F(VectorsStoryTest, RefusalsNameTheFieldAndTheRange) {
  const std::string session = Create();
  Append(session, 5, 1);
  const std::string digest = Digest(session);
  const std::string tokens = Run({"session", "create", "--id-only"}).out;
  const std::string model_session = tokens.substr(0, tokens.size() - 1);
  ASSERT_OK(WriteFile(Path("values"), "1 2\n"));
  struct Refusal {
    std::vector<std::string> line;
    std::string input;
    int exit_code;
    std::string text;
  };
  const auto create = [](const std::vector<std::string>& rest) {
    std::vector<std::string> line = {"vectors", "create", "--key-dim", "3"};
    line.insert(line.end(), rest.begin(), rest.end());
    return line;
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {{"vectors", "append", session, "-", "--values", Path("values")},
            "1 nan 2\n",
            kExitUsage,
            "standard input: line 1, column 2: want a decimal number"},
           {{"vectors", "append", session, "-", "--values", Path("values")},
            "1 2\n",
            kExitRefused,
            "keys.num_columns: want 3"},
           {{"vectors", "append", session, "-"},
            "1 2 3\n",
            kExitRefused,
            "vectors append --values FILE: a row for each key"},
           {{"vectors", "append", session, "-", "--values", Path("values")},
            "1 2 3\n4 5 6\n",
            kExitUsage,
            "--values: want a row for each of the 2 keys, got 1 row"},
           {{"vectors", "append", session, "-", "--values", "-"}, "", kExitUsage, "only one of"},
           {{"vectors", "append", model_session, "-"}, "1\n", kExitRefused, "WRONG_SESSION_KIND"},
           {{"vectors", "read", session, "-"}, "1\n", kExitRefused, "queries.num_columns: want 3"},
           {{"vectors", "list", model_session}, "", kExitRefused, "needs a vector session"},
           {{"append", session, "--text", "zelvim"}, "", kExitRefused, "session of a model"},
           {{"generate", session, "--prompt", "zelvim"}, "", kExitRefused, "lethe vectors append"},
           {{"vectors", "evict", "unknown", "--out", Path("x")}, "", kExitRefused, "NOT_FOUND"},
           {create({"--sigma", "0", "--c", "0.5"}), "", kExitRefused, "options.sigma: want"},
           {create({"--sigma", "1", "--c", "0"}), "", kExitRefused, "options.c: want"},
           {create({"--sigma", "1", "--c", "0.5", "--nu", "0.1"}), "", kExitUsage, "exactly one"},
           {create({"--sigma", "1"}), "", kExitUsage, "exactly one of --c, --box-mass"},
           {create({"--sigma", "1", "--nu", "0.1"}), "", kExitUsage, "--reference-size"},
           {create({"--sigma", "1", "--nu", "0.1", "--reference-size", "9"}), "", kExitRefused,
            "options.nu.reference_size: want such that nu reference_size is 1 to 65536"},
           {create({"--sigma", "1", "--c", "0.5", "--ridge", "2"}), "", kExitRefused,
            "options.ridge: want"},
           {create({"--sigma", "nan", "--c", "1"}), "", kExitUsage,
            "--sigma: want a number from"}}) {
    const ProgramRun run = Run(refusal.line, refusal.input);
    EXPECT_EQ(run.exit_code, refusal.exit_code) << refusal.text << ": " << run.err;
    EXPECT_THAT(run.err, HasSubstr(refusal.text));
    EXPECT_THAT(run.err, Not(HasSubstr("zelvim")));
    EXPECT_EQ(Digest(session), digest) << refusal.text;
  }
}

}  // namespace
}  // namespace lethe::client
