#include "audit/certificate/statement_rules.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

#include "audit/certificate/json.h"
#include "audit/certificate/scopes.h"
#include "audit/log/merkle_tree.h"
#include "audit/log/note.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr size_t kAuditorBytesMax = 63;

absl::Status Invalid(absl::string_view field, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": want ", want));
}

absl::Status CheckBounds(const DeviationBounds& bounds) {
  for (const double bound : {bounds.gap, bounds.delta, bounds.kernel_sum, bounds.alpha, bounds.rho,
                             bounds.decision, bounds.weight_ratio, bounds.readout}) {
    // Written so that NaN fails.
    if (!(bound >= 0)) return Invalid("predicate.memories.deviation.bound", "values of 0 or more");
  }
  return absl::OkStatus();
}

absl::Status CheckMemory(const Statement& statement, const MemoryReport& memory) {
  const uint64_t gated = memory.num_margin + memory.num_error + memory.num_reserve;
  const uint64_t largest = std::max({memory.num_margin, memory.num_error, memory.num_reserve});
  // Each is bounded by the retained count, so that the sum cannot wrap.
  if (largest > statement.retained.count || gated > statement.retained.count) {
    return Invalid("predicate.memories.partition", "at most as many keys as inputs are retained");
  }
  if ((gated == 0) != (memory.rows_root == MerkleEmptyRoot())) {
    return Invalid("predicate.memories.partition.root", "the empty tree's exactly without keys");
  }
  if (memory.smallest_margin != memory.smallest_margin) {
    return Invalid("predicate.memories.smallestMargin", "a number");
  }
  const bool wants_bounds = statement.proves_optimality && gated > 0;
  if (memory.deviation.has_value() != wants_bounds) {
    return Invalid("predicate.memories.deviation", "bounds exactly with proof P2 and keys");
  }
  if (!memory.deviation.has_value()) {
    if (memory.partition_proved) {
      return Invalid("predicate.memories.partitionProved", "false without deviation");
    }
    return absl::OkStatus();
  }
  // What is not written when the partition is not proved.
  if (!memory.partition_proved &&
      !(std::isinf(memory.deviation->weight_ratio) && std::isinf(memory.deviation->readout))) {
    return Invalid("predicate.memories.deviation.bound.readout", "none unless partitionProved");
  }
  return CheckBounds(*memory.deviation);
}

