#include "audit/log/tiles.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "audit/crypto/encoding.h"

namespace lethe::audit {
namespace {

void AppendLevel(size_t level, uint64_t num_hashes, std::vector<Tile>* tiles) {
  for (uint64_t begin = 0; begin < num_hashes; begin += kTileWidth) {
    tiles->push_back({level, begin / kTileWidth, std::min(kTileWidth, num_hashes - begin)});
  }
}

// "x001/x234/067", and ".p/<width>" behind it where the tile is not full.
std::string PathEnd(const Tile& tile) {
  std::string path = absl::StrFormat("%03d", tile.index % 1000);
  for (uint64_t rest = tile.index / 1000; rest > 0; rest /= 1000) {
    path = absl::StrFormat("x%03d/%s", rest % 1000, path);
  }
  if (tile.width < kTileWidth) absl::StrAppend(&path, ".p/", tile.width);
  return path;
}

}  // namespace

std::vector<Tile> TilesOf(uint64_t tree_size) {
  std::vector<Tile> tiles;
  uint64_t num_hashes = tree_size;
  for (size_t level = 0; num_hashes > 0; ++level) {
    AppendLevel(level, num_hashes, &tiles);
    num_hashes /= kTileWidth;
  }
  return tiles;
}

std::vector<Tile> EntryBundlesOf(uint64_t tree_size) {
  std::vector<Tile> bundles;
  AppendLevel(0, tree_size, &bundles);
  return bundles;
}

std::string TilePath(const Tile& tile) {
  return absl::StrCat("tile/", tile.level, "/", PathEnd(tile));
}

std::string EntryBundlePath(const Tile& bundle) {
  return absl::StrCat("tile/entries/", PathEnd(bundle));
}

std::string BodyPath(const Sha256Digest& leaf_hash) {
  return absl::StrCat("bodies/", HexEncode(leaf_hash));
}

std::string WriteTile(const MerkleTree& tree, const Tile& tile) {
  std::string bytes;
  bytes.reserve(tile.width * kSha256Bytes);
  const uint64_t begin = tile.index * kTileWidth;
  for (uint64_t j = begin; j < begin + tile.width; ++j) {
    absl::StrAppend(&bytes, AsStringView(tree.SubtreeRoot(tile.level * kTreeLevelsPerTile, j)));
  }
  return bytes;
}

std::string WriteEntryBundle(absl::Span<const std::string> entries) {
  std::string bytes;
  for (const std::string& entry : entries) {
    bytes.push_back(static_cast<char>(entry.size() >> 8));
    bytes.push_back(static_cast<char>(entry.size() & 0xff));
    bytes += entry;
  }
  return bytes;
}

absl::StatusOr<std::vector<absl::string_view>> ParseEntryBundle(absl::string_view bytes) {
  std::vector<absl::string_view> entries;
  entries.reserve(kTileWidth);
  while (!bytes.empty()) {
    if (bytes.size() < 2) return absl::InvalidArgumentError("entry bundle: a length is cut");
    const size_t size = static_cast<size_t>(static_cast<uint8_t>(bytes[0])) << 8 |
                        static_cast<size_t>(static_cast<uint8_t>(bytes[1]));
    bytes.remove_prefix(2);
    if (bytes.size() < size) return absl::InvalidArgumentError("entry bundle: an entry is cut");
    entries.push_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return entries;
}

}  // namespace lethe::audit
