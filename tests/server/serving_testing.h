// TinyModel, FakeCall, RecordingSink, TestTrail: what tests of the serving layers share, without
// gRPC.
//
// Threads: TinyModel and FakeCall are safe; a RecordingSink belongs to one stream.
#ifndef LETHE_TESTS_SERVER_SERVING_TESTING_H_
#define LETHE_TESTS_SERVER_SERVING_TESTING_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/certification/audit_trail.h"
#include "server/generation/generation.h"
#include "server/scheduler/call.h"
#include "server/session_registry/session_registry.h"
#include "server/store/data_directory.h"

namespace lethe::testing {

// A model of a few thousand random parameters with a local layer, all memory kinds and 600 tokens
// of history at most; the box mass of its support-vector head is 8. One object for the whole test
// program.
std::shared_ptr<const Model> TinyModel();
// config.json of TinyModel under another name, and a directory that Model::Load reads.
std::string TinyConfig(const std::string& name);
void WriteTinyModel(const std::string& directory, const std::string& name);

// A fresh directory, removed with the object.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class FakeCall : public Call {
 public:
  absl::Status Check() const override {
    return cancelled ? absl::CancelledError("gone") : absl::OkStatus();
  }
  bool stopping() const override { return stop; }
  std::atomic<bool> cancelled{false};
  std::atomic<bool> stop{false};
};

// Keeps every event; `on_event` runs after each one, on the stream's thread and without any lock
// held.
class RecordingSink : public GenerateSink {
 public:
  bool Started(const StartedEvent& event) override;
  bool Delta(const DeltaEvent& event) override;
  bool ForgetNotice(const ForgetNoticeEvent& event) override;
  bool Progress(const ProgressEvent& event) override;
  bool Finished(const FinishedEvent& event) override;

  std::vector<int32_t> VocabIds() const;
  std::string Raw() const;

  int64_t tokens_accepted_max = INT64_MAX;  // later deltas fail: the client is gone
  std::function<void()> on_token;           // after an accepted delta with a token
  std::function<void()> on_started;
  std::vector<StartedEvent> started;
  std::vector<DeltaEvent> deltas;
  std::vector<GeneratedTokenEvent> tokens;
  std::vector<ForgetNoticeEvent> notices;
  std::vector<ProgressEvent> progress;
  std::vector<FinishedEvent> finished;
};

// A data directory with keys and log in a TempDirectory.
struct TestTrail {
  TestTrail();
  TempDirectory directory;
  std::unique_ptr<DataDirectory> data;
  AuditTrail trail;
};

RequestKey Key(const std::string& request_id, const std::string& content = "content");

// A generate command over a text prompt, greedy.
GenerateCommand Prompt(const std::string& text, int64_t max_tokens);

std::shared_ptr<SessionEntry> NewEntry(SessionRegistry* registry);
audit::Sha256Digest DigestOf(const std::shared_ptr<SessionEntry>& entry);
// Digest of a fresh session that was given `vocab_ids`.
audit::Sha256Digest FreshDigest(const std::vector<int32_t>& vocab_ids);
std::vector<int32_t> HistoryOf(const std::shared_ptr<SessionEntry>& entry);
// What a fresh session with this history goes on to write.
std::vector<int32_t> Continuation(const std::vector<int32_t>& history,
                                  const SamplingParameters& sampling, int64_t count);

}  // namespace lethe::testing

#endif  // LETHE_TESTS_SERVER_SERVING_TESTING_H_
