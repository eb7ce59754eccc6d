// Goal: an export has the layout of C2SP tlog-tiles; whoever holds its signed head notices every change of an exported log
// (audit.md A3): every flipped bit, every cut of every file, swapped, spliced, added and missing parts.
// Method: a log of 1,000 leaves in memory. Its tiles are checked against the signed root once; then each of the 3.2 million
// flips of an entry is judged as ReadExport judges it, by parsing its bundle and comparing that leaf with its hash, while all other
// leaves have the bytes that were checked. Every 4,001st mutant goes through the whole of ReadExport too, and must get the same
// verdict; so do the mutants of other files where they are few.
#include "audit/log/log_export.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "audit/log/leaf.h"
#include "audit/log/log_check.h"
#include "audit/log/tiles.h"
#include "tests/audit/log/log_testing.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;

constexpr char kOrigin[] = "test.example/log";
constexpr int kNumLeaves = 1000;

class MemoryFiles : public LogFiles {
 public:
  absl::StatusOr<std::string> Read(const std::string& path) const override {
    const auto file = files.find(path);
    if (file == files.end()) return absl::NotFoundError(path);
    return file->second;
  }
  absl::StatusOr<std::vector<std::string>> List() const override {
    std::vector<std::string> paths;
    for (const auto& [path, contents] : files) paths.push_back(path);
    return paths;
  }
  std::map<std::string, std::string> files;
};

VerifierKey TestVerifierKey() { return *MakeVerifierKey(kOrigin, TestLogKey()->public_key()); }

// Leaves [first, first + num) by number, exported to files and read back into memory.
MemoryFiles Exported(int first, int num) {
  const TempDirectory directory(TempDirectory::Where::kMemory);
  LogExporter exporter(directory.path());
  for (int i = first; i < first + num; ++i) EXPECT_OK(exporter.Add(TestLeaf(i)));
  const Checkpoint head{kOrigin, static_cast<uint64_t>(num), exporter.tree().Root()};
  EXPECT_OK(exporter.Finish(SignCheckpoint(head, *TestLogKey()), TestVerifierKey()));
  const DirectoryFiles on_disk(directory.path());
  MemoryFiles files;
  const std::vector<std::string> paths = *on_disk.List();
  for (const std::string& path : paths) files.files[path] = *on_disk.Read(path);
  return files;
}

class LogExportTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pristine_ = new MemoryFiles(Exported(0, kNumLeaves));
    Findings findings;
    image_ = new LogImage(ReadExport(*pristine_, TestVerifierKey(), &findings));
    ASSERT_TRUE(findings.empty()) << findings.listed()[0].place << ": "
                                  << findings.listed()[0].what;
  }
  static void TearDownTestSuite() {
    delete pristine_;
    delete image_;
  }
  // The verdict of the whole check.
  static bool IsWhole(const MemoryFiles& files) {
    Findings findings;
    ReadExport(files, TestVerifierKey(), &findings);
    return findings.empty();
  }
  static bool IsWholeWith(const std::string& path, const std::string& contents) {
    MemoryFiles files = *pristine_;
    files.files[path] = contents;
    return IsWhole(files);
  }
  // What ReadExport does with the bundle's bytes, when only those of leaf `changed` differ from the checked ones.
  static bool BundleHolds(const Tile& bundle, absl::string_view bytes, uint64_t changed) {
    const absl::StatusOr<std::vector<absl::string_view>> entries = ParseEntryBundle(bytes);
    return entries.ok() && entries->size() == bundle.width &&
           CheckEntry(image_->tree, bundle.index * kTileWidth + changed, (*entries)[changed]).ok();
  }
  // The same for any change.
  static bool WholeBundleHolds(const Tile& bundle, absl::string_view bytes) {
    const absl::StatusOr<std::vector<absl::string_view>> entries = ParseEntryBundle(bytes);
    if (!entries.ok() || entries->size() != bundle.width) return false;
    for (size_t i = 0; i < entries->size(); ++i) {
      if (!CheckEntry(image_->tree, bundle.index * kTileWidth + i, (*entries)[i]).ok())
        return false;
    }
    return true;
  }
  static MemoryFiles* pristine_;
  static LogImage* image_;
};

MemoryFiles* LogExportTest::pristine_ = nullptr;
LogImage* LogExportTest::image_ = nullptr;

