// Goal: once a Forget has returned, no byte of what it forgot is in the server's files, answers, messages or memory, for
// every memory kind, in models' and in vector sessions, before and after a restart and a kill at every step; and the scan
// that says so would find what any one wipe leaves.
// Method: random markers go in on every way that content goes in, are forgotten in every way, and are looked for in every
// form (markers.h) together with what was computed from them (features.h). Controls: the same with one wipe off.
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/model/config.h"
#include "server/model/synthetic_model.h"
#include "tests/erasure/erasure_server.h"
#include "tests/erasure/features.h"
#include "tests/integration/vectors_testing.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/long_run.h"

namespace lethe::testing {
namespace {

// Markers in a run that proves little and is enough for a control, or for CI.
struct Size {
  int num_texts = 60;  // in each session of a model
  int num_rows = 100;  // in each vector session
};

std::shared_ptr<const Model> BoundedModel() {
  const ModelConfig config = ParseModelConfig(ErasureModelConfig(kBoundedModel)).value();
  return Model::Create(config, SyntheticTensors(config, kErasureWeights)).value();
}

class ErasureScanTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef LETHE_SANITIZED
    GTEST_SKIP()
        << "skipped because sanitizers bring their own allocator: this build does not wipe";
#endif
  }
};

class ErasureScan {
 public:
  ErasureScan(ErasureServer* server, uint64_t seed) : server_(server), markers_(seed) {}

  void PlantAndForget(const Size& size) {
    for (const char* model : {kBoundedModel, kContextualModel}) {
      for (const bool with_answers : {false, true}) {
        ForgetTexts(PlantTexts(model, size.num_texts, with_answers));
      }
    }
    for (const bool as_floats : {false, true}) PlantAndForgetRows(size.num_rows, as_floats);
    // All of a session at once.
    const Planted all = PlantTexts(kBoundedModel, 5, false);
    EXPECT_TRUE(server_->Delete(all.session).ok());
  }

  // From several threads at once, so that the server has several threads to remember it; then all of it goes at once.
  void PlantInParallelAndForget() {
    constexpr int kNumCallers = 8;
    std::vector<std::string> sessions;
    std::vector<std::string> texts;
    std::vector<std::string> labels;
    for (int k = 0; k < kNumCallers; ++k) {
      sessions.push_back(server_->CreateSession(k % 2 == 0 ? kBoundedModel : kContextualModel));
      texts.push_back(markers_.Text());
      labels.push_back(markers_.Label());
    }
    std::vector<std::thread> callers;
    for (size_t k = 0; k < sessions.size(); ++k) {
      callers.emplace_back([&, k] { server_->Generate(sessions[k], texts[k], labels[k], true); });
    }
    for (std::thread& caller : callers) caller.join();
    for (const std::string& session : sessions) EXPECT_TRUE(server_->Delete(session).ok());
  }

  // Sessions that have left memory, with snapshots of their states, before they are told to forget.
  void PlantAndForgetSpilled(const Size& size) {
    const std::vector<Planted> all = {PlantTexts(kBoundedModel, size.num_texts, false),
                                      PlantTexts(kContextualModel, size.num_texts, true)};
    EXPECT_TRUE(server_->AwaitWord("[1-9][0-9]* for --resident-mib.*snapshots of [1-9]"));
    for (const Planted& planted : all) ForgetTexts(planted);
  }

  // A person in sessions that were exported, imported and left alone; one job forgets everywhere.
  void PlantAndForgetPeople(int count) {
    std::vector<std::string> labels;
    std::vector<std::string> sessions;
    for (int k = 0; k < count; ++k) {
      labels.push_back(markers_.Label());
      sessions.push_back(server_->CreateSession(k % 2 == 0 ? kBoundedModel : kContextualModel));
      server_->Append(sessions.back(), "what stays", "");
      server_->Append(sessions.back(), markers_.Text(), labels.back());
      server_->Append(sessions.back(), markers_.Text(), labels.front());
    }
    for (const std::string& session : sessions) {
      const std::string imported = server_->Import(server_->Export(session));
      EXPECT_NE(imported, session);
    }
    for (const std::string& label : labels) server_->ForgetEverywhere(label);
  }

  Markers& markers() { return markers_; }

 private:
  struct Planted {
    std::string session;
    std::vector<PlantedText> texts;
    std::vector<v1::TokenRange> ranges;  // of texts with a label
  };

