#include "audit/certificate/keyset.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "audit/certificate/json.h"
#include "audit/certificate/json_fields.h"
#include "audit/certificate/statement.h"
#include "audit/certificate/statement_rules.h"
#include "audit/crypto/encoding.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

absl::Status InvalidKeyset(absl::string_view field, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": want ", want));
}

absl::Status CheckKeys(const std::vector<TrustedRecordKey>& keys) {
  if (keys.empty() || keys.back().last_leaf_index != UINT64_MAX) {
    return InvalidKeyset("predicate.keys", "a last key without an end");
  }
  uint64_t next_first = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].first_leaf_index != next_first ||
        keys[i].last_leaf_index < keys[i].first_leaf_index) {
      return InvalidKeyset("predicate.keys", "ranges in order from 0, without gaps");
    }
    next_first = keys[i].last_leaf_index + 1;
    for (size_t j = 0; j < i; ++j) {
      if (keys[j].key == keys[i].key) return InvalidKeyset("predicate.keys", "each key once");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKeyset(const KeysetStatement& statement) {
  if (!IsPrintableAscii(statement.log_origin) || !ValidateKeyName(statement.log_origin).ok()) {
    return InvalidKeyset("predicate.log", "a log origin without spaces and '+'");
  }
  LETHE_RETURN_IF_ERROR(CheckTime("predicate.issuedAt", statement.issued_at));
  LETHE_RETURN_IF_ERROR(CheckKeys(statement.keys));
  if (statement.is_restore && (!statement.previous.has_value() || statement.next.has_value())) {
    return InvalidKeyset("predicate.previous",
                         "the log before, and no next one, in a restore record");
  }
  return absl::OkStatus();
}

Json KeyJson(const TrustedRecordKey& entry) {
  Json::Object key = {{"first", JsonU64(entry.first_leaf_index)},
                      {"key", Json::String(HexEncode(entry.key.SpkiDer()))}};
  if (entry.last_leaf_index != UINT64_MAX) {
    key.push_back({"last", JsonU64(entry.last_leaf_index)});
  }
  return Json::MakeObject(std::move(key));
}

std::string KeysetBytes(const KeysetStatement& statement) {
  Json::Array keys;
  for (const TrustedRecordKey& entry : statement.keys) keys.push_back(KeyJson(entry));
  Json::Object predicate = {{"issuedAt", Json::String(statement.issued_at)},
                            {"keys", Json::MakeArray(std::move(keys))},
                            {"log", Json::String(statement.log_origin)}};
  if (statement.next.has_value()) {
    predicate.push_back({"next", Json::String(WriteVerifierKey(*statement.next))});
  }
  if (statement.previous.has_value()) {
    predicate.push_back(
        {"previous",
         Json::MakeObject({{"log", Json::String(WriteVerifierKey(statement.previous->vkey))},
                           {"root", JsonDigest(statement.previous->root_hash)},
                           {"size", JsonU64(statement.previous->tree_size)}})});
  }
  const Json subject = Json::MakeObject(
      {{"digest", Json::MakeObject({{"sha256", JsonDigest(statement.keys.back().key.KeyId())}})},
       {"name", Json::String(kKeysetSubjectName)}});
  return WriteJson(Json::MakeObject(
      {{"_type", Json::String(kStatementType)},
       {"predicate", Json::MakeObject(std::move(predicate))},
       {"predicateType",
        Json::String(statement.is_restore ? kRestorePredicateType : kKeysetPredicateType)},
       {"subject", Json::MakeArray({subject})}}));
}

absl::StatusOr<TrustedRecordKey> ReadKey(JsonReader* reader, absl::Status* status) {
  const uint64_t first = reader->U64("first");
  const uint64_t last = reader->Has("last") ? reader->U64("last") : UINT64_MAX;
  const std::string spki = reader->Bytes("key");
  reader->Finish();
  LETHE_RETURN_IF_ERROR(*status);
  LETHE_ASSIGN_OR_RETURN(const Ed25519PublicKey key, Ed25519PublicKey::FromSpkiDer(spki));
  return TrustedRecordKey{key, first, last};
}

absl::Status ReadPredicate(JsonReader reader, KeysetStatement* statement, absl::Status* status) {
  statement->issued_at = reader.String("issuedAt");
  for (JsonReader& key : reader.Objects("keys")) {
    LETHE_ASSIGN_OR_RETURN(TrustedRecordKey entry, ReadKey(&key, status));
    statement->keys.push_back(std::move(entry));
  }
  statement->log_origin = reader.String("log");
  if (reader.Has("next")) {
    LETHE_ASSIGN_OR_RETURN(statement->next, ParseVerifierKey(reader.String("next")));
  }
  if (reader.Has("previous")) {
    JsonReader previous = reader.Object("previous");
    const std::string vkey = previous.String("log");
    LETHE_RETURN_IF_ERROR(*status);
    LETHE_ASSIGN_OR_RETURN(VerifierKey parsed, ParseVerifierKey(vkey));
    LogLink link{std::move(parsed)};
    link.root_hash = previous.Digest("root");
    link.tree_size = previous.U64("size");
    previous.Finish();
    statement->previous = std::move(link);
  }
  reader.Finish();
  return *status;
}

}  // namespace

