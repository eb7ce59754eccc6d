#include "client/commands/request_parts.h"

#include <array>
#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/client.h"

#include "audit/crypto/secret.h"

namespace lethe::client {
namespace {

// types.proto.
constexpr size_t kRequestIdLengthMax = 64;

}  // namespace

absl::Status CheckPartIds(const std::string& request_id, size_t num_parts,
                          absl::string_view input) {
  const size_t suffix = num_parts == 1 ? 0 : absl::StrCat(".", num_parts - 1).size();
  if (request_id.size() + suffix <= kRequestIdLengthMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--request-id: want at most ", kRequestIdLengthMax - suffix, " characters",
                   suffix == 0 ? ""
                               : absl::StrCat(" for this ", input, ", which is sent in ", num_parts,
                                              " parts named ID.0 to ID.", num_parts - 1)));
}

std::string PartId(const std::string& request_id, size_t part, size_t num_parts) {
  return request_id.empty() || num_parts == 1 ? request_id : absl::StrCat(request_id, ".", part);
}

absl::Status OfWhole(absl::Status status, const std::string& request_id) {
  if (status.GetPayload(kOutcomeUnknownType).has_value()) {
    status.SetPayload(kOutcomeUnknownType, absl::Cord(request_id));
  }
  return status;
}

void EnsureRequestId(std::string* request_id) {
  if (!request_id->empty()) return;
  std::array<uint8_t, 16> bytes{};
  audit::RandomBytes(absl::MakeSpan(bytes));
  *request_id = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace lethe::client