  Planted PlantTexts(const std::string& model, int count, bool with_answers) {
    Planted planted;
    planted.session = server_->CreateSession(model);
    for (int k = 0; k < count; ++k) {
      planted.texts.push_back({"what stays, part " + std::to_string(k), ""});
      server_->Append(planted.session, planted.texts.back().text, "");
      planted.texts.push_back({markers_.Text(), markers_.Label()});
      const auto& [text, label] = planted.texts.back();
      if (with_answers && k % 4 == 1) {
        // The answer has the label too.
        server_->Generate(planted.session, text, label, true);
        planted.ranges.emplace_back();
        continue;
      }
      if (with_answers && k % 4 == 3) {
        server_->Generate(planted.session, markers_.Text(), markers_.Label(), false);
      }
      planted.ranges.push_back(server_->Append(planted.session, text, label));
      markers_.AddTokenIds(text, planted.ranges.back().first());
    }
    if (model == kBoundedModel && !with_answers) {
      AddModelFeatures(BoundedModel(), planted.texts, &markers_);
    }
    ReadAll(planted.session);
    return planted;
  }

  // What is to be forgotten goes out in answers, and into a record whose opening and bundle are to go.
  void ReadAll(const std::string& session) {
    server_->Certify(session);
    static_cast<void>(server_->RepliesAbout(session));
    server_->DropSeen();
  }

  void ForgetTexts(const Planted& planted) {
    size_t k = 0;
    for (const PlantedText& text : planted.texts) {
      if (text.label.empty()) continue;
      const v1::TokenRange& range = planted.ranges[k++];
      const bool by_range = k % 3 == 0 && range.end() > 0;
      const grpc::Status status = by_range ? server_->ForgetRange(planted.session, range)
                                           : server_->ForgetSubject(planted.session, text.label);
      EXPECT_TRUE(status.ok()) << status.error_message();
      // The refusal names nothing.
      if (k % 16 == 0) {
        EXPECT_FALSE(server_->ForgetSubject(planted.session, text.label).ok());
      }
    }
    server_->Certify(planted.session);
  }

