#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "audit/certificate/dsse.h"
#include "audit/certificate/keyset.h"
#include "audit/log/merkle_tree.h"
#include "audit/log/note.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "lethe/v1/audit.grpc.pb.h"
#include "server/error/error_info.h"
#include "server/rpc/grpc_call.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/services.h"
#include "server/rpc/validation.h"
#include "server/session_registry/page_token.h"

namespace lethe {
namespace {

// Roots at earlier sizes, from the stored leaves; grows with the log.
class RootCache {
 public:
  absl::StatusOr<audit::Sha256Digest> RootAt(const audit::AuditLog& log, uint64_t tree_size) {
    MutexLock lock(&mutex_);
    while (tree_.num_leaves() < tree_size) {
      LETHE_ASSIGN_OR_RETURN(const std::string leaf, log.Leaf(tree_.num_leaves()));
      tree_.Append(audit::MerkleLeafHash(leaf));
    }
    return tree_.RootAt(tree_size);
  }

 private:
  Mutex mutex_;
  audit::MerkleTree tree_ ABSL_GUARDED_BY(mutex_);
};

// Whose envelopes a listing of the whole log shows: the caller's tenant's, and the log's own (keysets, restores). Every leaf is
// shown to everybody, for without it no proof can be checked; it is a salted hash.
class VisibleEnvelopes {
 public:
  VisibleEnvelopes(const ServerCore& core, const Call& call)
      : everything_(core.authenticator == nullptr) {
    if (everything_) return;
    const std::string& tenant = call.principal().tenant;
    const auto sessions =
        core.sessions.List(tenant, "", static_cast<size_t>(core.sessions.num_sessions()));
    for (const auto& entry : sessions) {
      for (const uint64_t leaf : entry->RecordLeaves()) leaf_indexes_.insert(leaf);
    }
    summaries_ = core.subjects.SummaryLeaves(tenant);
  }

  bool Shows(uint64_t leaf_index, const audit::Sha256Digest& leaf_hash,
             const std::string& envelope) const {
    return everything_ || leaf_indexes_.count(leaf_index) > 0 || summaries_.count(leaf_hash) > 0 ||
           IsLogsOwn(envelope);
  }

 private:
  static bool IsLogsOwn(const std::string& envelope) {
    const absl::StatusOr<audit::DsseEnvelope> parsed = audit::ParseEnvelope(envelope);
    if (!parsed.ok()) return false;
    return audit::ParseKeyset(parsed->payload).ok();
  }

  const bool everything_;
  std::set<uint64_t> leaf_indexes_;
  std::set<audit::Sha256Digest> summaries_;
};

class AuditService final : public v1::AuditService::Service {
 public:
  explicit AuditService(ServerCore* core) : core_(core), log_(*core->trail.log) {}

  grpc::Status GetLog(grpc::ServerContext* context, const v1::GetLogRequest* /*request*/,
                      v1::GetLogResponse* response) override {
    return Serve("GetLog", context, core_, [&](const Call& /*call*/) -> absl::Status {
      const audit::VerifierKey key = log_.verifier_key();
      response->set_origin(key.name);
      response->set_log_vkey(audit::WriteVerifierKey(key));
      response->set_record_spki(core_->record_spki);
      LETHE_ASSIGN_OR_RETURN(const std::string checkpoint, log_.SignedCheckpoint());
      LETHE_ASSIGN_OR_RETURN(const audit::Checkpoint head, audit::OpenCheckpoint(checkpoint, key));
      response->set_checkpoint(checkpoint);
      response->set_tree_size(head.tree_size);
      return absl::OkStatus();
    });
  }