TEST_F(LogExportTest, PathsAreThoseOfTheSpecification) {
  EXPECT_EQ(TilePath({0, 0, 256}), "tile/0/000");
  EXPECT_EQ(TilePath({0, 273, 112}), "tile/0/273.p/112");
  EXPECT_EQ(TilePath({2, 1234067, 8}), "tile/2/x001/x234/067.p/8");
  EXPECT_EQ(EntryBundlePath({0, 1234067, 256}), "tile/entries/x001/x234/067");
  // The specification's own example: a tree of 70,000.
  std::vector<std::string> paths;
  for (const Tile& tile : TilesOf(70'000)) paths.push_back(TilePath(tile));
  EXPECT_EQ(paths.size(), 274u + 2u + 1u);
  EXPECT_EQ(paths[0], "tile/0/000");
  EXPECT_EQ(paths[272], "tile/0/272");
  EXPECT_EQ(paths[273], "tile/0/273.p/112");
  EXPECT_EQ(paths[274], "tile/1/000");
  EXPECT_EQ(paths[275], "tile/1/001.p/17");
  EXPECT_EQ(paths[276], "tile/2/000.p/1");
  EXPECT_TRUE(TilesOf(0).empty());
  EXPECT_EQ(TilesOf(256).size(), 2u);  // a full tile, and the one hash above it
}

TEST_F(LogExportTest, AnExportReadsBack) {
  EXPECT_EQ(image_->head->tree_size, 1000u);
  ASSERT_EQ(image_->entries.size(), 1000u);
  for (int i = 0; i < kNumLeaves; i += 37)
    EXPECT_EQ(image_->entries[static_cast<size_t>(i)], TestLeaf(i));
  EXPECT_TRUE(IsWhole(Exported(0, 0)));
  EXPECT_TRUE(IsWhole(Exported(0, 1)));
  EXPECT_TRUE(IsWhole(Exported(0, 256)));
  EXPECT_TRUE(IsWhole(Exported(0, 257)));
}

TEST_F(LogExportTest, EveryFlippedBitOfTheEntriesIsDetected) {
  uint64_t num_mutants = 0;
  uint64_t num_missed = 0;
  for (const Tile& bundle : EntryBundlesOf(kNumLeaves)) {
    const std::string path = EntryBundlePath(bundle);
    std::string bytes = pristine_->files.at(path);
    ASSERT_TRUE(WholeBundleHolds(bundle, bytes));
    constexpr size_t kStride = 2 + kLogLeafBytes;
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      const auto mask = static_cast<char>(1 << (bit % 8));
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
      // A changed length may move every later entry, but this one is the first.
      const bool missed = BundleHolds(bundle, bytes, bit / 8 / kStride);
      num_missed += missed ? 1 : 0;
      if (++num_mutants % 4001 == 0) {
        ASSERT_EQ(IsWholeWith(path, bytes), missed) << path << " bit " << bit;
      }
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
    }
  }
  EXPECT_EQ(num_missed, 0u);
  EXPECT_EQ(num_mutants, uint64_t{kNumLeaves} * (2 + kLogLeafBytes) * 8);
}

TEST_F(LogExportTest, EveryFlippedBitOfTilesAndCheckpointIsDetected) {
  for (const Tile& tile : TilesOf(kNumLeaves)) {
    const std::string path = TilePath(tile);
    const std::string& bytes = pristine_->files.at(path);
    // Hashes of level 0 stand for their entries, those above for the level below.
    const std::string derived = WriteTile(image_->tree, tile);
    ASSERT_EQ(bytes, derived);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string flipped = bytes;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      ASSERT_NE(flipped, derived) << path << " bit " << bit;
      if (bit % 2003 == 0) {
        ASSERT_FALSE(IsWholeWith(path, flipped)) << path << " bit " << bit;
      }
    }
  }
  const std::string& note = pristine_->files.at(kCheckpointFile);
  for (size_t bit = 0; bit < note.size() * 8; ++bit) {
    std::string flipped = note;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(OpenCheckpoint(flipped, TestVerifierKey()).ok()) << bit;
  }
}

TEST_F(LogExportTest, EveryCutIsDetected) {
  for (const Tile& bundle : EntryBundlesOf(kNumLeaves)) {
    const std::string& bytes = pristine_->files.at(EntryBundlePath(bundle));
    for (size_t size = 0; size < bytes.size(); ++size) {
      const absl::StatusOr<std::vector<absl::string_view>> entries =
          ParseEntryBundle(absl::string_view(bytes).substr(0, size));
      ASSERT_FALSE(entries.ok() && entries->size() == bundle.width) << size;
    }
  }
  for (const auto& [path, bytes] : pristine_->files) {
    // Every length of the short files, a sample of the long ones.
    for (size_t size = 0; size < bytes.size(); size += bytes.size() / 40 + 1) {
      EXPECT_FALSE(IsWholeWith(path, bytes.substr(0, size))) << path << " cut to " << size;
    }
    EXPECT_FALSE(IsWholeWith(path, bytes + '\0')) << path;
    MemoryFiles files = *pristine_;
    files.files.erase(path);
    EXPECT_FALSE(IsWhole(files)) << path << " missing";
  }
}

TEST_F(LogExportTest, EveryChangedLineOfTheCheckpointIsDetected) {
  const std::string& note = pristine_->files.at(kCheckpointFile);
  const Ed25519PrivateKey other = Ed25519PrivateKey::Generate();
  const Checkpoint head = *image_->head;
  const std::string lines[] = {
      SignCheckpoint({"other.example/log", head.tree_size, head.root_hash}, *TestLogKey()),
      SignCheckpoint(head, other),
      note + note.substr(note.rfind("\u2014")),  // a signature line twice
      note.substr(0, note.rfind("\u2014")),      // none
      "\n" + note,
      note + "\n",
  };
  for (const std::string& changed : lines)
    EXPECT_FALSE(IsWholeWith(kCheckpointFile, changed)) << changed;
  // Another head of this log, truly signed: fewer or more leaves than there are, or another root.
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{999}, uint64_t{1001}}) {
    const Sha256Digest root = size <= 999 ? *image_->tree.RootAt(size) : head.root_hash;
    EXPECT_FALSE(IsWholeWith(kCheckpointFile, SignCheckpoint({kOrigin, size, root}, *TestLogKey())))
        << size;
  }
}

