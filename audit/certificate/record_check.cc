#include "audit/certificate/record_check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/dsse.h"
#include "audit/certificate/keyset.h"
#include "audit/certificate/keyset_record.h"
#include "audit/certificate/statement.h"
#include "audit/certificate/subject_summary.h"
#include "audit/log/leaf.h"
#include "audit/log/merkle_tree.h"

namespace lethe::audit {
namespace {

struct SessionEnd {
  uint64_t seq = 0;
  Sha256Digest leaf_hash{};
};

class RecordChecker {
 public:
  RecordChecker(const std::string& origin, const TrustStore& trust, Findings* findings)
      : origin_(origin), findings_(findings) {
    summary_.keys = trust;
  }

  void CheckLeaf(uint64_t leaf_index, const std::string& entry,
                 const absl::StatusOr<std::string>& body) {
    const std::string place = absl::StrCat("leaf ", leaf_index);
    const absl::StatusOr<LogLeaf> leaf = ParseLogLeaf(entry);
    if (!leaf.ok()) return;  // a finding of the log's own check
    if (!IsValidAt(summary_.keys, leaf->key, origin_, leaf_index)) {
      findings_->Add(place, "is signed by a key that is not valid there");
    }
    CheckPossession(place, *leaf, body.ok());
    if (closed_) findings_->Add(place, "stands behind the record that closes the log");
    if (absl::IsNotFound(body.status())) return;
    if (!body.ok()) {
      findings_->Add(place, absl::StrCat("its body: ", body.status().message()));
      return;
    }
    ++summary_.num_bodies;
    CheckBody(place, leaf_index, entry, *leaf, *body);
  }

  RecordSummary Finish() {
    if (expected_.has_value()) {
      findings_->Add("keys", "the last leaf ends a record key, and the next one does not begin");
    }
    summary_.num_sessions = sessions_.size();
    return std::move(summary_);
  }

 private:
  // Behind a record that ends a key, the next one must be signed by the key that it names: who has it says so.
  void CheckPossession(const std::string& place, const LogLeaf& leaf, bool has_body) {
    if (!expected_.has_value()) return;
    if (!(leaf.key == expected_->keys.back().key)) {
      findings_->Add(place, "is not signed by the key that the record before names");
    } else if (!has_body) {
      findings_->Add(place, "lacks its body, by which a new record key says that it is there");
    }
  }

  void CheckBody(const std::string& place, uint64_t leaf_index, const std::string& entry,
                 const LogLeaf& leaf, const std::string& body) {
    const absl::StatusOr<DsseEnvelope> envelope = ParseEnvelope(body);
    if (!envelope.ok()) {
      findings_->Add(place, absl::StrCat("its body: ", envelope.status().message()));
      return;
    }
    const std::string pae = PreAuthEncoding(envelope->payload_type, envelope->payload);
    if (WriteLogLeaf({Sha256Of(pae), envelope->signature, leaf.key}) != entry) {
      findings_->Add(place, "its body is not the envelope of this leaf");
      return;
    }
    if (!leaf.key.Verify(pae, AsStringView(envelope->signature))) {
      findings_->Add(place, "its signature is not that of its key over its body");
      return;
    }
    if (ClaimsToBeKeyset(envelope->payload)) {
      CheckKeyset(place, leaf_index, leaf, envelope->payload);
    } else {
      if (expected_.has_value())
        findings_->Add(place, "is not the keyset record that was due here");
      expected_.reset();
      if (IsSubjectSummary(envelope->payload)) {
        CheckSummary(place, envelope->payload);
      } else {
        CheckStatement(place, MerkleLeafHash(entry), envelope->payload);
      }
    }
  }

  // The end of a ForgetSubject is a record of no session: the log's own order is all that it follows.
  void CheckSummary(const std::string& place, const std::string& payload) {
    const absl::StatusOr<SubjectSummary> summary = ParseSubjectSummary(payload);
    if (!summary.ok()) {
      findings_->Add(place, absl::StrCat("its statement: ", summary.status().message()));
      return;
    }
    ++summary_.num_subject_records;
    if (summary->log_origin != origin_) findings_->Add(place, "its statement names another log");
  }

