#include "tests/crash/disk_trace.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
#include <set>
#include <utility>

#include "kernels/base/check.h"
#include "tests/audit/temp_directory.h"

namespace lethe::testing {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSectorBytes = 512;

}  // namespace

struct DiskTrace::Fate {
  enum class Kind {
    kKept,
    kDropped,
    kTorn,     // a write's first bytes
    kSectors,  // some sectors of a write
    kRubbish,  // the same, and anything in the others
    kZeros,    // the size that a write gave the file
  };
  Kind kind = Kind::kKept;
  size_t first_bytes = 0;
  uint64_t seed = 0;
};

DiskTrace::DiskTrace(const std::string& directory) {
  start_.emplace_back().is_directory = true;
  ReadIn(directory, 0);
  now_ = start_;
}

void DiskTrace::ReadIn(const std::string& path, int node) {
  for (const auto& entry : fs::directory_iterator(path)) {
    const int child = static_cast<int>(start_.size());
    start_.emplace_back();
    start_[static_cast<size_t>(node)].entries[entry.path().filename()] = child;
    if (entry.is_directory()) {
      start_.back().is_directory = true;
      ReadIn(entry.path(), child);
    } else {
      start_.back().bytes = audit::ReadFile(entry.path());
    }
  }
}

int DiskTrace::NewNode(bool is_directory) {
  start_.emplace_back().is_directory = is_directory;
  now_.emplace_back().is_directory = is_directory;
  return static_cast<int>(start_.size()) - 1;
}

void DiskTrace::Write(int node, uint64_t offset, absl::string_view bytes) {
  operations_.push_back({Kind::kWrite, node, offset, std::string(bytes), {}});
  Apply(operations_.back(), {}, &now_);
}

void DiskTrace::Truncate(int node, uint64_t size) {
  operations_.push_back({Kind::kTruncate, node, size, "", {}});
  Apply(operations_.back(), {}, &now_);
}

void DiskTrace::Rename(std::vector<NameChange> changes) {
  LETHE_CHECK(!changes.empty());
  const int directory = changes.back().directory;
  operations_.push_back({Kind::kRename, directory, 0, "", std::move(changes)});
  Apply(operations_.back(), {}, &now_);
}

void DiskTrace::Sync(int node) { operations_.push_back({Kind::kSync, node, 0, "", {}}); }

void DiskTrace::FailSync(int node) { operations_.push_back({Kind::kFailSync, node, 0, "", {}}); }

int DiskTrace::Find(const std::string& path) const {
  int node = 0;
  for (const fs::path& part : fs::path(path)) {
    const auto& entries = now_[static_cast<size_t>(node)].entries;
    const auto found = entries.find(part.string());
    if (found == entries.end()) return -1;
    node = found->second;
  }
  return node;
}

std::vector<size_t> DiskTrace::SyncPoints() const {
  std::vector<size_t> points;
  for (size_t i = 0; i < operations_.size(); ++i) {
    if (operations_[i].kind == Kind::kSync) points.push_back(i);
  }
  points.push_back(operations_.size());
  return points;
}

std::vector<bool> DiskTrace::DurableAt(size_t position) const {
  std::vector<bool> durable(position, false);
  std::map<int, std::vector<size_t>> waiting;  // by node
  for (size_t i = 0; i < position; ++i) {
    const Operation& operation = operations_[i];
    std::vector<size_t>& of_node = waiting[operation.node];
    switch (operation.kind) {
      case Kind::kSync:
        for (const size_t waiter : of_node) durable[waiter] = true;
        of_node.clear();
        break;
      case Kind::kFailSync:
        of_node.clear();
        break;
      default:
        of_node.push_back(i);
    }
  }
  return durable;
}

