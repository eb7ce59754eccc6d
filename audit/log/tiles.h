// Tile, TilesOf, EntryBundlesOf, …: the layout of an exported log, C2SP tlog-tiles.
//
// Equation:  tile(L, N) = the hashes of the complete subtrees over leaves [j 256^L, (j+1) 256^L) for j in
//            [256 N, 256 N + width); width 256, or what is there in the last tile of a level (none: no tile).
//            Paths: "tile/<L>/<N>" or "tile/<L>/<N>.p/<width>", "tile/entries/<N>[.p/<width>]", with N in
//            groups of three digits, all but the last with an x before them: 1234067 = x001/x234/067.
// Shapes:    a tile is width × 32 bytes; an entry bundle holds the same leaves as the tile of level 0, each
//            as two bytes of length, most significant first, and the entry.
// Units:     levels count steps of eight tree levels.
// Requires:  WriteTile: a tree that holds the tile's subtrees. WriteEntryBundle: entries of at most 65,535 bytes.
// Rejects:   ParseEntryBundle: INVALID_ARGUMENT when an entry is cut or bytes are left over.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_TILES_H_
#define LETHE_AUDIT_LOG_TILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/log/merkle_tree.h"

namespace lethe::audit {

inline constexpr uint64_t kTileWidth = 256;
inline constexpr size_t kTreeLevelsPerTile = 8;

struct Tile {
  size_t level = 0;
  uint64_t index = 0;
  uint64_t width = kTileWidth;
};

// Every tile of a tree of this size, level by level.
std::vector<Tile> TilesOf(uint64_t tree_size);
// The tiles of level 0, which are the entry bundles too.
std::vector<Tile> EntryBundlesOf(uint64_t tree_size);

std::string TilePath(const Tile& tile);
std::string EntryBundlePath(const Tile& bundle);
// Where an export keeps the body of a leaf, if it does.
std::string BodyPath(const Sha256Digest& leaf_hash);

std::string WriteTile(const MerkleTree& tree, const Tile& tile);
std::string WriteEntryBundle(absl::Span<const std::string> entries);
// Views into `bytes`.
absl::StatusOr<std::vector<absl::string_view>> ParseEntryBundle(absl::string_view bytes);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_TILES_H_
