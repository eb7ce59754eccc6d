#include "server/bench/recall.h"

#include <cstring>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/status_macros.h"
#include "server/generation/generation.h"
#include "server/generation/ingest.h"
#include "server/session_registry/session_registry.h"

namespace lethe::bench {
namespace {

constexpr int64_t kMaxReplyTokens = 32;

class NoDeadline : public Call {
 public:
  absl::Status Check() const override { return absl::OkStatus(); }
};

// Keeps the bytes as drawn.
class ReplySink : public GenerateSink {
 public:
  bool Started(const StartedEvent& /*event*/) override { return true; }
  bool Delta(const DeltaEvent& event) override {
    for (const GeneratedTokenEvent& token : event.tokens) {
      reply_.push_back(static_cast<char>(token.vocab_id));
    }
    return true;
  }
  bool ForgetNotice(const ForgetNoticeEvent& /*event*/) override { return true; }
  bool Progress(const ProgressEvent& /*event*/) override { return true; }
  bool Finished(const FinishedEvent& /*event*/) override { return true; }
  const std::string& reply() const { return reply_; }

 private:
  std::string reply_;
};

// A session of its own registry, driven as the server's services drive it.
class ServedSession {
 public:
  static absl::StatusOr<ServedSession> Create(const std::shared_ptr<const Model>& model) {
    ServedSession served;
    LETHE_ASSIGN_OR_RETURN(served.entry_, served.registry_->Create({model, {}, ""}, {}));
    return served;
  }

  absl::Status Tell(const std::string& text, const std::string& subject) {
    const AppendCommand command{entry_->model->Tokenize(text), subject, {}};
    return AppendInputs(command, call_, scheduler_.get(), entry_).status();
  }

  absl::StatusOr<std::string> Ask(const std::string& query) {
    GenerateCommand command;
    command.prompt = entry_->model->Tokenize(query);
    command.sampling.max_tokens = kMaxReplyTokens;
    command.stop = {"."};
    command.remember = false;
    ReplySink sink;
    LETHE_RETURN_IF_ERROR(Generate(command, call_, scheduler_.get(), entry_, &sink));
    return sink.reply();
  }

  absl::Status ForgetSubject(const std::string& subject) {
    FairMutexLock lock(&entry_->mutex);
    return entry_->LiveModelSession()
        .value()
        ->Forget(ForgetSelector::Subject(subject), DerivedPolicy::kFail)
        .status();
  }

  audit::Sha256Digest Digest() {
    FairMutexLock lock(&entry_->mutex);
    return entry_->session->Digest();
  }

  // Of the next token, then after each byte of `query`.
  absl::StatusOr<std::vector<float>> Logits(const std::string& query) {
    FairMutexLock lock(&entry_->mutex);
    const absl::Span<const float> next = entry_->LiveModelSession().value()->logits();
    std::vector<float> all(next.begin(), next.end());
    LETHE_ASSIGN_OR_RETURN(
        const std::vector<float> scored,
        entry_->LiveModelSession().value()->Score(entry_->model->Tokenize(query)));
    all.insert(all.end(), scored.begin(), scored.end());
    return all;
  }

  int64_t num_tokens() {
    FairMutexLock lock(&entry_->mutex);
    return entry_->session->num_tokens();
  }

 private:
  std::unique_ptr<SessionRegistry> registry_ = std::make_unique<SessionRegistry>(1);
  std::unique_ptr<ComputeScheduler> scheduler_ = std::make_unique<ComputeScheduler>(1);
  std::shared_ptr<SessionEntry> entry_;
  NoDeadline call_;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

absl::StatusOr<RecallOutcome> RunRecallCase(const std::shared_ptr<const Model>& model,
                                            const RecallCase& recall_case) {
  LETHE_ASSIGN_OR_RETURN(ServedSession told, ServedSession::Create(model));
  LETHE_ASSIGN_OR_RETURN(ServedSession fresh, ServedSession::Create(model));
  std::string rest;
  for (const RecallPart& part : recall_case.parts) {
    LETHE_RETURN_IF_ERROR(told.Tell(part.text, part.subject));
    if (part.subject != recall_case.subject) rest += part.text;
  }
  RecallOutcome outcome;
  outcome.num_tokens = told.num_tokens();
  LETHE_ASSIGN_OR_RETURN(outcome.reply, told.Ask(recall_case.query));
  LETHE_RETURN_IF_ERROR(told.ForgetSubject(recall_case.subject));
  LETHE_RETURN_IF_ERROR(fresh.Tell(rest, ""));
  outcome.same_digest = told.Digest() == fresh.Digest();
  LETHE_ASSIGN_OR_RETURN(const std::vector<float> after, told.Logits(recall_case.query));
  LETHE_ASSIGN_OR_RETURN(const std::vector<float> never, fresh.Logits(recall_case.query));
  outcome.same_logits = SameBits(after, never);
  LETHE_ASSIGN_OR_RETURN(outcome.reply_after, told.Ask(recall_case.query));
  LETHE_ASSIGN_OR_RETURN(outcome.reply_fresh, fresh.Ask(recall_case.query));
  return outcome;
}

}  // namespace lethe::bench
