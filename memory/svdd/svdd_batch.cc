#include "memory/svdd/svdd_batch.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/on_cuda.h"
#include "kernels/base/status_macros.h"
#include "memory/svdd/canon.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/start.h"

namespace lethe::svdd {
namespace {

constexpr int64_t kFreeSlot = -1;
constexpr int64_t kSlotsMax = int64_t{1} << 20;
constexpr int64_t kDimMax = int64_t{1} << 16;

absl::Status CheckRange(const char* field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " must be ", least, "..", most, ", is ", value));
}

absl::Status CheckRanks(const std::vector<int32_t>& ranks, int64_t num_keys) {
  int64_t before = -1;
  for (const int32_t rank : ranks) {
    if (rank <= before || rank >= num_keys) {
      return absl::InvalidArgumentError(
          absl::StrCat("ranks must ascend in 0..", num_keys - 1, ", have ", rank));
    }
    before = rank;
  }
  return absl::OkStatus();
}

size_t Size(int64_t count) { return static_cast<size_t>(count); }

}  // namespace

absl::StatusOr<std::unique_ptr<SvddBatch>> SvddBatch::Create(Queue* queue, int64_t num_slots,
                                                             int64_t max_keys, int64_t key_dim,
                                                             const SvddTuning& tuning) {
  LETHE_RETURN_IF_ERROR(CheckRange("num_slots", num_slots, 1, kSlotsMax));
  LETHE_RETURN_IF_ERROR(CheckRange("max_keys", max_keys, 1, kMaxKeys));
  LETHE_RETURN_IF_ERROR(CheckRange("key_dim", key_dim, 1, kDimMax));
  std::unique_ptr<SvddBatch> batch(new SvddBatch(queue, num_slots, max_keys, key_dim));
  batch->pool_.exchanges_per_key = tuning.exchanges_per_key;
  batch->num_keys_.assign(Size(num_slots), kFreeSlot);
  LETHE_RETURN_IF_ERROR(batch->Allocate());
  return batch;
}

absl::Status SvddBatch::Allocate() {
  const int64_t slots = num_slots();
  // Rows that begin at whole sectors of 32 bytes.
  pool_.stride = (max_keys_ + 3) / 4 * 4;
  pool_.dim = static_cast<int32_t>(key_dim_);
  pool_.max_keys = static_cast<int32_t>(max_keys_);
  const auto zeros = [&](auto* array, int64_t size) -> absl::Status {
    LETHE_ASSIGN_OR_RETURN(*array, std::decay_t<decltype(*array)>::Zeros(queue_, Size(size)));
    return absl::OkStatus();
  };
  LETHE_RETURN_IF_ERROR(zeros(&heads_, slots));
  LETHE_RETURN_IF_ERROR(zeros(&keys_, slots * max_keys_ * key_dim_));
  LETHE_RETURN_IF_ERROR(zeros(&gram_, slots * max_keys_ * pool_.stride));
  LETHE_RETURN_IF_ERROR(zeros(&a_, slots * max_keys_));
  LETHE_RETURN_IF_ERROR(zeros(&classes_, slots * max_keys_));
  LETHE_RETURN_IF_ERROR(zeros(&row_of_rank_, slots * max_keys_));
  SvddTeams teams;
  if (queue_->kind() == DeviceKind::kCuda) {
    LETHE_RETURN_IF_ERROR(LETHE_ON_CUDA(SvddTeamsCuda(queue_, max_keys_, &teams)));
  }
  if (teams.num_teams > slots) teams.num_teams = static_cast<int32_t>(slots);
  LETHE_RETURN_IF_ERROR(zeros(&work_doubles_, teams.num_teams * WorkDoubles(max_keys_)));
  if (!teams.has_shared_vectors) {
    LETHE_RETURN_IF_ERROR(
        zeros(&work_vectors_, teams.num_teams * static_cast<int64_t>(BlockVectorBytes(max_keys_))));
  }
  LETHE_RETURN_IF_ERROR(zeros(&next_job_, 1));
  LETHE_RETURN_IF_ERROR(zeros(&jobs_, slots));
  LETHE_RETURN_IF_ERROR(zeros(&new_heads_, slots));
  pool_.heads = heads_.data();
  pool_.keys = keys_.data();
  pool_.gram = gram_.data();
  pool_.a = a_.data();
  pool_.classes = classes_.data();
  pool_.row_of_rank = row_of_rank_.data();
  work_ = {work_doubles_.data(), work_vectors_.data(), next_job_.data(), teams.num_teams};
  return absl::OkStatus();
}

