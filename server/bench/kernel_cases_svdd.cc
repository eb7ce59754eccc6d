// Exact support-vector solves by the thousand; a token is a problem here.
#include <cmath>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "memory/svdd/svdd_batch.h"
#include "server/bench/kernel_bench.h"

namespace lethe::bench {
namespace {

using svdd::Params;
using svdd::SvddBatch;
using svdd::SvddProposal;

constexpr int64_t kDim = 64;
constexpr double kNu = 0.1;
constexpr int64_t kProblems = 2048;
constexpr int64_t kProblemsOnCpu = 4;
constexpr int64_t kSampled =
    12;  // compared with the CPU's solver, which takes milliseconds for one

enum class Keys {
  kGaussian,   // sigma^2 = the median squared distance
  kUnitSphere  // sigma = 2: nearly every key is in the margin set
};

class SvddSolveCase : public KernelCase {
 public:
  SvddSolveCase(Keys kind, int64_t num_keys) : kind_(kind), num_keys_(num_keys) {}
  std::string kernel() const override {
    return absl::StrCat("svdd solve, ", kind_ == Keys::kGaussian ? "gaussian" : "unit norm");
  }
  std::string shape() const override { return absl::StrCat("N", num_keys_, " D", kDim); }
  double tokens() const override { return static_cast<double>(slots_.size()); }
  double state_bytes() const override { return 0.0; }

  absl::Status Prepare(Queue* queue) override {
    const int64_t count = queue->kind() == DeviceKind::kCpu ? kProblemsOnCpu : kProblems;
    const double sigma =
        kind_ == Keys::kGaussian ? std::sqrt(2.0 * static_cast<double>(kDim)) : 2.0;
    LETHE_ASSIGN_OR_RETURN(
        params_, svdd::MakeParams(sigma, kNu * static_cast<double>(num_keys_), 0x1.0p-11, kDim));
    Draw(count);
    LETHE_ASSIGN_OR_RETURN(device_keys_, DeviceArray<double>::From(queue, keys_));
    LETHE_ASSIGN_OR_RETURN(batch_, SvddBatch::Create(queue, count, num_keys_, kDim));
    for (int64_t slot = 0; slot < count; ++slot) {
      slots_.push_back(static_cast<int32_t>(slot));
      loads_.push_back({static_cast<int32_t>(slot), params_, num_keys_});
    }
    return absl::OkStatus();
  }
  absl::Status Run(Queue* /*queue*/) override { return batch_->Load(loads_, device_keys_.data()); }

  absl::Status Check() override {
    LETHE_ASSIGN_OR_RETURN(const std::vector<SvddProposal> proposals, batch_->Read(slots_));
    size_t unsettled = 0;
    for (const SvddProposal& proposal : proposals) {
      if (proposal.status != svdd::SvddStatus::kSettled) ++unsettled;
    }
    if (unsettled > 0) {
      return absl::InternalError(absl::StrCat(kernel(), ": ", unsettled, " problems unsettled"));
    }
    const size_t step = std::max<size_t>(1, proposals.size() / kSampled);
    for (size_t k = 0; k < proposals.size(); k += step) {
      const size_t values = static_cast<size_t>(num_keys_ * kDim);
      const auto keys = absl::MakeConstSpan(keys_).subspan(k * values, values);
      LETHE_ASSIGN_OR_RETURN(const svdd::Solution cpu, svdd::SolveCanonical(params_, keys));
      if (cpu.classes != proposals[k].classes) {
        return absl::InternalError(
            absl::StrCat(kernel(), ": problem ", k, " has another partition on the CPU"));
      }
    }
    return absl::OkStatus();
  }

 private:
  void Draw(int64_t count) {
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal;
    keys_.resize(static_cast<size_t>(count * num_keys_ * kDim));
    for (double& x : keys_) x = normal(random);
    if (kind_ == Keys::kGaussian) return;
    for (size_t i = 0; i < keys_.size(); i += kDim) {
      double square = 0.0;
      for (size_t c = i; c < i + kDim; ++c) square += keys_[c] * keys_[c];
      for (size_t c = i; c < i + kDim; ++c) keys_[c] /= std::sqrt(square);
    }
  }

  Keys kind_;
  int64_t num_keys_;
  Params params_;
  std::vector<double> keys_;
  std::vector<int32_t> slots_;
  std::vector<svdd::SvddLoad> loads_;
  DeviceArray<double> device_keys_;
  std::unique_ptr<SvddBatch> batch_;
};

}  // namespace

void AddSvddCases(KernelCases* cases) {
  for (const Keys kind : {Keys::kGaussian, Keys::kUnitSphere}) {
    for (const int64_t num_keys : {256, 1024}) {
      cases->push_back(std::make_unique<SvddSolveCase>(kind, num_keys));
    }
  }
}

}  // namespace lethe::bench
