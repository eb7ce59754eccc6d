#include "server/device/sv_session.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <variant>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "memory/svdd/sv_memory.h"

namespace lethe {
namespace {

constexpr size_t kRowsAlignment = 16;  // of what a head points to

size_t Size(int64_t count) { return static_cast<size_t>(count); }

size_t AlignedRows(size_t bytes) {
  return (bytes + kRowsAlignment - 1) / kRowsAlignment * kRowsAlignment;
}

uint64_t NewStamp() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

// Rows [first, first + count) of [H][64][dim] to [count][H][dim].
WipedFloats TokenRows(const WipedFloats& tail, int64_t num_heads, int64_t dim, int64_t first,
                      int64_t count) {
  WipedFloats rows;
  rows.reserve(Size(count * num_heads * dim));
  for (int64_t t = first; t < first + count; ++t) {
    for (int64_t head = 0; head < num_heads; ++head) {
      const float* row = tail.data() + (head * kSvTailTokens + t) * dim;
      rows.insert(rows.end(), row, row + dim);
    }
  }
  return rows;
}

absl::Status Download(Queue* queue, const DeviceArray<float>& from, WipedFloats* to) {
  to->resize(from.size());
  return queue->CopyToHost(from.data(), from.size() * sizeof(float), to->data());
}

// A head's support behind what `block` holds; returns where its four parts begin.
struct SupportPlaces {
  size_t keys, key_of, gates, values;
};
template <typename T>
size_t Append(absl::Span<const T> values, WipedVector<std::byte>* block) {
  const size_t at = block->size();
  block->resize(at + AlignedRows(values.size() * sizeof(T)));
  if (!values.empty()) std::memcpy(block->data() + at, values.data(), values.size() * sizeof(T));
  return at;
}
SupportPlaces AppendSupport(const SvSupport& support, WipedVector<std::byte>* block) {
  SupportPlaces places;
  places.keys = Append(support.keys, block);
  places.key_of = Append(support.key_of, block);
  places.gates = Append(support.gates, block);
  places.values = Append(support.values, block);
  return places;
}

}  // namespace

bool HasSvGroups(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&layer);
    if (memory == nullptr) continue;
    for (const GroupConfig& group : memory->groups) {
      if (group.kind == MemoryKind::kSv) return true;
    }
  }
  return false;
}

absl::StatusOr<std::unique_ptr<SvSession>> SvSession::Empty(
    const DeviceModel* model, std::shared_ptr<const ModelConfig> config) {
  std::unique_ptr<SvSession> session(new SvSession(model, std::move(config)));
  Queue* queue = model->queue();
  for (size_t i = 0; i < session->config_->layers.size(); ++i) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&session->config_->layers[i]);
    if (memory == nullptr) continue;
    const auto& weights = std::get<MemoryWeights>(model->model().layer(i).layer);
    for (size_t g = 0; g < memory->groups.size(); ++g) {
      if (memory->groups[g].kind != MemoryKind::kSv) continue;
      Group group;
      group.config = &memory->groups[g];
      group.weights = &weights.groups[g];
      const int64_t rows = group.config->heads * kSvTailTokens;
      LETHE_ASSIGN_OR_RETURN(group.tail_keys,
                             DeviceArray<float>::Zeros(queue, Size(rows * group.config->key_dim)));
      LETHE_ASSIGN_OR_RETURN(group.tail_values, DeviceArray<float>::Zeros(
                                                    queue, Size(rows * group.config->value_dim)));
      session->groups_.push_back(std::move(group));
    }
  }
  return session;
}

absl::StatusOr<std::unique_ptr<SvSession>> SvSession::Create(
    const DeviceModel* model, std::shared_ptr<const ModelConfig> config) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<SvSession> session, Empty(model, std::move(config)));
  const auto norm_eps = static_cast<float>(session->config_->norm_eps);
  for (Group& group : session->groups_) {
    LETHE_ASSIGN_OR_RETURN(group.memory,
                           MemoryGroup::Create(*group.config, *group.weights, norm_eps));
  }
  LETHE_RETURN_IF_ERROR(session->UploadSupport());
  return session;
}

int64_t SvSession::num_on_host() const {
  return groups_.empty() ? num_tokens_ : groups_[0].memory->sv_memory()->num_tokens();
}

