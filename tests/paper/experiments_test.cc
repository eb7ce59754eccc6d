// Goal: the experiments give the papers' numbers where they must, and Lethe's claims hold in them.
// Method: runs them through their registry at the paper's seed, or with few trials where that is
// enough, and reads the reports' cells.
#include "paper/experiments.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace lethe::paper {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Options PaperOptions(const std::string& name) {
  Options options;
  for (const Experiment& experiment : Experiments()) {
    if (experiment.name == name) options.trials = experiment.trials;
  }
  options.model = LETHE_SOURCE_DIR "/models/lethe-tiny";
  options.text = LETHE_SOURCE_DIR "/deploy/texts/2-morning.txt";
  return options;
}

// The cell at a row (by its first cell's text) and column of the i-th table.
const Cell& At(const Report& report, size_t table_index, const std::string& row,
               const std::string& column) {
  static const Cell kNoCell = None();
  const Table& table = report.tables.at(table_index);
  const auto c = std::find(table.columns.begin(), table.columns.end(), column);
  for (const std::vector<Cell>& cells : table.rows) {
    if (cells[0].text == row && c != table.columns.end()) {
      return cells[static_cast<size_t>(c - table.columns.begin())];
    }
  }
  ADD_FAILURE() << table.title << ": no cell " << row << " / " << column;
  return kNoCell;
}

TEST(RareRecallTest, HasThePapersFourNumbers) {
  ASSERT_OK_AND_ASSIGN(const Report report, RunRareRecall(PaperOptions("sv-rare-recall")));
  const std::array<std::array<const char*, 2>, 6> wanted = {
      {{"budget, share of the keys", "0.562"},
       {"support set", "0.861"},
       {"mass of all queries (\"H2O oracle\")", "0.319"},
       {"mass of the first queries", "0.317"},
       {"random", "0.472"},
       {"most recent", "0.000"}}};
  for (const auto& [row, value] : wanted) {
    EXPECT_EQ(At(report, 0, row, "ridge 2^-11").text, value) << row;
    EXPECT_EQ(At(report, 0, row, "ridge 1e-8").text, value) << row;
  }
  EXPECT_EQ(At(report, 0, "every key (no budget)", "ridge 2^-11").text, "0.722");
}

TEST(ReserveCounterexampleTest, HasThePapersDigits) {
  ASSERT_OK_AND_ASSIGN(const Report report,
                       RunReserveCounterexample(PaperOptions("sv-reserve-counterexample")));
  EXPECT_THAT(report.failures, IsEmpty());
  for (const char* column : {"ridge 1e-8", "no ridge"}) {
    EXPECT_EQ(At(report, 0, "readout changed by dropping it", column).text, "0");
    EXPECT_THAT(At(report, 0, "scores, full history against pruned", column).numbers,
                ElementsAre(DoubleNear(4.07857e-3, 5e-9)));
    EXPECT_THAT(At(report, 0, "its alpha once (0,-10) is there", column).numbers,
                ElementsAre(DoubleNear(0.03327001, 5e-8)));
  }
}

void ExpectExact(const Report& report, const std::string& regime, double trials) {
  EXPECT_THAT(At(report, 0, regime, "trials").numbers, ElementsAre(trials));
  EXPECT_THAT(At(report, 0, regime, "equal bits").numbers, ElementsAre(trials));
  EXPECT_THAT(At(report, 0, regime, "partition match %").numbers, ElementsAre(100.0));
  EXPECT_THAT(At(report, 1, regime, "Lethe").numbers, Each(0.0));
  EXPECT_THAT(At(report, 2, regime, "Lethe").numbers, Each(0.0));
  EXPECT_GT(At(report, 1, regime, "decay, median").numbers.at(0), 1e-3);
  EXPECT_GT(At(report, 2, regime, "decay").numbers.at(0), 1e-3);
}

TEST(DeletionAuditTest, RemovalsAreFreshSolvesInEveryRegime) {
  Options options = PaperOptions("sv-deletion-audit");
  options.trials = 8;
  ASSERT_OK_AND_ASSIGN(const Report report, RunDeletionAudit(options));
  EXPECT_THAT(report.failures, IsEmpty());
  for (const char* regime : {"Gaussian", "redundant", "learned keys"}) {
    ExpectExact(report, regime, 8);
  }
  EXPECT_THAT(report.notes.at(0), HasSubstr("--data"));
}

TEST(DeletionAuditTest, DecayHasThePapersMedianOnThePapersKeys) {
  Options options = PaperOptions("sv-deletion-audit");
  options.model.clear();  // none in this folder
  options.text.clear();
  ASSERT_OK_AND_ASSIGN(const Report report, RunDeletionAudit(options));
  EXPECT_EQ(At(report, 1, "Gaussian", "decay, median").text, "8.3e-02");
}

