// Goal: records become hourly keys as the paper's preprocessing makes them, from a directory and
// from an archive.
// Method: two small records written here, with artefacts, gaps and a sign that is never measured.
#include "paper/vitals.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace lethe::paper {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class VitalsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lethe-vitals-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    fs::create_directory(directory_ / "set-a");
  }
  void TearDown() override { fs::remove_all(directory_); }

  void Write(const std::string& record, const std::string& text) {
    std::ofstream(directory_ / "set-a" / (record + ".txt")) << text;
  }

  // 45 hours; temperature from hour 3 on, saturation never, an artefact in hour 2.
  void WriteRecords() {
    std::string text = "Time,Parameter,Value\n00:00,RecordID,7\n00:00,Weight,-1\n";
    text += "00:10,HR,100\n00:50,HR,110\n00:20,NISysABP,120\n00:20,SysABP,130\n";
    text += "00:30,DiasABP,60\n00:30,RespRate,20\n02:05,HR,0\n02:06,HR,140\n03:00,Temp,39\n";
    text += "44:59,HR,80\n";
    Write("7", text);
    // One measured saturation keeps the cohort's median from being nothing.
    Write("8", "Time,Parameter,Value\n00:00,HR,80\n01:00,SaO2,96\n47:00,Temp,37\n");
    Write("9", "Time,Parameter,Value\n00:00,HR,80\n10:00,HR,80\n");  // too short
  }

  fs::path directory_;
};

void ExpectRecords(const Vitals& vitals) {
  ASSERT_EQ(vitals.stays.size(), 2u);
  const Stay& stay = vitals.stays[0];
  EXPECT_EQ(stay.record, 7);
  ASSERT_EQ(stay.raw.count(), 45);
  EXPECT_EQ(stay.raw.row(0)[0], 105.0);  // the hour's mean
  EXPECT_EQ(stay.raw.row(0)[1], 125.0);  // of both ways to measure
  EXPECT_EQ(stay.raw.row(1)[0], 105.0);  // filled forward
  EXPECT_EQ(stay.raw.row(2)[0], 140.0);  // without the artefact
  EXPECT_EQ(stay.raw.row(0)[5], 39.0);   // filled backward
  EXPECT_EQ(stay.raw.row(9)[4], 96.0);   // the cohort's median
  EXPECT_FALSE(stay.measured[4]);
  EXPECT_TRUE(stay.measured[5]);
  EXPECT_TRUE(stay.event[0]);  // temperature
  EXPECT_TRUE(stay.event[2]);
  EXPECT_FALSE(vitals.stays[1].event[0]);
  double sum = 0.0;
  double squares = 0.0;
  double count = 0.0;
  for (const Stay& of : vitals.stays) {
    const Points keys = vitals.Keys(of);
    for (int64_t hour = 0; hour < keys.count(); ++hour) {
      sum += keys.row(hour)[0];
      squares += keys.row(hour)[0] * keys.row(hour)[0];
      count += 1.0;
    }
  }
  EXPECT_NEAR(sum, 0.0, 1e-9);
  EXPECT_NEAR(squares / count, 1.0, 1e-9);
}

TEST_F(VitalsTest, ADirectoryIsRead) {
  WriteRecords();
  ASSERT_OK_AND_ASSIGN(const Vitals vitals, LoadChallenge2012(directory_.string()));
  ExpectRecords(vitals);
}

TEST_F(VitalsTest, AnArchiveIsRead) {
  WriteRecords();
  for (const std::string packed : {"a.tar", "a.tar.gz"}) {
    const std::string path = (directory_ / packed).string();
    const std::string command =
        "tar --auto-compress --format=ustar -C " + directory_.string() + " -cf " + path + " set-a";
    ASSERT_EQ(std::system(command.c_str()), 0);
    ASSERT_OK_AND_ASSIGN(const Vitals vitals, LoadChallenge2012(path));
    ExpectRecords(vitals);
  }
}

TEST_F(VitalsTest, WhatCannotBeReadIsNamed) {
  const std::string path = (directory_ / "a.tar.gz").string();
  EXPECT_THAT(LoadChallenge2012(path).status().message(), HasSubstr("--data"));
  std::ofstream(path) << "no archive";
  EXPECT_THAT(LoadChallenge2012(path).status().message(), HasSubstr("gzip"));
  const std::string tar = (directory_ / "a.tar").string();
  std::ofstream(tar) << std::string(2048, 'x');
  EXPECT_THAT(LoadChallenge2012(tar).status().message(), HasSubstr("no tar archive"));
  EXPECT_THAT(LoadChallenge2012(directory_.string()).status().message(),
              HasSubstr("physionet.org"));
}

TEST(SyntheticVitalsTest, AreAFunctionOfTheSeed) {
  const Vitals first = MakeSyntheticVitals(50, 1);
  EXPECT_EQ(first.stays[49].raw.x, MakeSyntheticVitals(50, 1).stays[49].raw.x);
  EXPECT_NE(first.stays[49].raw.x, MakeSyntheticVitals(50, 2).stays[49].raw.x);
  int64_t events = 0;
  for (const Stay& stay : first.stays) {
    for (const bool event : stay.event) events += event ? 1 : 0;
  }
  EXPECT_GT(events, 20);
  EXPECT_LT(events, 50 * 48 / 5);  // rare
}

TEST(DistinctHoursTest, LeavesOutNearOnes) {
  const Points keys{1, {0.0, 0.05, 0.2, 0.25, 0.35, 9.0}};
  EXPECT_EQ(DistinctHours(keys, 5, 0.1).x, (std::vector<double>{0.0, 0.2, 0.35}));
}

}  // namespace
}  // namespace lethe::paper
