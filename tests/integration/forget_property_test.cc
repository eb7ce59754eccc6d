// Goal: contract C1 and C2. After any life of a session, Forget leaves the digest, the next-token logits and the seeded
// text of a fresh session, in another process, that was sent only the retained inputs; in a model with a bank replay and
// re-evaluation both do. And each mutant of
// kernels/base/fault.h breaks this within 200 cases, so that the test would see the mistake it stands for.
// Method: RapidCheck draws lives (forget_cases.h) on small random-weight stacks with every memory kind at several depths
// and, fewer, on lethe-tiny. LETHE_PROPERTY_CASES and LETHE_PROPERTY_SEED set the number of cases and the seed.

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "rapidcheck.h"

#include "server/device/device_model_state.h"
#include "tests/integration/forget_cases.h"
#include "tests/integration/fresh_process.h"
#include "tests/integration/property_stacks.h"
#include "tests/testing/fault_switch.h"

namespace lethe::testing {
namespace {

constexpr int kDefaultCases = 500;
constexpr int kMutantCases = 200;
constexpr uint32_t kMaxWhere = 1 << 20;

int NumCases() {
  const char* text = std::getenv("LETHE_PROPERTY_CASES");
  return text == nullptr ? kDefaultCases : std::atoi(text);
}

uint64_t Seed() {
  const char* text = std::getenv("LETHE_PROPERTY_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// Uniform in [first, end): RapidCheck's own ranges grow with the number of the case.
uint32_t Draw(uint32_t first, uint32_t end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(first, end));
}

const std::vector<std::shared_ptr<const Model>>& Stacks() {
  static const auto* stacks = new std::vector<std::shared_ptr<const Model>>(PropertyStacks());
  return *stacks;
}

// Length of the first history: one in ten at most 65 tokens, one in twenty at least 1,500, half of the rest beyond window
// and 128 more; two in five end beside a boundary.
uint32_t DrawLength() {
  const uint32_t kind = Draw(0, 40);
  if (kind < 4) return *rc::gen::element<uint32_t>(0, 1, 2, 63, 64, 65);
  uint32_t length = kind < 6 ? Draw(1500, 1700) : kind < 26 ? Draw(260, 480) : Draw(192, 300);
  if (Draw(0, 5) < 2) {
    length = (length + 63) / 64 * 64 + Draw(0, 3) - 1;
  }
  return length;
}

Operation DrawOperation(OperationKind kind, uint32_t size) {
  return {kind, size, Draw(0, kMaxWhere), Draw(0, 2)};
}

std::vector<Operation> DrawLife(uint32_t length) {
  std::vector<Operation> life;
  const uint32_t first_part = length == 0 ? 0 : Draw(0, length + 1);
  if (first_part > 0) life.push_back(DrawOperation(OperationKind::kAppend, first_part));
  if (length > 65) {
    life.push_back(DrawOperation(OperationKind::kGenerate, Draw(0, 12)));
  }
  if (length > first_part) {
    life.push_back(DrawOperation(OperationKind::kAppend, length - first_part));
  }
  const uint32_t rounds = Draw(1, 4);
  for (uint32_t round = 0; round < rounds; ++round) {
    life.push_back(DrawOperation(OperationKind::kForget, Draw(0, 10)));
    if (Draw(0, 3) == 0) {
      life.push_back(DrawOperation(OperationKind::kGenerate, Draw(1, 8)));
    }
    if (Draw(0, 3) == 0) {
      life.push_back(DrawOperation(OperationKind::kAppend, Draw(1, 90)));
    }
  }
  return life;
}

ForgetCase DrawCase() {
  ForgetCase drawn;
  drawn.stack = Draw(0, 1000);
  const uint32_t extra = Draw(0, 8);
  drawn.threads = extra == 1;
  drawn.sessions.push_back(DrawLife(DrawLength()));
  if (extra <= 1) drawn.sessions.push_back(DrawLife(Draw(1, 200)));
  return drawn;
}

// Runs cases until one fails; true when none did.
bool RunCases(int num_cases, bool shrink, const std::vector<std::shared_ptr<const Model>>& stacks,
              const Oracle& oracle, Coverage* coverage) {
  rc::detail::TestParams parameters;
  parameters.seed = Seed();
  parameters.maxSuccess = num_cases;
  parameters.disableShrinking = !shrink;
  const auto result = rc::detail::checkTestable(
      [&] {
        const ForgetCase drawn = DrawCase();
        const std::string failure = RunForgetCase(drawn, stacks, oracle, coverage);
        if (!failure.empty()) {
          std::ostringstream what;
          what << drawn << "\n  " << failure;
          RC_FAIL(what.str());
        }
      },
      rc::detail::TestMetadata(), parameters);
  rc::detail::printResultMessage(result, std::cerr);
  std::cerr << "\n";
  return result.template is<rc::detail::SuccessResult>();
}

void Report(const Coverage& coverage) {
  std::cerr << coverage.cases << " cases, " << coverage.forgets << " Forgets compared; "
            << coverage.three_chunks << " with 3 chunks or more, " << coverage.beyond_window
            << " beyond window + 128, " << coverage.very_long << " of 1,500 tokens or more; "
            << coverage.at_grid << " Forgets beside a boundary, " << coverage.replays
            << " by replay too, which evaluated " << coverage.dropped_inputs
            << " dropped inputs again; longest " << coverage.longest << "\n";
}

TEST(ForgetPropertyTest, ForgottenSessionEqualsFreshOne) {
  FreshProcess fresh(LETHE_BINARY_DIR "/tests/integration/forget_oracle", "");
  Coverage coverage;
  EXPECT_TRUE(RunCases(
      NumCases(), true, Stacks(),
      [&](uint32_t stack, const std::vector<int32_t>& vocab_ids) {
        return fresh.Ask(stack, vocab_ids);
      },
      &coverage));
  Report(coverage);
  if (coverage.cases < 400) return;  // too few to hold the shares to account
  EXPECT_GE(coverage.three_chunks * 100, coverage.cases * 80);
  EXPECT_GE(coverage.beyond_window * 100, coverage.cases * 45);
  EXPECT_GE(coverage.very_long * 100, coverage.cases * 2);
  EXPECT_GE(coverage.replays * 100, coverage.forgets * 30);
  EXPECT_GT(coverage.dropped_inputs, 0);
}

// On the host queue a device's sessions have the bits of the CPU, on which the fresh process evaluates. One slot: where a
// case has two sessions they drive each other out.
TEST(ForgetPropertyTest, HoldsOnADevice) {
  FreshProcess fresh(LETHE_BINARY_DIR "/tests/integration/forget_oracle", "");
  std::vector<std::shared_ptr<DeviceBackend>> backends;
  const std::vector<std::shared_ptr<const Model>> stacks = PropertyStacks();
  for (const std::shared_ptr<const Model>& model : stacks) {
    EngineOptions options;
    options.num_slots = 1;
    auto engine = DeviceEngine::Create(model, options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    backends.push_back(std::make_shared<DeviceBackend>(*std::move(engine), CpuNumerics()));
    model->AttachBackend(backends.back());
  }
  Coverage coverage;
  EXPECT_TRUE(RunCases(
      std::max(NumCases() / 12, 1), true, stacks,
      [&](uint32_t stack, const std::vector<int32_t>& vocab_ids) {
        return fresh.Ask(stack, vocab_ids);
      },
      &coverage));
  Report(coverage);
}

TEST(ForgetPropertyTest, HoldsOnLetheTiny) {
  const std::string directory = std::string(LETHE_SOURCE_DIR) + "/models/lethe-tiny";
  const auto model = Model::Load(directory);
  ASSERT_TRUE(model.ok()) << model.status();
  FreshProcess fresh(LETHE_BINARY_DIR "/tests/integration/forget_oracle", directory);
  Coverage coverage;
  EXPECT_TRUE(RunCases(
      std::max(3, NumCases() / 100), false, {*model},
      [&](uint32_t stack, const std::vector<int32_t>& vocab_ids) {
        return fresh.Ask(stack, vocab_ids);
      },
      &coverage));
  Report(coverage);
}

class ForgetMutantTest : public ::testing::TestWithParam<std::pair<Fault, const char*>> {};

TEST_P(ForgetMutantTest, IsCaught) {
  FreshProcess fresh(LETHE_BINARY_DIR "/tests/integration/forget_oracle", "");
  const ScopedFault fault(GetParam().first);
  Coverage coverage;
  EXPECT_FALSE(RunCases(
      kMutantCases, false, Stacks(),
      [&](uint32_t stack, const std::vector<int32_t>& vocab_ids) {
        return fresh.Ask(stack, vocab_ids);
      },
      &coverage))
      << "the mutant survived " << coverage.cases << " cases";
  std::cerr << "caught in case " << coverage.cases << "\n";
}

INSTANTIATE_TEST_SUITE_P(
    All, ForgetMutantTest,
    ::testing::Values(std::pair(Fault::kGridNotRealigned, "GridNotRealigned"),
                      std::pair(Fault::kOldConvolutionTailKept, "OldConvolutionTailKept"),
                      std::pair(Fault::kWindowSummedFromBlockStart, "WindowSummedFromBlockStart"),
                      std::pair(Fault::kVlaStepCountKept, "VlaStepCountKept"),
                      std::pair(Fault::kOvqTokenCountKept, "OvqTokenCountKept"),
                      std::pair(Fault::kPolishSkipped, "PolishSkipped"),
                      std::pair(Fault::kStaleSnapshotKept, "StaleSnapshotKept"),
                      std::pair(Fault::kPenaltyCountsKept, "PenaltyCountsKept"),
                      std::pair(Fault::kTreeOverChunks, "TreeOverChunks"),
                      std::pair(Fault::kChangedFeaturesKept, "ChangedFeaturesKept"),
                      std::pair(Fault::kGateBoundaryKept, "GateBoundaryKept"),
                      std::pair(Fault::kKeyAddedAtEnd, "KeyAddedAtEnd")),
    [](const auto& instance) { return std::string(instance.param.second); });

}  // namespace
}  // namespace lethe::testing