  void PlantAndForgetRows(int count, bool as_floats) {
    const std::string session = server_->CreateVectorSession();
    std::vector<double> retained;
    std::vector<double> forgotten;
    std::vector<std::string> labels;
    for (int k = 0; k < count; ++k) {
      const std::vector<double> keys = Normals(kKeyDim, static_cast<unsigned>(k));
      retained.insert(retained.end(), keys.begin(), keys.end());
      server_->AppendRows(session, keys, Normals(kValueDim, static_cast<unsigned>(k)), "");
      const std::vector<double> secret = markers_.Numbers(kKeyDim, as_floats);
      forgotten.insert(forgotten.end(), secret.begin(), secret.end());
      labels.push_back(markers_.Label());
      server_->AppendRows(session, secret, markers_.Numbers(kValueDim, as_floats), labels.back());
    }
    AddVectorFeatures(forgotten, retained, &markers_);
    for (int k = 0; k < 5; ++k) server_->Read(session, markers_.Numbers(kKeyDim, as_floats));
    ReadAll(session);
    for (const std::string& label : labels) {
      const grpc::Status status = server_->ForgetSubject(session, label);
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
    server_->Certify(session);
  }

  ErasureServer* const server_;
  Markers markers_;
};

// What is left when the last Forget has returned, before anything else happens on the connection.
std::vector<Hit> LeftInMemory(std::optional<Fault> fault, const Size& size) {
  ErasureServer server(fault);
  ErasureScan scan(&server, 2);
  scan.PlantAndForget(size);
  scan.PlantInParallelAndForget();
  return server.ScanMemory(scan.markers());
}

class ErasureScanRounds : public ErasureScanTest {};

TEST_F(ErasureScanRounds, NothingIsLeftAnywhere) {
  for (LongRun run("erasure_scan"); run.Next() && !HasFailure();) {
    ErasureServer server;
    ErasureScan scan(&server, run.seed());
    scan.PlantAndForget({});
    scan.PlantInParallelAndForget();
    EXPECT_GE(scan.markers().num_planted(), 1000);
    // First what the last calls left, then what asking for everything brings up.
    std::vector<Hit> hits = server.ScanMemory(scan.markers());
    EXPECT_TRUE(hits.empty()) << Describe(hits);
    hits = server.ScanReplies(scan.markers());
    EXPECT_TRUE(hits.empty()) << Describe(hits);
    hits = server.ScanFiles(scan.markers());
    EXPECT_TRUE(hits.empty()) << Describe(hits);
    hits = server.ScanMemory(scan.markers());
    EXPECT_TRUE(hits.empty()) << Describe(hits);
    run.Count("markers", scan.markers().num_planted());
    run.Count("patterns", static_cast<int64_t>(scan.markers().scanner().num_patterns()));
    run.Count("MB scanned", scan.markers().scanner().num_bytes() >> 20);
  }
}

// Sessions are on disk alone after a start, and in memory again once they are asked something.
TEST_F(ErasureScanTest, NothingIsLeftAfterAKillAndARestart) {
  ErasureServer server;
  ErasureScan scan(&server, 3);
  scan.PlantAndForget({12, 12});
  server.Kill();
  std::vector<Hit> hits = server.ScanFiles(scan.markers());
  EXPECT_TRUE(hits.empty()) << Describe(hits);
  server.Start();
  hits = server.ScanMemory(scan.markers());
  EXPECT_TRUE(hits.empty()) << Describe(hits);
  hits = server.ScanReplies(scan.markers());
  EXPECT_TRUE(hits.empty()) << Describe(hits);
  hits = server.ScanMemory(scan.markers());
  EXPECT_TRUE(hits.empty()) << Describe(hits);
}

// Everything that a scan looks at, after what was done.
void ExpectNothingLeft(ErasureServer* server, const Markers& markers) {
  std::vector<Hit> hits = server->ScanMemory(markers);
  EXPECT_TRUE(hits.empty()) << Describe(hits);
  hits = server->ScanReplies(markers);
  EXPECT_TRUE(hits.empty()) << Describe(hits);
  hits = server->ScanFiles(markers);
  EXPECT_TRUE(hits.empty()) << Describe(hits);
}

TEST_F(ErasureScanTest, NothingIsLeftOfSessionsThatHadLeftMemory) {
  ErasureServer server(std::nullopt, {"--resident-mib", "1"});
  ErasureScan scan(&server, 5);
  scan.PlantAndForgetSpilled({60, 0});
  ExpectNothingLeft(&server, scan.markers());
  server.Kill();
  server.Start();
  ExpectNothingLeft(&server, scan.markers());
}

TEST_F(ErasureScanTest, NothingIsLeftOfAPersonWhoWasForgottenEverywhere) {
  ErasureServer server;
  ErasureScan scan(&server, 6);
  scan.PlantAndForgetPeople(8);
  ExpectNothingLeft(&server, scan.markers());
  server.Kill();
  server.Start();
  ExpectNothingLeft(&server, scan.markers());
}

TEST_F(ErasureScanTest, NothingIsLeftWhateverStepOfAForgetAKillStrikes) {
  ErasureServer server;
  Markers markers(4);
  const std::string session = server.CreateSession(kBoundedModel);
  server.Append(session, "what stays", "");
  int num_kills = 0;
  for (bool killed = true; killed;) {
    const std::string text = markers.Text();
    const std::string label = markers.Label();
    markers.AddTokenIds(text, server.Append(session, text, label).first());
    const std::string request_id = "forget-" + std::to_string(num_kills);
    server.CrashAtPoint(num_kills + 1);
    killed = !server.ForgetSubject(session, label, request_id).ok();
    if (!killed) break;
    ++num_kills;
    EXPECT_EQ(server.Wait(), kCrashExit);
    server.Start();
    // A repeat: done already, or done now.
    const grpc::Status status = server.ForgetSubject(session, label, request_id);
    ASSERT_TRUE(status.ok()) << num_kills << ": " << status.error_message();
    std::vector<Hit> hits = server.ScanFiles(markers);
    EXPECT_TRUE(hits.empty()) << num_kills << ": " << Describe(hits);
    hits = server.ScanMemory(markers);
    EXPECT_TRUE(hits.empty()) << num_kills << ": " << Describe(hits);
  }
  EXPECT_GE(num_kills, 8);
  std::printf("killed at %d steps\n", num_kills);
}

TEST_F(ErasureScanTest, NoCoreIsWritten) {
  ErasureServer server;
  EXPECT_THAT(server.ProcessFile("limits"), ::testing::ContainsRegex("Max core file size +0 +0 "));
  EXPECT_EQ(server.ProcessFile("coredump_filter"), "00000000\n");
}

// Controls: one wipe off, and the scan finds what it leaves; all on, and a run of the same size finds nothing. (Stacks
// hold nothing of these calls even when they are not wiped; their control is in wiping_test.cc.)
TEST_F(ErasureScanTest, EachWipeThatIsOffIsFound) {
  constexpr Size kSmall{12, 12};
  EXPECT_TRUE(LeftInMemory(std::nullopt, kSmall).empty());
  for (const Fault fault : {Fault::kFreedMemoryKept, Fault::kReceivedBytesKept}) {
    EXPECT_FALSE(LeftInMemory(fault, kSmall).empty()) << "fault " << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace lethe::testing