  void CheckStatement(const std::string& place, const Sha256Digest& leaf_hash,
                      const std::string& payload) {
    absl::StatusOr<Statement> statement = ParseStatement(payload);
    absl::Status status = statement.status();
    if (status.ok()) status = CheckSequenceFields(*statement);
    if (status.ok()) status = CheckScopeFields(*statement);
    if (!status.ok()) {
      findings_->Add(place, absl::StrCat("its statement: ", status.message()));
      return;
    }
    if (statement->log_origin != origin_) findings_->Add(place, "its statement names another log");
    SessionEnd& end = sessions_[statement->session_pseudonym];
    // Where bodies were erased, or a session began in a log before this one, links are missing; none may be wrong.
    if (end.seq > 0 && statement->seq <= end.seq) {
      findings_->Add(place, absl::StrCat("repeats or goes back in its session: seq ",
                                         statement->seq, " behind ", end.seq));
    } else if (end.seq > 0 && statement->seq == end.seq + 1 && statement->prev != end.leaf_hash) {
      findings_->Add(place, "its prev is not the leaf of its session's record before");
    }
    end = {statement->seq, leaf_hash};
  }

  void CheckKeyset(const std::string& place, uint64_t leaf_index, const LogLeaf& leaf,
                   const std::string& payload) {
    const absl::StatusOr<KeysetStatement> statement = ParseKeyset(payload);
    if (!statement.ok()) {
      findings_->Add(place, absl::StrCat("its statement: ", statement.status().message()));
      return;
    }
    ++summary_.num_keyset_records;
    if (statement->log_origin != origin_) findings_->Add(place, "its statement names another log");
    if (statement->previous.has_value() && leaf_index > 0) {
      findings_->Add(place, "names a log before this one, but is not the first record");
    }
    const TrustedRecordKey* valid = KeyAt(statement->keys, leaf_index);
    if (valid == nullptr || !(valid->key == leaf.key)) {
      findings_->Add(place, "is not signed by the key that it says is valid there");
      return;
    }
    if (expected_.has_value()) {
      if (WriteKeyset(*expected_).value_or("") != payload) {
        findings_->Add(place, "is not the statement that the record before it made");
      }
      expected_.reset();
    } else if (statement->keys.back().first_leaf_index == leaf_index + 1) {
      expected_ = *statement;
    }
    CheckKeysAgree(place, *statement);
    if (IsValidAt(summary_.keys, leaf.key, origin_, leaf_index)) AdoptKeys(*statement);
    closed_ = statement->next.has_value();
  }

  // What is trusted may be closed by a later record, or is closed already by one that is still to come, but never moves.
  void CheckKeysAgree(const std::string& place, const KeysetStatement& statement) {
    for (const TrustedRecordKey& stated : statement.keys) {
      for (const TrustedRecordKey& trusted : summary_.keys.record_keys) {
        if (!(trusted.key == stated.key) || trusted.origin != origin_) continue;
        const bool both_end =
            trusted.last_leaf_index != UINT64_MAX && stated.last_leaf_index != UINT64_MAX;
        if (trusted.first_leaf_index != stated.first_leaf_index ||
            (both_end && trusted.last_leaf_index != stated.last_leaf_index)) {
          findings_->Add(place, "states another range of a key than is trusted");
        }
      }
    }
  }

  void AdoptKeys(const KeysetStatement& statement) {
    std::vector<TrustedRecordKey>& keys = summary_.keys.record_keys;
    for (TrustedRecordKey stated : statement.keys) {
      const auto replaced = [&](const TrustedRecordKey& entry) {
        if (!(entry.key == stated.key) || !(entry.origin.empty() || entry.origin == origin_)) {
          return false;
        }
        stated.last_leaf_index = std::min(stated.last_leaf_index, entry.last_leaf_index);
        return true;
      };
      keys.erase(std::remove_if(keys.begin(), keys.end(), replaced), keys.end());
      stated.origin = origin_;
      keys.push_back(std::move(stated));
    }
    if (!statement.next.has_value()) return;
    std::vector<VerifierKey>& logs = summary_.keys.log_keys;
    const bool known = std::any_of(logs.begin(), logs.end(), [&](const VerifierKey& vkey) {
      return vkey.name == statement.next->name;
    });
    if (known) return;
    logs.push_back(*statement.next);
    TrustedRecordKey first = statement.keys.back();
    keys.push_back({first.key, 0, UINT64_MAX, statement.next->name});
  }

  const std::string origin_;
  Findings* const findings_;
  RecordSummary summary_;
  std::map<Sha256Digest, SessionEnd> sessions_;
  std::optional<KeysetStatement> expected_;  // its second leaf is due next
  bool closed_ = false;
};

}  // namespace

RecordSummary CheckRecords(const LogImage& image, const std::string& origin,
                           const TrustStore& trust, const BodyReader& read_body,
                           Findings* findings) {
  RecordChecker checker(origin, trust, findings);
  for (size_t i = 0; i < image.entries.size(); ++i) {
    checker.CheckLeaf(i, image.entries[i], read_body(i, MerkleLeafHash(image.entries[i])));
  }
  return checker.Finish();
}

}  // namespace lethe::audit