absl::Status SvddBatch::CheckSlots(absl::Span<const int32_t> slots, bool in_use) const {
  std::vector<bool> seen(num_keys_.size(), false);
  for (const int32_t slot : slots) {
    LETHE_RETURN_IF_ERROR(CheckRange("slot", slot, 0, num_slots() - 1));
    if (seen[Size(slot)]) {
      return absl::InvalidArgumentError(absl::StrCat("slot ", slot, " must be listed once"));
    }
    seen[Size(slot)] = true;
    if (in_use && num_keys(slot) == kFreeSlot) {
      return absl::InvalidArgumentError(absl::StrCat("slot ", slot, " must be loaded, is free"));
    }
  }
  return absl::OkStatus();
}

absl::Status SvddBatch::Launch(SvddOperation operation, const std::vector<SvddJob>& jobs,
                               const SvddArguments& arguments) {
  if (jobs.empty()) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(
      queue_->CopyToDevice(jobs.data(), jobs.size() * sizeof(SvddJob), jobs_.data()));
  const auto num_jobs = static_cast<int32_t>(jobs.size());
  if (queue_->kind() == DeviceKind::kCuda) {
    LETHE_RETURN_IF_ERROR(queue_->SetZero(next_job_.data(), sizeof(int32_t)));
    return LETHE_ON_CUDA(
        RunSvddCuda(queue_, pool_, work_, operation, jobs_.data(), num_jobs, arguments));
  }
  RunSvddHost(pool_, work_, operation, jobs_.data(), num_jobs, arguments);
  return absl::OkStatus();
}

absl::Status SvddBatch::Load(absl::Span<const SvddLoad> loads, const double* keys) {
  std::vector<int32_t> slots;
  std::vector<SvddJob> jobs;
  std::vector<SvddHead> heads;
  int64_t first = 0;
  for (const SvddLoad& load : loads) {
    LETHE_RETURN_IF_ERROR(CheckRange("num_keys", load.num_keys, 0, max_keys_));
    LETHE_RETURN_IF_ERROR(CheckRange("key_dim", load.params.key_dim, key_dim_, key_dim_));
    slots.push_back(load.slot);
    jobs.push_back({load.slot, 0, first});
    SvddHead head;
    head.box_mass = load.params.box_mass;
    head.sigma = load.params.sigma;
    head.ridge = load.params.ridge;
    head.num_keys = static_cast<int32_t>(load.num_keys);
    heads.push_back(head);
    first += load.num_keys;
  }
  LETHE_RETURN_IF_ERROR(CheckSlots(slots, /*in_use=*/false));
  if (loads.empty()) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(
      queue_->CopyToDevice(heads.data(), heads.size() * sizeof(SvddHead), new_heads_.data()));
  for (const SvddLoad& load : loads) num_keys_[Size(load.slot)] = load.num_keys;
  SvddArguments arguments;
  arguments.heads = new_heads_.data();
  arguments.keys = keys;
  return Launch(SvddOperation::kLoad, jobs, arguments);
}

absl::Status SvddBatch::Add(absl::Span<const int32_t> slots, const double* keys) {
  LETHE_RETURN_IF_ERROR(CheckSlots(slots, /*in_use=*/true));
  std::vector<SvddJob> jobs;
  for (const int32_t slot : slots) {
    LETHE_RETURN_IF_ERROR(CheckRange("num_keys after Add", num_keys(slot) + 1, 1, max_keys_));
    jobs.push_back({slot, 0, static_cast<int64_t>(jobs.size())});
  }
  for (const int32_t slot : slots) ++num_keys_[Size(slot)];
  SvddArguments arguments;
  arguments.keys = keys;
  return Launch(SvddOperation::kAdd, jobs, arguments);
}

absl::Status SvddBatch::Remove(absl::Span<const SvddRemoval> removals) {
  std::vector<int32_t> slots;
  for (const SvddRemoval& removal : removals) slots.push_back(removal.slot);
  LETHE_RETURN_IF_ERROR(CheckSlots(slots, /*in_use=*/true));
  std::vector<SvddJob> jobs;
  std::vector<int32_t> ranks;
  for (const SvddRemoval& removal : removals) {
    LETHE_RETURN_IF_ERROR(CheckRanks(removal.ranks, num_keys(removal.slot)));
    jobs.push_back({removal.slot, static_cast<int32_t>(removal.ranks.size()),
                    static_cast<int64_t>(ranks.size())});
    ranks.insert(ranks.end(), removal.ranks.begin(), removal.ranks.end());
  }
  LETHE_ASSIGN_OR_RETURN(ranks_, DeviceArray<int32_t>::From(queue_, ranks));
  for (const SvddRemoval& removal : removals) {
    num_keys_[Size(removal.slot)] -= static_cast<int64_t>(removal.ranks.size());
  }
  SvddArguments arguments;
  arguments.ranks = ranks_.data();
  return Launch(SvddOperation::kRemove, jobs, arguments);
}