absl::Status CheckMemories(const Statement& statement) {
  for (size_t i = 0; i < statement.memories.size(); ++i) {
    const MemoryReport& memory = statement.memories[i];
    LETHE_RETURN_IF_ERROR(CheckMemory(statement, memory));
    if (i == 0) continue;
    const MemoryReport& before = statement.memories[i - 1];
    if (std::tie(before.layer, before.group, before.head) >=
        std::tie(memory.layer, memory.group, memory.head)) {
      return Invalid("predicate.memories", "layer, group, head ascending without repetition");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLayers(const Statement& statement) {
  for (size_t i = 0; i < statement.layers.size(); ++i) {
    LETHE_RETURN_IF_ERROR(CheckText("predicate.layers.kind", statement.layers[i].kind));
    if (i > 0 && statement.layers[i - 1].layer >= statement.layers[i].layer) {
      return Invalid("predicate.layers", "layer ascending without repetition");
    }
  }
  return absl::OkStatus();
}

// A selection follows the record that certifies the state it was made in.
absl::Status CheckSelectFields(const Statement& statement) {
  if (statement.seq < 2) return Invalid("predicate.seq", "2 or more in a select record");
  if (statement.forgot.count == 0) return Invalid("predicate.evicted", "at least one input");
  if (statement.derived_kept.count > 0) {
    return Invalid("predicate", "no derived tokens in a select record");
  }
  return absl::OkStatus();
}

// Evaluated elsewhere before, or there is nothing to say.
absl::Status CheckMigrateFields(const Statement& statement) {
  if ((statement.kind == RecordKind::kMigrate) != statement.migrated_from.has_value()) {
    return Invalid("predicate.from", "in migrate records, and there alone");
  }
  if (!statement.migrated_from.has_value()) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(CheckText("predicate.from.device", statement.migrated_from->device_kind));
  if (statement.proves_optimality) {
    return Invalid("predicate.proofs", "P2 in certify and disclose records alone");
  }
  const bool same = statement.migrated_from->numerics_id == statement.engine.numerics_id &&
                    statement.migrated_from->device_kind == statement.engine.device_kind;
  return same ? Invalid("predicate.from", "another numerics id or device than engine's")
              : absl::OkStatus();
}

// A credential's name (server/identity): never a person's, so that it may stand in the log for ever.
absl::Status CheckDiscloseFields(const Statement& statement) {
  if (statement.kind != RecordKind::kDisclose) {
    return statement.auditor.empty() ? absl::OkStatus()
                                     : Invalid("predicate.auditor", "none but in disclose records");
  }
  const std::string& name = statement.auditor;
  const auto is_letter_or_digit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  };
  const bool ok = !name.empty() && name.size() <= kAuditorBytesMax &&
                  is_letter_or_digit(name.front()) && is_letter_or_digit(name.back()) &&
                  std::all_of(name.begin(), name.end(),
                              [&](char c) { return c == '-' || is_letter_or_digit(c); });
  return ok ? absl::OkStatus()
            : Invalid("predicate.auditor", "1 to 63 of a-z, 0-9 and '-', no '-' at an end");
}

absl::Status CheckForgetFields(const Statement& statement) {
  if (!RemovesInputs(statement.kind)) {
    const bool empty = statement.forgot.count == 0 && statement.derived_kept.count == 0 &&
                       statement.before_digest == Sha256Digest{} && statement.stores.empty();
    return empty ? absl::OkStatus()
                 : Invalid("predicate", "no Forget fields in a record that removes nothing");
  }
  LETHE_RETURN_IF_ERROR(CheckSet("predicate.forgot", statement.forgot));
  if (statement.kind == RecordKind::kSelect) {
    LETHE_RETURN_IF_ERROR(CheckSelectFields(statement));
  }
  LETHE_RETURN_IF_ERROR(CheckSet("predicate.derived.kept", statement.derived_kept));
  if (statement.proves_optimality) {
    return Invalid("predicate.proofs", "P2 in certify and disclose records alone");
  }
  if (statement.derived_kept.count > 0 &&
      statement.derived_policy != DerivedPolicy::kKeepAndReport) {
    return Invalid("predicate.derived.kept", "no tokens unless the policy is KEEP_AND_REPORT");
  }
  for (const StoreReport& store : statement.stores) {
    LETHE_RETURN_IF_ERROR(CheckText("predicate.stores.store", store.store));
    LETHE_RETURN_IF_ERROR(CheckText("predicate.stores.result", store.result));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckText(absl::string_view field, absl::string_view text) {
  if (text.empty() || text.size() > kTextBytesMax || !IsPrintableAscii(text)) {
    return Invalid(field, absl::StrCat("1 to ", kTextBytesMax, " printable ASCII characters"));
  }
  return absl::OkStatus();
}

// RFC 3339 in UTC with whole seconds: "2026-09-20T12:34:56Z". The calendar is not checked: nothing
// rests on it.
absl::Status CheckTime(absl::string_view field, absl::string_view text) {
  constexpr absl::string_view kPattern = "dddd-dd-ddTdd:dd:ddZ";
  bool ok = text.size() == kPattern.size();
  for (size_t i = 0; ok && i < text.size(); ++i) {
    ok = kPattern[i] == 'd' ? text[i] >= '0' && text[i] <= '9' : text[i] == kPattern[i];
  }
  return ok ? absl::OkStatus() : Invalid(field, "a time as 2026-09-20T12:34:56Z");
}

absl::Status CheckSet(absl::string_view field, const CommittedSet& set) {
  if ((set.count == 0) != (set.root == MerkleEmptyRoot())) {
    return Invalid(field, "the empty tree's root exactly when count is 0");
  }
  return absl::OkStatus();
}

absl::Status CheckStatementFields(const Statement& statement) {
  LETHE_RETURN_IF_ERROR(CheckText("predicate.log", statement.log_origin));
  if (!ValidateKeyName(statement.log_origin).ok()) {
    return Invalid("predicate.log", "a log origin without spaces and '+'");
  }
  if (statement.nonce.size() < kNonceBytesMin || statement.nonce.size() > kNonceBytesMax) {
    return Invalid("predicate.nonce",
                   absl::StrCat(kNonceBytesMin, " to ", kNonceBytesMax, " bytes"));
  }
  LETHE_RETURN_IF_ERROR(CheckText("predicate.requestId", statement.request_id));
  LETHE_RETURN_IF_ERROR(CheckTime("predicate.issuedAt", statement.issued_at));
  LETHE_RETURN_IF_ERROR(CheckText("predicate.engine.build", statement.engine.build));
  LETHE_RETURN_IF_ERROR(CheckText("predicate.engine.algorithm", statement.engine.algorithm));
  LETHE_RETURN_IF_ERROR(CheckText("predicate.engine.device", statement.engine.device_kind));
  LETHE_RETURN_IF_ERROR(CheckSet("predicate.retained", statement.retained));
  if (!statement.proves_state) return Invalid("predicate.proofs", "P1 in every record");
  LETHE_RETURN_IF_ERROR(CheckLayers(statement));
  LETHE_RETURN_IF_ERROR(CheckMemories(statement));
  LETHE_RETURN_IF_ERROR(CheckMigrateFields(statement));
  LETHE_RETURN_IF_ERROR(CheckDiscloseFields(statement));
  return CheckForgetFields(statement);
}

absl::Status CheckSequenceFields(const Statement& statement) {
  if (statement.seq == 0) return Invalid("predicate.seq", "1 or more");
  if ((statement.seq == 1) != (statement.prev == Sha256Digest{})) {
    return Invalid("predicate.prev", "zeros exactly at seq 1");
  }
  return absl::OkStatus();
}

absl::Status CheckScopeFields(const Statement& statement) {
  // Derived tokens and selections of earlier records are named too; a record of its own must name them.
  const std::vector<std::string>& scopes = statement.residual_scopes;
  const auto names = [&scopes](const char* scope) {
    return std::find(scopes.begin(), scopes.end(), scope) != scopes.end();
  };
  const bool wiped = !names(kScopePhysicalErasure);
  const bool says_so =
      std::any_of(statement.stores.begin(), statement.stores.end(),
                  [](const StoreReport& report) { return report.store == kStoreProcessMemory; });
  if (RemovesInputs(statement.kind) && wiped != says_so) {
    return absl::InvalidArgumentError(absl::StrCat("residual: want ", kScopePhysicalErasure,
                                                   " exactly where stores lack ",
                                                   kStoreProcessMemory));
  }
  return CheckResidualScopes(
      scopes, {names(kScopeDerivedKept) || statement.derived_kept.count > 0,
               names(kScopeEvicted) || statement.kind == RecordKind::kSelect, wiped});
}

}  // namespace lethe::audit
