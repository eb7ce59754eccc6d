#include "client/commands/request_parts.h"

#include "absl/strings/str_cat.h"

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

}  // namespace lethe::client
