#include "server/store/data_keys.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/crypto/key_file.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/sync_directory.h"
#include "kernels/base/write_all.h"

namespace lethe {
namespace {

constexpr uint64_t kHeaderBytes = 4096;
constexpr size_t kSlotBytes = 64;
constexpr size_t kGrowSlots = 64;  // a page of 4096 bytes
constexpr size_t kCheckBytes = 16;
constexpr char kMagic[] = "lethe data keys 1\n";
constexpr char kCheckDomain[] = "lethe-data-key-v1";
// No key has this generation.
constexpr uint64_t kDamaged = ~uint64_t{0};

using Slot = std::array<uint8_t, kSlotBytes>;

absl::Status IoError(absl::string_view what) {
  const std::string message = absl::StrCat("data keys: ", what, ": ", std::strerror(errno));
  if (errno == ENOSPC || errno == EDQUOT) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

absl::Status WriteAt(int descriptor, uint64_t offset, absl::Span<const uint8_t> bytes) {
  return WriteAllAt(descriptor, offset, audit::AsStringView(bytes)) ? absl::OkStatus()
                                                                    : IoError("write failed");
}

absl::Status ReadAt(int descriptor, uint64_t offset, absl::Span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError("read failed");
    if (got == 0) return absl::DataLossError("data keys: the file ends early");
    bytes.remove_prefix(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

uint64_t OffsetOf(uint64_t slot) { return kHeaderBytes + slot * kSlotBytes; }

std::string HeaderOf(const StoreId& store) {
  ByteWriter writer;
  writer.Raw(kMagic, sizeof kMagic - 1);
  writer.Raw(store.data(), store.size());
  const audit::Sha256Digest check = audit::Sha256Of(writer.bytes());
  writer.Raw(check.data(), check.size());
  std::string header = writer.Take();
  header.resize(kHeaderBytes);
  return header;
}

std::array<uint8_t, kCheckBytes> CheckOf(uint64_t slot, uint64_t generation,
                                         absl::Span<const uint8_t> key) {
  audit::Sha256 hash;
  ByteWriter writer;
  writer.U64(slot);
  writer.U64(generation);
  hash.Update(kCheckDomain).Update(writer.bytes()).Update(key);
  const audit::Sha256Digest digest = hash.Finish();
  std::array<uint8_t, kCheckBytes> check{};
  std::copy_n(digest.begin(), kCheckBytes, check.begin());
  return check;
}

// What a slot is read as: a generation, 0 or kDamaged.
uint64_t GenerationOf(uint64_t slot, const Slot& bytes) {
  if (std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; })) return 0;
  uint64_t generation = 0;
  std::memcpy(&generation, bytes.data(), sizeof generation);
  const auto key = absl::MakeConstSpan(bytes).subspan(8, 32);
  const auto check = CheckOf(slot, generation, key);
  const bool fits = generation != 0 && generation != kDamaged &&
                    std::equal(check.begin(), check.end(), bytes.begin() + 40);
  return fits ? generation : kDamaged;
}

// A slot that wipes itself.
struct SlotBuffer {
  ~SlotBuffer() { audit::SecureWipe(bytes.data(), bytes.size()); }
  Slot bytes{};
};

uint64_t RandomGeneration() {
  uint64_t generation = 0;
  while (generation == 0 || generation == kDamaged) {
    std::array<uint8_t, sizeof generation> bytes{};
    audit::RandomBytes(absl::MakeSpan(bytes));
    std::memcpy(&generation, bytes.data(), sizeof generation);
  }
  return generation;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataKeys>> DataKeys::Create(const std::string& path,
                                                           const StoreId& store) {
  // Under another name first: a half-written header would look like a damaged file for ever.
  const std::string temporary = path + ".new";
  unlink(temporary.c_str());
  LETHE_RETURN_IF_ERROR(audit::WriteKeyFile(temporary, HeaderOf(store)));
  if (rename(temporary.c_str(), path.c_str()) != 0) return IoError("rename failed");
  LETHE_RETURN_IF_ERROR(SyncParentOf(path));
  return Open(path, store);
}

absl::StatusOr<std::unique_ptr<DataKeys>> DataKeys::Open(const std::string& path,
                                                         const StoreId& store) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno == ENOENT) return absl::NotFoundError("data keys: no such file");
    return IoError("cannot be opened");
  }
  std::unique_ptr<DataKeys> keys(new DataKeys(descriptor));
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return IoError("cannot be examined");
  if ((info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        "data keys: group or others have access to the file, want mode 0600");
  }
  std::string header(kHeaderBytes, '\0');
  LETHE_RETURN_IF_ERROR(ReadAt(
      descriptor, 0, absl::MakeSpan(reinterpret_cast<uint8_t*>(header.data()), header.size())));
  if (header != HeaderOf(store)) {
    StoreId written{};
    std::memcpy(written.data(), header.data() + sizeof kMagic - 1, written.size());
    if (header == HeaderOf(written)) {
      return absl::FailedPreconditionError("data keys: the file belongs to another store");
    }
    return absl::DataLossError("data keys: the header is damaged");
  }
  LETHE_RETURN_IF_ERROR(keys->Load());
  return keys;
}

DataKeys::~DataKeys() { close(descriptor_); }

absl::Status DataKeys::Load() {
  struct stat info {};
  if (fstat(descriptor_, &info) != 0) return IoError("cannot be examined");
  // A slot that the file does not hold whole was being added when the process died.
  const uint64_t num_slots = (static_cast<uint64_t>(info.st_size) - kHeaderBytes) / kSlotBytes;
  for (uint64_t slot = 0; slot < num_slots; ++slot) {
    SlotBuffer buffer;
    LETHE_RETURN_IF_ERROR(ReadAt(descriptor_, OffsetOf(slot), absl::MakeSpan(buffer.bytes)));
    generations_.push_back(GenerationOf(slot, buffer.bytes));
    if (generations_.back() == 0) free_.insert(slot);
  }
  return absl::OkStatus();
}

absl::Status DataKeys::Grow() {
  const std::vector<uint8_t> zeros(kGrowSlots * kSlotBytes);
  LETHE_RETURN_IF_ERROR(WriteAt(descriptor_, OffsetOf(generations_.size()), zeros));
  for (size_t k = 0; k < kGrowSlots; ++k) {
    free_.insert(generations_.size());
    generations_.push_back(0);
  }
  return absl::OkStatus();
}

absl::StatusOr<DataKeyRef> DataKeys::NewKey() {
  if (free_.empty()) LETHE_RETURN_IF_ERROR(Grow());
  const DataKeyRef ref{*free_.begin(), RandomGeneration()};
  const audit::Secret32 key = audit::Secret32::Random();
  const auto check = CheckOf(ref.slot, ref.generation, key.bytes());
  SlotBuffer buffer;
  std::memcpy(buffer.bytes.data(), &ref.generation, sizeof ref.generation);
  std::copy(key.bytes().begin(), key.bytes().end(), buffer.bytes.begin() + 8);
  std::copy(check.begin(), check.end(), buffer.bytes.begin() + 40);
  dirty_ = true;
  free_.erase(ref.slot);
  generations_[ref.slot] = ref.generation;
  LETHE_RETURN_IF_ERROR(WriteAt(descriptor_, OffsetOf(ref.slot), buffer.bytes));
  return ref;
}

absl::Status DataKeys::Sync() {
  if (!dirty_) return absl::OkStatus();
  const bool synced = fdatasync(descriptor_) == 0 ||
                      (FaultActive(Fault::kFailedSyncRetried) && fdatasync(descriptor_) == 0);
  if (!synced) return IoError("sync failed");
  dirty_ = false;
  return absl::OkStatus();
}

absl::StatusOr<audit::Secret32> DataKeys::Find(const DataKeyRef& ref) const {
  if (ref.slot >= generations_.size() || ref.generation == 0) {
    return absl::NotFoundError("data keys: no such key");
  }
  if (generations_[ref.slot] == kDamaged) {
    return absl::DataLossError("data keys: a slot is damaged");
  }
  if (generations_[ref.slot] != ref.generation) {
    return absl::NotFoundError("data keys: the key was destroyed");
  }
  SlotBuffer buffer;
  LETHE_RETURN_IF_ERROR(ReadAt(descriptor_, OffsetOf(ref.slot), absl::MakeSpan(buffer.bytes)));
  if (GenerationOf(ref.slot, buffer.bytes) != ref.generation) {
    return absl::DataLossError("data keys: a slot has changed");
  }
  std::array<uint8_t, 32> key{};
  std::copy_n(buffer.bytes.begin() + 8, key.size(), key.begin());
  audit::Secret32 secret = audit::Secret32::FromBytes(key);
  audit::SecureWipe(key.data(), key.size());
  return secret;
}

absl::Status DataKeys::Clear(uint64_t slot) {
  generations_[slot] = 0;
  free_.insert(slot);
  if (FaultActive(Fault::kDataKeyKept)) return absl::OkStatus();
  dirty_ = true;
  return WriteAt(descriptor_, OffsetOf(slot), Slot{});
}

absl::Status DataKeys::Destroy(absl::Span<const DataKeyRef> refs) {
  for (const DataKeyRef& ref : refs) {
    if (ref.slot < generations_.size() && generations_[ref.slot] == ref.generation) {
      LETHE_RETURN_IF_ERROR(Clear(ref.slot));
    }
  }
  return Sync();
}

absl::Status DataKeys::DestroyAllBut(const std::set<DataKeyRef>& used) {
  std::set<uint64_t> used_slots;
  for (const DataKeyRef& ref : used) used_slots.insert(ref.slot);
  for (uint64_t slot = 0; slot < generations_.size(); ++slot) {
    const uint64_t generation = generations_[slot];
    if (generation == 0) continue;
    // A damaged slot that something refers to stays as it is, as evidence: it opens nothing.
    const bool keep =
        generation == kDamaged ? used_slots.count(slot) > 0 : used.count({slot, generation}) > 0;
    if (!keep) LETHE_RETURN_IF_ERROR(Clear(slot));
  }
  return Sync();
}

size_t DataKeys::num_keys() const {
  return static_cast<size_t>(std::count_if(generations_.begin(), generations_.end(),
                                           [](uint64_t generation) { return generation != 0; }));
}

}  // namespace lethe
