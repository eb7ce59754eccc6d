// Goal: keys as they occur are forgotten exactly too: those that lethe-tiny learned to make, and the
// vital signs of ICU stays.
// Method: DeletionAudit. Keys of lethe-tiny's support-vector head over the text of LICENSE: 24 of them at
// the paper's settings (sigma 2, nu 0.4, two deletions), and long lists at the head's own. Stays of
// PhysioNet's Challenge 2012 (LETHE_ICU_DATA or ../shared/data/icu; skipped where absent) at the paper's
// settings: up to 40 hours, hours within 0.1 of an earlier one left out. 300 deletions with
// LETHE_TEST_LONG=1.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "server/model/model.h"
#include "server/session/session.h"
#include "tests/memory/svdd_deletion_audit.h"
#include "tests/memory/svdd_hostile_cases.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

void ExpectExact(const DeletionTally& tally) {
  EXPECT_GE(tally.deletions, WantsAll() ? 300 : 8);
  EXPECT_EQ(tally.identical, tally.deletions + tally.additions);
  EXPECT_EQ(tally.matched, tally.compared);
}

struct LearnedKeys {
  Params params;
  int64_t num_keys = 0;
  std::vector<double> keys;
};

LearnedKeys KeysOfLetheTiny(int64_t num_tokens) {
  const std::shared_ptr<const Model> model =
      Model::Load(LETHE_SOURCE_DIR "/models/lethe-tiny").value();
  const std::unique_ptr<Session> session = Session::Create(model, {}).value();
  std::ifstream file(LETHE_SOURCE_DIR "/LICENSE", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<int32_t> ids;
  for (const char c : text.substr(0, static_cast<size_t>(num_tokens))) {
    ids.push_back(static_cast<unsigned char>(c));
  }
  EXPECT_OK(session->Append(ids, {}, InputKind::kAppended).status());
  const SvHeadView head = session->state().SvGroups().front().memory->head(0);
  return {*head.params, head.solution->num_keys, {head.gated_keys.begin(), head.gated_keys.end()}};
}

std::vector<double> Rows(const LearnedKeys& learned, const std::vector<int64_t>& ranks) {
  std::vector<double> keys;
  for (const int64_t rank : ranks) {
    const auto from = learned.keys.begin() + rank * learned.params.key_dim;
    keys.insert(keys.end(), from, from + learned.params.key_dim);
  }
  return keys;
}

TEST(SvddRealKeysTest, LearnedKeys) {
  const LearnedKeys learned = KeysOfLetheTiny(WantsAll() ? 4096 : 512);
  const Params& own = learned.params;
  std::mt19937_64 random(21);
  DeletionTally paper;
  for (int trial = 0; trial < (WantsAll() ? 150 : 12); ++trial) {
    const std::vector<int64_t> ranks = RandomRanks(24, learned.num_keys, &random);
    AuditDeletions(PaperCase(Rows(learned, ranks), own.key_dim), true, &random, &paper);
    if (HasFatalFailure()) return;
  }
  paper.Print("learned keys, paper's");
  ExpectExact(paper);
  DeletionTally at_home;
  for (int trial = 0; trial < (WantsAll() ? 20 : 1); ++trial) {
    DeletionCase deletions;
    deletions.params = own;
    const int64_t n = std::min(learned.num_keys, 300 + 60 * int64_t{trial});
    deletions.keys = Rows(learned, RandomRanks(n, learned.num_keys, &random));
    deletions.count = WantsAll() ? 15 : 8;
    AuditDeletions(deletions, false, &random, &at_home);
    if (HasFatalFailure()) return;
  }
  at_home.Print("learned keys, the head's");
  ExpectExact(at_home);
}

TEST(SvddRealKeysTest, VitalSigns) {
  const char* named = std::getenv("LETHE_ICU_DATA");
  const std::filesystem::path archive =
      std::filesystem::path(named != nullptr ? named : LETHE_SOURCE_DIR "/../shared/data/icu") /
      "challenge2012-set-a.tar.xz";
  if (!std::filesystem::exists(archive)) GTEST_SKIP() << "no " << archive;
  const int stays = WantsAll() ? 150 : 12;
  const std::string command =
      LETHE_SOURCE_DIR "/tests/testing/icu_rows " + archive.string() + " " + std::to_string(stays);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) {
    text.push_back(static_cast<char>(c));
  }
  std::mt19937_64 random(22);
  DeletionTally tally;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    const std::vector<double> rows{std::istream_iterator<double>(numbers), {}};
    AuditDeletions(PaperCase(WithoutNear(rows, 6, 0.1), 6), true, &random, &tally);
    if (HasFatalFailure()) return;
  }
  tally.Print("ICU vitals");
  ExpectExact(tally);
}

}  // namespace
}  // namespace lethe::svdd