void DiskTrace::Apply(const Operation& operation, const Fate& fate, DiskImage* image) {
  if (fate.kind == Fate::Kind::kDropped) return;
  if (operation.kind == Kind::kRename) {
    for (const NameChange& change : operation.names) {
      auto& entries = (*image)[static_cast<size_t>(change.directory)].entries;
      if (change.node < 0) {
        entries.erase(change.name);
      } else {
        entries[change.name] = change.node;
      }
    }
    return;
  }
  if (operation.kind != Kind::kWrite && operation.kind != Kind::kTruncate) return;
  std::string& file = (*image)[static_cast<size_t>(operation.node)].bytes;
  if (operation.kind == Kind::kTruncate) {
    file.resize(operation.offset);
    return;
  }
  const std::string& bytes = operation.bytes;
  const size_t count = fate.kind == Fate::Kind::kTorn ? fate.first_bytes : bytes.size();
  if (file.size() < operation.offset + count) file.resize(operation.offset + count);
  if (fate.kind == Fate::Kind::kZeros) return;
  std::mt19937_64 random(fate.seed);
  const bool by_sectors = fate.kind == Fate::Kind::kSectors || fate.kind == Fate::Kind::kRubbish;
  for (size_t at = 0; at < count;) {
    const size_t offset = operation.offset + at;
    const size_t end = std::min(count, at + kSectorBytes - offset % kSectorBytes);
    if (!by_sectors || random() % 2 == 0) {
      std::copy(bytes.data() + at, bytes.data() + end, file.data() + offset);
    } else if (fate.kind == Fate::Kind::kRubbish) {
      for (size_t i = at; i < end; ++i) file[operation.offset + i] = static_cast<char>(random());
    }
    at = end;
  }
}

DiskImage DiskTrace::ImageAt(size_t position, const TearPattern& pattern) const {
  const std::vector<bool> durable = DurableAt(position);
  std::vector<size_t> open;  // operations whose fate the pattern decides
  for (size_t i = 0; i < position; ++i) {
    const Kind kind = operations_[i].kind;
    if (!durable[i] && kind != Kind::kSync && kind != Kind::kFailSync) open.push_back(i);
  }
  std::mt19937_64 random(pattern.seed * 1000003 + position * 31 +
                         static_cast<uint64_t>(pattern.number));
  using FateKind = Fate::Kind;
  const auto fate_of = [&](size_t i) -> Fate {
    const bool is_write = operations_[i].kind == Kind::kWrite;
    const bool is_last = i == open.back();
    const size_t size = operations_[i].bytes.size();
    switch (pattern.number) {
      case kAllDropped:
        return {FateKind::kDropped};
      case kAllKept:
        return {};
      case 2:
        return {is_last ? FateKind::kDropped : FateKind::kKept};
      case 3:
        return {is_last ? FateKind::kKept : FateKind::kDropped};
      case 4:
        return {is_write ? FateKind::kZeros : FateKind::kKept};
      case 5:
        return {is_write ? FateKind::kKept : FateKind::kDropped};
      case 6:
        return {is_write && is_last ? FateKind::kTorn : FateKind::kKept, size / 2};
      case 7:
        return {i == open.front() ? FateKind::kDropped : FateKind::kKept};
      default:
        break;
    }
    const uint64_t draw = random();
    const auto kind = static_cast<FateKind>(draw % (is_write ? 6 : 2));
    return {kind, size == 0 ? 0 : (draw >> 8) % size, random()};
  };
  DiskImage image = start_;
  for (size_t i = 0; i < position; ++i) {
    Apply(operations_[i], durable[i] || open.empty() ? Fate() : fate_of(i), &image);
  }
  return image;
}

void WriteImage(const DiskImage& image, const std::string& directory) {
  fs::remove_all(directory);
  const std::function<void(int, const fs::path&)> write = [&](int node, const fs::path& path) {
    const DiskNode& from = image[static_cast<size_t>(node)];
    if (!from.is_directory) {
      audit::WriteFile(path.string(), from.bytes);
      fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
      return;
    }
    fs::create_directory(path);
    fs::permissions(path, fs::perms::owner_all);
    for (const auto& [name, child] : from.entries) write(child, path / name);
  };
  write(0, directory);
}

uint64_t HashOf(const DiskImage& image) {
  std::string all;
  const std::function<void(int)> add = [&](int node) {
    const DiskNode& from = image[static_cast<size_t>(node)];
    all += std::to_string(from.bytes.size()) + ":" + from.bytes;
    for (const auto& [name, child] : from.entries) {
      all += "/" + name + "=";
      add(child);
    }
    all += ";";
  };
  add(0);
  return std::hash<std::string>()(all);
}

}  // namespace lethe::testing
