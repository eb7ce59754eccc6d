#include "server/identity/credentials.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

#include "audit/crypto/secret.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

constexpr size_t kNameMax = 63;
absl::Status WantError(absl::string_view field, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": want ", accepted));
}

absl::StatusOr<uint8_t> ParseRoles(absl::string_view text) {
  uint8_t roles = 0;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    const Role* found = nullptr;
    for (const NamedRole& role : kNamedRoles) {
      if (role.name == word) found = &role.role;
    }
    if (found == nullptr) {
      return WantError("ROLES", "one or more of user,eraser,auditor,operator");
    }
    roles |= static_cast<uint8_t>(*found);
  }
  return roles;
}

absl::StatusOr<int64_t> ParseExpiry(absl::string_view text) {
  if (text == "never") return std::numeric_limits<int64_t>::max();
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error) || time == absl::InfiniteFuture() ||
      time == absl::InfinitePast()) {
    return WantError("EXPIRES", "never or a time like 2027-01-31T00:00:00Z");
  }
  return absl::ToUnixSeconds(time);
}

absl::StatusOr<Credential> ParseLine(absl::string_view line) {
  const std::vector<absl::string_view> fields =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (fields.size() != 5) {
    return absl::InvalidArgumentError("want TENANT NAME ROLES EXPIRES SHA256");
  }
  Credential credential;
  if (!IsCredentialName(fields[0])) return WantError("TENANT", kAcceptedCredentialName);
  if (!IsCredentialName(fields[1])) return WantError("NAME", kAcceptedCredentialName);
  credential.principal.tenant = std::string(fields[0]);
  credential.principal.name = std::string(fields[1]);
  LETHE_ASSIGN_OR_RETURN(credential.principal.roles, ParseRoles(fields[2]));
  LETHE_ASSIGN_OR_RETURN(credential.expires_s, ParseExpiry(fields[3]));
  const absl::StatusOr<audit::Sha256Digest> digest = ParseFingerprint(fields[4]);
  if (!digest.ok()) return WantError("SHA256", "64 hex digits");
  credential.digest = *digest;
  return credential;
}

}  // namespace

bool IsCredentialName(absl::string_view text) {
  const auto is_letter_or_digit = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c));
  };
  return !text.empty() && text.size() <= kNameMax && is_letter_or_digit(text.front()) &&
         is_letter_or_digit(text.back()) && std::all_of(text.begin(), text.end(), [&](char c) {
           return c == '-' || is_letter_or_digit(c);
         });
}

absl::StatusOr<audit::Sha256Digest> ParseFingerprint(absl::string_view text) {
  audit::Sha256Digest digest{};
  const bool is_hex = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
  if (!is_hex || text.size() != 2 * digest.size()) {
    return absl::InvalidArgumentError("want 64 hex digits");
  }
  const std::string bytes = absl::HexStringToBytes(text);
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

absl::StatusOr<std::vector<Credential>> ParseCredentials(absl::string_view text) {
  std::vector<Credential> credentials;
  const auto at_line = [](size_t number, absl::string_view message) {
    return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", message));
  };
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (!lines.back().empty()) {
    return at_line(lines.size(), "want a newline at its end (is the file still being written?)");
  }
  std::map<audit::Sha256Digest, size_t> line_of;
  for (size_t i = 0; i < lines.size(); ++i) {
    const absl::string_view line = absl::StripAsciiWhitespace(lines[i]);
    if (line.empty() || line.front() == '#') continue;
    absl::StatusOr<Credential> credential = ParseLine(line);
    if (!credential.ok()) return at_line(i + 1, credential.status().message());
    if (credentials.size() >= kCredentialsMax) {
      return at_line(i + 1, absl::StrCat("want at most ", kCredentialsMax, " credentials"));
    }
    const auto [first, is_new] = line_of.try_emplace(credential->digest, i + 1);
    if (!is_new) {
      return at_line(i + 1, absl::StrCat("SHA256: stands in line ", first->second, " already"));
    }
    credentials.push_back(*std::move(credential));
  }
  return credentials;
}

const Credential* FindCredential(absl::Span<const Credential> credentials,
                                 const audit::Sha256Digest& digest, int64_t now_s) {
  const Credential* found = nullptr;
  for (const Credential& credential : credentials) {
    const bool same = audit::ConstantTimeEqual(credential.digest, digest);
    found = same ? &credential : found;
  }
  return found != nullptr && now_s < found->expires_s ? found : nullptr;
}

}  // namespace lethe
