#include "server/bench/store_world.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/bench/report.h"
#include "server/generation/ingest.h"
#include "server/session_registry/resident_sessions.h"
#include "server/vector_session/vector_commands.h"

namespace lethe::bench {
namespace {

constexpr int64_t kKeyDim = 16;

// Nobody hangs up.
class BenchCall final : public Call {
 public:
  absl::Status Check() const override { return absl::OkStatus(); }
};

VectorOptions BenchVectors() {
  VectorOptions vectors;
  vectors.params = svdd::MakeParams(2.0, 64, 0x1.0p-11, kKeyDim).value();
  return vectors;
}

std::string LabelOf(int64_t batch) { return absl::StrCat("batch-", batch); }

}  // namespace

StoreWorld::StoreWorld(const StoreWorldOptions& options)
    : options_(options), scheduler_(options.threads), registry_(options.max_sessions) {}

absl::StatusOr<std::unique_ptr<StoreWorld>> StoreWorld::Open(const StoreWorldOptions& options) {
  std::unique_ptr<StoreWorld> world(new StoreWorld(options));
  if (options.model != nullptr) LETHE_RETURN_IF_ERROR(world->models_.Add(options.model));
  const double start = Now();
  LETHE_ASSIGN_OR_RETURN(world->data_,
                         DataDirectory::Open(options.directory, "lethe.dev/audit/bench"));
  world->trail_ = {world->data_->log(), world->data_->recorder(), audit::Sha256Of("lethe-bench"),
                   "lethe bench"};
  LETHE_ASSIGN_OR_RETURN(
      world->summary_, RecoverSessions({world->data_->store(), world->data_->log(), &world->models_,
                                        kDefaultStoredInputBytes, &world->trail_},
                                       &world->registry_));
  world->open_seconds_ = Now() - start;
  return world;
}

absl::Status StoreWorld::Append(const std::shared_ptr<SessionEntry>& entry, int64_t num_inputs,
                                int64_t batch, uint64_t seed) {
  const BenchCall call;
  const RequestKey request{absl::StrCat("append-", batch), {}};
  if (options_.model != nullptr) {
    return AppendInputs({SampleText(num_inputs, seed), LabelOf(batch), request}, call, &scheduler_,
                        entry)
        .status();
  }
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> keys(static_cast<size_t>(num_inputs * kKeyDim));
  for (double& number : keys) number = normal(random);
  return AppendVectors({keys, {}, LabelOf(batch), request}, call, &scheduler_, entry).status();
}

absl::Status StoreWorld::AddSession(int64_t num_inputs, uint64_t seed) {
  NewSession wanted{options_.model, {}, "", BenchVectors()};
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<SessionEntry> entry,
                         registry_.Create(wanted, {absl::StrCat("create-", seed), {}}));
  for (int64_t batch = 0; batch < kBatches; ++batch) {
    LETHE_RETURN_IF_ERROR(Append(entry, num_inputs / kBatches, batch,
                                 seed * kBatches + static_cast<uint64_t>(batch)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ForgetReceipt> StoreWorld::Forget(const std::string& session_id, int64_t batch) {
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<SessionEntry> entry, registry_.Find(session_id));
  ForgetCommand command;
  command.selector = ForgetSelector::Subject(LabelOf(batch));
  command.policy = DerivedPolicy::kForgetDerived;
  command.request = {absl::StrCat("forget-", batch), {}};
  return ForgetInputs(command, BenchCall(), &scheduler_, trail_, entry);
}

absl::StatusOr<audit::Sha256Digest> StoreWorld::Digest(const std::string& session_id) {
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<SessionEntry> entry, registry_.Find(session_id));
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(const AnySession* session, entry->LiveSession());
  return session->Digest();
}

void StoreWorld::SpillAll() const {
  SpillSessions(registry_, [] { return true; });
}

std::vector<std::string> StoreWorld::SessionIds() const {
  std::vector<std::string> ids;
  for (const auto& entry : registry_.List("", static_cast<size_t>(options_.max_sessions))) {
    ids.push_back(entry->session_id);
  }
  return ids;
}

}  // namespace lethe::bench