TEST_F(LogExportTest, SwappedLeavesAreDetected) {
  for (const Tile& bundle : EntryBundlesOf(kNumLeaves)) {
    const std::string path = EntryBundlePath(bundle);
    const std::string& bytes = pristine_->files.at(path);
    ASSERT_OK_AND_ASSIGN(const std::vector<absl::string_view> entries, ParseEntryBundle(bytes));
    for (size_t i = 0; i + 1 < entries.size(); ++i) {
      std::vector<std::string> swapped(entries.begin(), entries.end());
      std::swap(swapped[i], swapped[i + 1]);
      ASSERT_FALSE(WholeBundleHolds(bundle, WriteEntryBundle(swapped))) << path << " " << i;
      if (i % 50 == 0) {
        // With their hashes swapped too.
        MemoryFiles files = *pristine_;
        files.files[path] = WriteEntryBundle(swapped);
        std::string& tile = files.files[TilePath({0, bundle.index, bundle.width})];
        std::swap_ranges(tile.begin() + static_cast<std::ptrdiff_t>(32 * i),
                         tile.begin() + static_cast<std::ptrdiff_t>(32 * i + 32),
                         tile.begin() + static_cast<std::ptrdiff_t>(32 * i + 32));
        EXPECT_FALSE(IsWhole(files)) << path << " " << i;
      }
    }
  }
}

// Both logs are valid, of one origin, under one key: a server with two histories.
TEST_F(LogExportTest, SplicesOfTwoValidLogsAreDetected) {
  const MemoryFiles other = Exported(5000, kNumLeaves);
  ASSERT_TRUE(IsWhole(other));
  for (const auto& [path, bytes] : other.files) {
    EXPECT_FALSE(IsWholeWith(path, bytes)) << path;
  }
  // Entries, and entries with their hashes, up to each bundle.
  MemoryFiles entries = *pristine_;
  MemoryFiles both = *pristine_;
  for (const Tile& bundle : EntryBundlesOf(kNumLeaves)) {
    const std::string path = EntryBundlePath(bundle);
    entries.files[path] = other.files.at(path);
    EXPECT_FALSE(IsWhole(entries)) << path;
    both.files[path] = other.files.at(path);
    both.files[TilePath(bundle)] = other.files.at(TilePath(bundle));
    EXPECT_FALSE(IsWhole(both)) << path;
  }
  // All of the other log but its checkpoint.
  both = other;
  both.files[kCheckpointFile] = pristine_->files.at(kCheckpointFile);
  EXPECT_FALSE(IsWhole(both));
}

TEST_F(LogExportTest, FilesOfNoTreeAreNamedAndNarrowerTilesMayStay) {
  EXPECT_FALSE(IsWholeWith("tile/0/004", std::string(32, 'x')));
  EXPECT_FALSE(IsWholeWith("tile/7/000.p/1", std::string(32, 'x')));
  EXPECT_FALSE(IsWholeWith("tile/0/000.p/5", std::string(160, 'x')));
  const std::string& full = pristine_->files.at("tile/0/000");
  EXPECT_TRUE(IsWholeWith("tile/0/000.p/5", full.substr(0, 160)));
}

TEST_F(LogExportTest, AnExportGrowsAndRefusesAFork) {
  const TempDirectory directory(TempDirectory::Where::kMemory);
  const auto export_leaves = [&](int first, int num) {
    LogExporter exporter(directory.path());
    // The first 100 leaves are those of the log; `first` tells the rest.
    for (int i = 0; i < num; ++i) EXPECT_OK(exporter.Add(TestLeaf(i < 100 ? i : first + i)));
    const Checkpoint head{kOrigin, static_cast<uint64_t>(num), exporter.tree().Root()};
    return exporter.Finish(SignCheckpoint(head, *TestLogKey()), TestVerifierKey());
  };
  EXPECT_OK(export_leaves(0, 90));
  EXPECT_OK(export_leaves(0, 300));
  const DirectoryFiles files(directory.path());
  Findings findings;
  EXPECT_EQ(ReadExport(files, TestVerifierKey(), &findings).entries.size(), 300u);
  EXPECT_TRUE(findings.empty());
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> paths, files.List());
  for (const std::string& path : paths) EXPECT_FALSE(absl::StrContains(path, "p/90")) << path;
  EXPECT_THAT(export_leaves(7000, 310), StatusIs(absl::StatusCode::kDataLoss, "is a fork"));
  EXPECT_THAT(export_leaves(0, 200), StatusIs(absl::StatusCode::kDataLoss, "covers 300"));
}

}  // namespace
}  // namespace lethe::audit
