#include "audit/certificate/trust.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "audit/crypto/encoding.h"
#include "audit/log/decimal.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

// "<first>-[<last>]"
absl::Status ParseRange(absl::string_view text, TrustedRecordKey* key) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, '-');
  if (ends.size() != 2) return absl::InvalidArgumentError("want a range as 0-499 or 500-");
  LETHE_ASSIGN_OR_RETURN(key->first_leaf_index, ParseDecimal(ends[0]));
  if (!ends[1].empty()) {
    LETHE_ASSIGN_OR_RETURN(key->last_leaf_index, ParseDecimal(ends[1]));
  }
  if (key->first_leaf_index > key->last_leaf_index) {
    return absl::InvalidArgumentError("want a range with its first index at most its last");
  }
  return absl::OkStatus();
}

absl::Status ParseRecordKey(absl::Span<const absl::string_view> words, TrustStore* trust) {
  if (words.size() < 2 || words.size() > 4) {
    return absl::InvalidArgumentError("want: record <SPKI in hex> [<first>-[<last>] [<origin>]]");
  }
  LETHE_ASSIGN_OR_RETURN(const std::string spki, HexDecode(words[1]));
  LETHE_ASSIGN_OR_RETURN(const Ed25519PublicKey key, Ed25519PublicKey::FromSpkiDer(spki));
  TrustedRecordKey entry{key};
  if (words.size() > 2) LETHE_RETURN_IF_ERROR(ParseRange(words[2], &entry));
  if (words.size() > 3) {
    LETHE_RETURN_IF_ERROR(ValidateKeyName(words[3]));
    entry.origin = std::string(words[3]);
  }
  for (const TrustedRecordKey& other : trust->record_keys) {
    const bool one_log =
        other.origin.empty() || entry.origin.empty() || other.origin == entry.origin;
    if (other.key == key && one_log) return absl::InvalidArgumentError("key is repeated");
  }
  trust->record_keys.push_back(entry);
  return absl::OkStatus();
}

absl::Status ParseLogKey(absl::Span<const absl::string_view> words, TrustStore* trust) {
  if (words.size() != 2) return absl::InvalidArgumentError("want: log <vkey>");
  LETHE_ASSIGN_OR_RETURN(const VerifierKey vkey, ParseVerifierKey(words[1]));
  for (const VerifierKey& other : trust->log_keys) {
    if (other.name == vkey.name) return absl::InvalidArgumentError("origin is repeated");
  }
  trust->log_keys.push_back(vkey);
  return absl::OkStatus();
}

absl::Status ParseWitness(absl::Span<const absl::string_view> words, TrustStore* trust) {
  if (words.size() != 2) return absl::InvalidArgumentError("want: witness <vkey>");
  LETHE_ASSIGN_OR_RETURN(const WitnessKey witness, ParseWitnessKey(words[1]));
  for (const WitnessKey& other : trust->witnesses) {
    if (other.name == witness.name) return absl::InvalidArgumentError("witness is repeated");
  }
  trust->witnesses.push_back(witness);
  return absl::OkStatus();
}

absl::Status ParseLine(absl::string_view line, TrustStore* trust) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (words.empty() || words[0][0] == '#') return absl::OkStatus();
  if (words[0] == "record") return ParseRecordKey(words, trust);
  if (words[0] == "log") return ParseLogKey(words, trust);
  if (words[0] == "witness") return ParseWitness(words, trust);
  return absl::InvalidArgumentError("want record, log, witness or # at the beginning");
}

}  // namespace

absl::StatusOr<TrustStore> ParseTrust(absl::string_view text) {
  if (text.size() > kTrustBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("trust file: over ", kTrustBytesMax, " bytes"));
  }
  TrustStore trust;
  int line_number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    if (absl::Status status = ParseLine(line, &trust); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("trust file: line ", line_number, ": ", status.message()));
    }
  }
  return trust;
}

bool IsValidAt(const TrustStore& trust, const Ed25519PublicKey& key, absl::string_view origin,
               uint64_t leaf_index) {
  for (const TrustedRecordKey& entry : trust.record_keys) {
    if (entry.key == key && (entry.origin.empty() || entry.origin == origin) &&
        entry.first_leaf_index <= leaf_index && leaf_index <= entry.last_leaf_index) {
      return true;
    }
  }
  return false;
}

std::string WriteTrust(const TrustStore& trust) {
  std::string text;
  for (const TrustedRecordKey& entry : trust.record_keys) {
    absl::StrAppend(&text, "record ", HexEncode(entry.key.SpkiDer()));
    if (entry.first_leaf_index != 0 || entry.last_leaf_index != UINT64_MAX ||
        !entry.origin.empty()) {
      absl::StrAppend(&text, " ", entry.first_leaf_index, "-");
      if (entry.last_leaf_index != UINT64_MAX) absl::StrAppend(&text, entry.last_leaf_index);
    }
    if (!entry.origin.empty()) absl::StrAppend(&text, " ", entry.origin);
    absl::StrAppend(&text, "\n");
  }
  for (const VerifierKey& vkey : trust.log_keys) {
    absl::StrAppend(&text, "log ", WriteVerifierKey(vkey), "\n");
  }
  for (const WitnessKey& witness : trust.witnesses) {
    absl::StrAppend(&text, "witness ", WriteWitnessKey(witness), "\n");
  }
  return text;
}

}  // namespace lethe::audit