bool SvSession::is_at_boundary() const {
  return num_tokens_ % kSvTailTokens == 0 && num_on_host() < num_tokens_;
}

absl::Status SvSession::Download() {
  const int64_t first = num_on_host() % kSvTailTokens;
  num_pending_ = num_tokens_ - num_on_host();
  LETHE_CHECK(first + num_pending_ <= kSvTailTokens);
  if (num_pending_ == 0) return absl::OkStatus();
  WipedFloats tail;
  for (Group& group : groups_) {
    const GroupConfig& config = *group.config;
    LETHE_RETURN_IF_ERROR(lethe::Download(model_->queue(), group.tail_keys, &tail));
    group.pending_keys = TokenRows(tail, config.heads, config.key_dim, first, num_pending_);
    LETHE_RETURN_IF_ERROR(lethe::Download(model_->queue(), group.tail_values, &tail));
    group.pending_values = TokenRows(tail, config.heads, config.value_dim, first, num_pending_);
  }
  return absl::OkStatus();
}

absl::Status SvSession::Write(size_t index) {
  Group& group = groups_[index];
  MemoryInputs inputs;
  inputs.k = group.pending_keys;
  inputs.v = group.pending_values;
  const absl::Status written = group.memory->Write(inputs, num_pending_);
  group.pending_keys = WipedFloats();
  group.pending_values = WipedFloats();
  return written;
}

absl::Status SvSession::Sync() {
  LETHE_RETURN_IF_ERROR(Download());
  if (num_pending_ == 0) return absl::OkStatus();
  for (size_t index = 0; index < groups_.size(); ++index) {
    LETHE_RETURN_IF_ERROR(Write(index));
  }
  return absl::OkStatus();
}

absl::Status SvSession::UploadSupport(Group* group) {
  Queue* queue = model_->queue();
  const svdd::SvMemory& memory = *group->memory->sv_memory();
  WipedVector<std::byte> block;
  std::vector<SupportPlaces> places;
  for (int64_t head = 0; head < memory.num_heads(); ++head) {
    places.push_back(AppendSupport(memory.support(head), &block));
  }
  if (block.size() > group->support.size()) {
    // Room to grow: an allocation waits for the device.
    LETHE_ASSIGN_OR_RETURN(group->support,
                           DeviceArray<std::byte>::Zeros(queue, block.size() * 3 / 2));
  } else if (!group->support.empty()) {
    LETHE_RETURN_IF_ERROR(queue->SetZero(group->support.data(), group->support.size()));
  }
  std::byte* const begin = group->support.data();
  if (!block.empty()) {
    LETHE_RETURN_IF_ERROR(queue->CopyToDevice(block.data(), block.size(), begin));
  }
  group->heads.clear();
  for (int64_t head = 0; head < memory.num_heads(); ++head) {
    const SvSupport support = memory.support(head);
    const SupportPlaces& at = places[Size(head)];
    const GroupConfig& config = *group->config;
    SvReadHead& to = group->heads.emplace_back();
    to.tail_keys = group->tail_keys.data() + head * kSvTailTokens * config.key_dim;
    to.tail_values = group->tail_values.data() + head * kSvTailTokens * config.value_dim;
    if (support.gates.empty()) continue;
    to.support_keys = reinterpret_cast<const float*>(begin + at.keys);
    to.support_key_of = reinterpret_cast<const int32_t*>(begin + at.key_of);
    to.support_gates = reinterpret_cast<const float*>(begin + at.gates);
    to.support_values = reinterpret_cast<const float*>(begin + at.values);
    to.num_distinct = static_cast<int32_t>(support.keys.size() / Size(config.key_dim));
    to.num_support = static_cast<int32_t>(support.gates.size());
    most_distinct_ = std::max<int64_t>(most_distinct_, to.num_distinct);
  }
  return absl::OkStatus();
}

absl::Status SvSession::UploadSupport() {
  most_distinct_ = 0;
  for (Group& group : groups_) LETHE_RETURN_IF_ERROR(UploadSupport(&group));
  stamp_ = NewStamp();
  return absl::OkStatus();
}