TEST(DeletionAuditTest, RemovalsAreFreshSolvesOnPublicVitals) {
  Options options = PaperOptions("sv-deletion-audit");
  const char* named = std::getenv("LETHE_ICU_DATA");
  options.data =
      named != nullptr ? named : LETHE_SOURCE_DIR "/../shared/data/icu/challenge2012-set-a.tar.xz";
  if (!std::filesystem::exists(options.data)) {
    GTEST_SKIP() << "skipped because " << options.data << " is not there";
  }
  options.trials = 8;
  ASSERT_OK_AND_ASSIGN(const Report report, RunDeletionAudit(options));
  EXPECT_THAT(report.failures, IsEmpty());
  ExpectExact(report, "ICU vitals", 8);
}

TEST(TrajectoriesTest, EveryOperationEndsInAFreshSolve) {
  Options options = PaperOptions("sv-trajectories");
  options.trials = 3;
  ASSERT_OK_AND_ASSIGN(const Report report, RunTrajectories(options));
  EXPECT_THAT(report.failures, IsEmpty());
  for (const char* keys : {"Gaussian", "redundant"}) {
    EXPECT_THAT(At(report, 0, keys, "equal bits").numbers, ElementsAre(3 * 64));
  }
}

TEST(DeletionLatencyTest, TimedRemovalsAreFreshSolves) {
  Options options = PaperOptions("sv-deletion-latency");
  options.trials = 1;
  ASSERT_OK_AND_ASSIGN(const Report report, RunDeletionLatency(options));
  EXPECT_THAT(report.failures, IsEmpty());
  EXPECT_THAT(At(report, 0, "512", "equal bits").numbers, ElementsAre(1));
  EXPECT_EQ(report.charts.size(), 1u);
}

TEST(SelectiveCopyTest, SupportDoesNotGrowWithTheFiller) {
  Options options = PaperOptions("sv-selective-copy");
  options.trials = 5;
  ASSERT_OK_AND_ASSIGN(const Report report, RunSelectiveCopy(options));
  ASSERT_EQ(report.charts.size(), 2u);
  ASSERT_EQ(report.charts[0].curves.size(), 4u);
  for (const Curve& curve : report.charts[0].curves) {
    ASSERT_EQ(curve.points.size(), 5u);
    for (const auto& [filler, support] : curve.points) {
      EXPECT_GT(support, 8.0) << curve.label << " " << filler;
      EXPECT_LT(support, 16.0) << curve.label << " " << filler;
    }
  }
  for (const auto& [filler, recall] : report.charts[1].curves[0].points) EXPECT_GT(recall, 0.9);
}

TEST(IcuStreamTest, OnSyntheticVitalsTheSupportKeepsTheEvents) {
  ASSERT_OK_AND_ASSIGN(const Report report, RunIcuStream(PaperOptions("sv-icu-stream")));
  const auto share = [&](const char* policy) {
    return At(report, 0, "synthetic, all signs", policy).numbers.at(0);
  };
  EXPECT_GT(share("support set"), 0.9);
  EXPECT_LT(share("self-mass"), 0.1);
  EXPECT_NEAR(share("random"), share("budget"), 0.03);
}

TEST(NegativeControlTest, WithoutARidgeItHasThePapersNumbers) {
  ASSERT_OK_AND_ASSIGN(const Report report,
                       RunNegativeControl(PaperOptions("sv-negative-control")));
  EXPECT_EQ(At(report, 0, "RBF without a gate", "no ridge").text, "0.970");
  EXPECT_EQ(At(report, 0, "softmax", "no ridge").text, "0.535");
  EXPECT_EQ(At(report, 0, "gated RBF", "no ridge").text, "0.955");
  EXPECT_GT(At(report, 0, "gated RBF", "support").numbers.at(0), 0.99);
}

TEST(ExperimentsTest, DataThatCannotBeUsedIsNamed) {
  Options options = PaperOptions("sv-icu-stream");
  options.data = "/no/such/archive.tar.xz";
  EXPECT_THAT(RunIcuStream(options).status().message(),
              HasSubstr("--data /no/such/archive.tar.xz"));
  options = PaperOptions("sv-deletion-audit");
  options.model = "/no/such/model";
  EXPECT_FALSE(RunDeletionAudit(options).ok());
  options = PaperOptions("sv-deletion-audit");
  options.text = "/no/such/text";
  EXPECT_THAT(RunDeletionAudit(options).status().message(), HasSubstr("--text"));
}

}  // namespace
}  // namespace lethe::paper