absl::Status SvddBatch::Free(absl::Span<const int32_t> slots) {
  LETHE_RETURN_IF_ERROR(CheckSlots(slots, /*in_use=*/false));
  std::vector<SvddJob> jobs;
  for (const int32_t slot : slots) {
    jobs.push_back({slot, 0, 0});
    num_keys_[Size(slot)] = kFreeSlot;
  }
  return Launch(SvddOperation::kFree, jobs, {});
}

absl::StatusOr<std::vector<SvddProposal>> SvddBatch::Read(absl::Span<const int32_t> slots) {
  LETHE_RETURN_IF_ERROR(CheckSlots(slots, /*in_use=*/false));
  std::vector<SvddJob> jobs;
  for (const int32_t slot : slots) jobs.push_back({slot, 0, 0});
  const size_t entries = slots.size() * Size(max_keys_);
  LETHE_ASSIGN_OR_RETURN(auto heads, DeviceArray<SvddHead>::Zeros(queue_, slots.size()));
  LETHE_ASSIGN_OR_RETURN(auto a, DeviceArray<double>::Zeros(queue_, entries));
  LETHE_ASSIGN_OR_RETURN(auto classes, DeviceArray<uint8_t>::Zeros(queue_, entries));
  SvddArguments arguments;
  arguments.read_heads = heads.data();
  arguments.read_a = a.data();
  arguments.read_classes = classes.data();
  LETHE_RETURN_IF_ERROR(Launch(SvddOperation::kRead, jobs, arguments));
  LETHE_ASSIGN_OR_RETURN(const std::vector<SvddHead> all_heads, heads.Get());
  LETHE_ASSIGN_OR_RETURN(const std::vector<double> all_a, a.Get());
  LETHE_ASSIGN_OR_RETURN(const std::vector<uint8_t> all_classes, classes.Get());
  std::vector<SvddProposal> proposals(slots.size());
  for (size_t k = 0; k < slots.size(); ++k) {
    const SvddHead& head = all_heads[k];
    SvddProposal& proposal = proposals[k];
    proposal.status = head.status;
    proposal.mass = std::min(head.box_mass, static_cast<double>(head.num_keys));
    proposal.lambda = head.lambda;
    proposal.num_exchanges = head.num_exchanges;
    proposal.num_steps = head.num_steps;
    for (size_t i = k * Size(max_keys_), end = i + Size(head.num_keys); i < end; ++i) {
      proposal.classes.push_back(static_cast<Partition>(all_classes[i]));
      proposal.a.push_back(all_a[i]);
    }
  }
  return proposals;
}

absl::StatusOr<std::vector<double>> SvddBatch::SlotNumbers(int32_t slot) const {
  std::vector<double> numbers;
  const auto append = [&](const auto& array, int64_t per_slot) -> absl::Status {
    using T = std::decay_t<decltype(*array.data())>;
    std::vector<T> part(Size(per_slot));
    LETHE_RETURN_IF_ERROR(
        queue_->CopyToHost(array.data() + slot * per_slot, part.size() * sizeof(T), part.data()));
    for (const T value : part) numbers.push_back(static_cast<double>(value));
    return absl::OkStatus();
  };
  LETHE_RETURN_IF_ERROR(CheckRange("slot", slot, 0, num_slots() - 1));
  LETHE_RETURN_IF_ERROR(append(keys_, max_keys_ * key_dim_));
  LETHE_RETURN_IF_ERROR(append(gram_, max_keys_ * pool_.stride));
  LETHE_RETURN_IF_ERROR(append(a_, max_keys_));
  LETHE_RETURN_IF_ERROR(append(classes_, max_keys_));
  LETHE_RETURN_IF_ERROR(append(row_of_rank_, max_keys_));
  return numbers;
}

absl::StatusOr<Solution> Canonical(const Params& params, absl::Span<const double> keys,
                                   const SvddProposal& proposal, Counters* counters) {
  LETHE_RETURN_IF_ERROR(CheckKeys(params, keys));
  const auto num_keys = static_cast<int64_t>(keys.size()) / params.key_dim;
  if (static_cast<double>(num_keys) <= params.box_mass || proposal.status != SvddStatus::kSettled ||
      proposal.classes.size() != Size(num_keys) ||
      RidgeLower(params, num_keys) < 0.5 * params.ridge) {
    return SolveCanonical(params, keys);
  }
  GramCache gram(params.sigma, params.key_dim);
  gram.Append(keys);
  Start start;
  start.lambda = proposal.lambda;
  for (int64_t group = 0; group < gram.num_groups(); ++group) {
    const size_t rank = Size(gram.groups().FirstRank(group));
    start.classes.push_back(proposal.classes[rank]);
    start.a.push_back(proposal.a[rank]);
  }
  CholeskyFactor factor(params.ridge);
  ++counters->solves;
  return Canon(&gram, params, &start, &factor, counters);
}

}  // namespace lethe::svdd