absl::Status SvSession::UploadTails() {
  for (Group& group : groups_) {
    const svdd::SvMemory& memory = *group.memory->sv_memory();
    WipedFloats keys(group.tail_keys.size());
    WipedFloats values(group.tail_values.size());
    for (int64_t head = 0; head < memory.num_heads(); ++head) {
      const svdd::SvHeadView view = memory.head(head);
      std::copy(view.tail_keys.begin(), view.tail_keys.end(),
                keys.begin() + head * kSvTailTokens * group.config->key_dim);
      std::copy(view.tail_values.begin(), view.tail_values.end(),
                values.begin() + head * kSvTailTokens * group.config->value_dim);
    }
    LETHE_RETURN_IF_ERROR(group.tail_keys.Set(keys));
    LETHE_RETURN_IF_ERROR(group.tail_values.Set(values));
  }
  return absl::OkStatus();
}

absl::StatusOr<SvSession::Snapshot> SvSession::TakeSnapshot() {
  LETHE_RETURN_IF_ERROR(Sync());
  Snapshot snapshot;
  for (const Group& group : groups_) snapshot.push_back(group.memory->TakeSnapshot());
  return snapshot;
}

absl::Status SvSession::Restore(const Snapshot& snapshot) {
  LETHE_CHECK(snapshot.size() == groups_.size());
  for (size_t index = 0; index < groups_.size(); ++index) {
    LETHE_RETURN_IF_ERROR(groups_[index].memory->Restore(snapshot[index]));
    num_tokens_ = snapshot[index].memory->num_tokens();
  }
  LETHE_RETURN_IF_ERROR(UploadTails());
  return UploadSupport();
}

absl::StatusOr<std::unique_ptr<SvSession>> SvSession::Clone() {
  LETHE_RETURN_IF_ERROR(Sync());
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<SvSession> clone, Empty(model_, config_));
  for (size_t index = 0; index < groups_.size(); ++index) {
    clone->groups_[index].memory = groups_[index].memory->Clone();
  }
  clone->num_tokens_ = num_tokens_;
  LETHE_RETURN_IF_ERROR(clone->UploadTails());
  LETHE_RETURN_IF_ERROR(clone->UploadSupport());
  return clone;
}

void SvSession::AppendDigestParts(size_t index, const std::string& prefix,
                                  audit::StateParts* parts) const {
  LETHE_CHECK(num_on_host() == num_tokens_);
  groups_[index].memory->AppendMemoryParts(prefix, parts);
}

size_t SvSession::device_bytes() const {
  size_t bytes = 0;
  for (const Group& group : groups_) {
    bytes +=
        (group.tail_keys.size() + group.tail_values.size()) * sizeof(float) + group.support.size();
  }
  return bytes;
}

size_t SvSession::host_bytes() const {
  size_t bytes = 0;
  for (const Group& group : groups_) bytes += group.memory->state_bytes();
  return bytes;
}

std::vector<absl::Status> AdvanceSvSessions(absl::Span<SvSession* const> sessions,
                                            int64_t num_threads) {
  struct Solve {
    size_t session;
    size_t group;
    absl::Status status;
  };
  std::vector<absl::Status> statuses(sessions.size());
  std::vector<Solve> solves;
  std::vector<bool> advances(sessions.size());
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (!sessions[i]->is_at_boundary()) continue;
    statuses[i] = sessions[i]->Download();
    advances[i] = statuses[i].ok();
    if (!advances[i]) continue;
    for (size_t g = 0; g < sessions[i]->num_groups(); ++g) solves.push_back({i, g, {}});
  }
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t n = next++; n < solves.size(); n = next++) {
      solves[n].status = sessions[solves[n].session]->Write(solves[n].group);
    }
  };
  {
    std::vector<std::jthread> threads;  // joined at the end of the block
    const auto num_helpers = std::min(solves.size(), Size(std::max<int64_t>(num_threads, 1)));
    for (size_t n = 1; n < num_helpers; ++n) threads.emplace_back(work);
    work();
  }
  for (const Solve& solve : solves) {
    if (!solve.status.ok()) statuses[solve.session] = solve.status;
  }
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (advances[i] && statuses[i].ok()) statuses[i] = sessions[i]->UploadSupport();
  }
  return statuses;
}

}  // namespace lethe