  grpc::Status ListRecords(grpc::ServerContext* context, const v1::ListRecordsRequest* request,
                           v1::ListRecordsResponse* response) override {
    return Serve("ListRecords", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const int64_t page_size, PageSize(request->page_size(), 100, 1000));
      const std::string scope =
          absl::StrCat("ListRecords ", call.principal().tenant, " ", request->session_id());
      uint64_t begin = 0;
      if (!request->page_token().empty()) {
        LETHE_ASSIGN_OR_RETURN(const PageToken token, ParsePageToken(scope, request->page_token()));
        begin = token.position;
      }
      const auto size = static_cast<uint64_t>(page_size);
      uint64_t total = log_.num_leaves();
      if (request->session_id().empty()) {
        const VisibleEnvelopes visible(*core_, call);
        for (uint64_t i = begin; i < total && i - begin < size; ++i) {
          LETHE_RETURN_IF_ERROR(AddRecord(i, response));
          v1::AuditRecord* record = response->mutable_records(response->records_size() - 1);
          if (!visible.Shows(i, audit::MerkleLeafHash(record->leaf()), record->envelope())) {
            record->clear_envelope();
          }
        }
      } else {
        LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, call, request->session_id()));
        const std::vector<RecordRef> refs = Records(entry.get());
        total = refs.size();
        for (uint64_t i = begin; i < total && i - begin < size; ++i) {
          LETHE_RETURN_IF_ERROR(AddRecord(refs[i].leaf_index, response));
          v1::AuditRecord* record = response->mutable_records(response->records_size() - 1);
          record->set_seq(refs[i].seq);
          record->set_kind(std::string(audit::RecordKindName(refs[i].kind)));
        }
      }
      const uint64_t end = begin + size;
      if (end < total) response->set_next_page_token(WritePageToken(scope, {0, 0, end}));
      return absl::OkStatus();
    });
  }

  grpc::Status GetInclusionProof(grpc::ServerContext* context,
                                 const v1::GetInclusionProofRequest* request,
                                 v1::GetInclusionProofResponse* response) override {
    return Serve("GetInclusionProof", context, core_, [&](const Call& /*call*/) -> absl::Status {
      const uint64_t num_leaves = log_.num_leaves();
      if (request->leaf_index() >= num_leaves) {
        return WithErrorInfo(
            absl::OutOfRangeError(
                absl::StrCat("leaf_index: want below the tree size, ", num_leaves)),
            {"LEAF_NOT_FOUND", {{"field", "leaf_index"}, {"tree_size", absl::StrCat(num_leaves)}}});
      }
      LETHE_ASSIGN_OR_RETURN(const std::string proof, log_.ProofFile(request->leaf_index()));
      response->set_log_proof(proof);
      return absl::OkStatus();
    });
  }

  grpc::Status GetConsistencyProof(grpc::ServerContext* context,
                                   const v1::GetConsistencyProofRequest* request,
                                   v1::GetConsistencyProofResponse* response) override {
    return Serve("GetConsistencyProof", context, core_, [&](const Call& /*call*/) -> absl::Status {
      const uint64_t num_leaves = log_.num_leaves();
      const uint64_t second = request->second_size() == 0 ? num_leaves : request->second_size();
      const uint64_t first = request->first_size();
      if (second > num_leaves) {
        return InvalidFieldError("second_size", absl::StrCat("0 to ", num_leaves));
      }
      if (first == 0 || first > second) {
        return InvalidFieldError("first_size", absl::StrCat("1 to second_size, ", second));
      }
      LETHE_ASSIGN_OR_RETURN(const std::vector<audit::Sha256Digest> hashes,
                             log_.ConsistencyProof(first, second));
      LETHE_ASSIGN_OR_RETURN(const audit::Sha256Digest first_root, roots_.RootAt(log_, first));
      LETHE_ASSIGN_OR_RETURN(const audit::Sha256Digest second_root, roots_.RootAt(log_, second));
      for (const audit::Sha256Digest& hash : hashes) response->add_hashes(DigestBytes(hash));
      response->set_second_size(second);
      response->set_first_root(DigestBytes(first_root));
      response->set_second_root(DigestBytes(second_root));
      return absl::OkStatus();
    });
  }

 private:
  static std::vector<RecordRef> Records(SessionEntry* entry) {
    FairMutexLock lock(&entry->mutex);
    return entry->record_refs;
  }

  absl::Status AddRecord(uint64_t leaf_index, v1::ListRecordsResponse* response) const {
    LETHE_ASSIGN_OR_RETURN(const std::string leaf, log_.Leaf(leaf_index));
    const absl::StatusOr<std::string> body = log_.Body(audit::MerkleLeafHash(leaf));
    if (!body.ok() && !absl::IsNotFound(body.status())) return body.status();
    v1::AuditRecord* record = response->add_records();
    record->set_leaf_index(leaf_index);
    record->set_leaf(leaf);
    if (body.ok()) record->set_envelope(*body);
    return absl::OkStatus();
  }

  ServerCore* const core_;
  const audit::AuditLog& log_;
  RootCache roots_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAuditService(ServerCore* core) {
  return std::make_unique<AuditService>(core);
}

}  // namespace lethe