absl::StatusOr<std::string> WriteKeyset(const KeysetStatement& statement) {
  LETHE_RETURN_IF_ERROR(CheckKeyset(statement));
  return KeysetBytes(statement);
}

absl::StatusOr<KeysetStatement> ParseKeyset(absl::string_view bytes) {
  if (bytes.size() > kStatementBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("statement: over ", kStatementBytesMax, " bytes"));
  }
  LETHE_ASSIGN_OR_RETURN(const Json json, ParseJson(bytes, JsonSyntax::kCanonical));
  absl::Status status;
  JsonReader reader(json, "", &status);
  KeysetStatement statement;
  const std::string type = reader.String("predicateType");
  statement.is_restore = type == kRestorePredicateType;
  if (!statement.is_restore && type != kKeysetPredicateType) {
    return absl::InvalidArgumentError("predicateType: unknown");
  }
  LETHE_RETURN_IF_ERROR(ReadPredicate(reader.Object("predicate"), &statement, &status));
  LETHE_RETURN_IF_ERROR(CheckKeyset(statement));
  // Types and subject follow from the rest, so the bytes as a whole tell whether they are right.
  if (KeysetBytes(statement) != bytes) {
    return absl::InvalidArgumentError("statement: a value is not in its canonical text");
  }
  return statement;
}

bool ClaimsToBeKeyset(absl::string_view bytes) {
  for (const char* type : {kKeysetPredicateType, kRestorePredicateType}) {
    if (absl::StrContains(bytes, absl::StrCat("\"predicateType\":\"", type, "\""))) return true;
  }
  return false;
}

absl::StatusOr<std::vector<TrustedRecordKey>> RotatedKeys(std::vector<TrustedRecordKey> keys,
                                                          const Ed25519PublicKey& next,
                                                          uint64_t first_leaf_index) {
  LETHE_RETURN_IF_ERROR(CheckKeys(keys));
  if (first_leaf_index <= keys.back().first_leaf_index) {
    return InvalidKeyset("first_leaf_index", "a leaf behind the present key's first");
  }
  keys.back().last_leaf_index = first_leaf_index - 1;
  keys.push_back({next, first_leaf_index, UINT64_MAX});
  LETHE_RETURN_IF_ERROR(CheckKeys(keys));
  return keys;
}

const TrustedRecordKey* KeyAt(const std::vector<TrustedRecordKey>& keys, uint64_t leaf_index) {
  for (const TrustedRecordKey& entry : keys) {
    if (entry.first_leaf_index <= leaf_index && leaf_index <= entry.last_leaf_index) return &entry;
  }
  return nullptr;
}

}  // namespace lethe::audit
