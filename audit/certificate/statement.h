// Statement: what a record of the audit log says, as a plain struct and as canonical JSON bytes.
//
// Equation:  an in-toto Statement v1 with predicateType https://lethe.dev/forget/v1, …/certify/v1,
//            …/select/v1, …/migrate/v1 or …/disclose/v1. Canonical JSON: keys sorted bytewise, no white space, printable ASCII,
//            no numbers, no null; u64 = decimal string without leading zero, f64 = 16 hex digits of
//            the IEEE-754 bits (most significant first), bytes = lowercase hex.
// Shapes:    digests and commitments are 32 bytes; nonce 16 to 32 bytes.
// Units:     counts in inputs (tokens); bounds in the units of the named quantity.
// Requires:  none.
// Rejects:   WriteStatement and ParseStatement: INVALID_ARGUMENT naming the field: text that is not
//            printable ASCII, a nonce of another length, NaN, a field that the record kind does not
//            have or lacks, unknown method, policy or proof names. ParseStatement also: any bytes
//            but WriteStatement's of the same values.
// Effects:   none.
// Numerics:  doubles travel as bits.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_STATEMENT_H_
#define LETHE_AUDIT_CERTIFICATE_STATEMENT_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/sha256.h"

namespace lethe::audit {

inline constexpr char kPayloadType[] = "application/vnd.in-toto+json";
inline constexpr char kStatementType[] = "https://in-toto.io/Statement/v1";
inline constexpr char kForgetPredicateType[] = "https://lethe.dev/forget/v1";
inline constexpr char kCertifyPredicateType[] = "https://lethe.dev/certify/v1";
inline constexpr char kSelectPredicateType[] = "https://lethe.dev/select/v1";
inline constexpr char kMigratePredicateType[] = "https://lethe.dev/migrate/v1";
inline constexpr char kDisclosePredicateType[] = "https://lethe.dev/disclose/v1";
inline constexpr char kSubjectName[] = "session-state";
inline constexpr size_t kNonceBytesMin = 16;
inline constexpr size_t kNonceBytesMax = 32;
inline constexpr size_t kStatementBytesMax = size_t{1} << 20;

enum class RecordKind {
  kForget,
  kCertify,
  kSelect,   // the reserve keys of the state that the record before certifies were evicted
  kMigrate,  // the session was evaluated again, under another numerics id or on another device kind
  kDisclose,  // as kCertify; the owner lets a named auditor see the state's content
};

// True for records of a change that took inputs out of the state.
inline bool RemovesInputs(RecordKind kind) {
  return kind == RecordKind::kForget || kind == RecordKind::kSelect;
}
// "forget", "certify", "select", "migrate", "disclose".
absl::string_view RecordKindName(RecordKind kind);

// What happens to tokens derived from forgotten ones (design C4).
enum class DerivedPolicy { kKeepAndReport, kForgetDerived, kFail };

// How a layer's state was brought to that of a session which never had the inputs.
enum class LayerMethod {
  kUnchanged,
  kReevaluation,  // the layer evaluated again: the rest of the history, or, below a layer of the next
                  // two methods, the tokens whose inputs to that layer had changed
  kReplay,        // the layer alone stepped through the rest again, from what it had stored
  kDecremental,  // support-vector heads made one set change; the layer's other heads as kReplay
  kCanonicalResolve
};

// A set of token ids under the certificate's salt: how many, and the root over their sorted
// commitments.
struct CommittedSet {
  uint64_t count = 0;
  Sha256Digest root{};
};

struct EngineIdentity {
  Sha256Digest binary{};    // SHA-256 of the server binary
  std::string build;        // for example "lethe 0.1.0 gcc 12.2 x86-64-v3"
  Sha256Digest config{};    // SHA-256 of the session's model and memory options
  std::string algorithm;    // "lethe-canonical-v2": how Forget reaches the canonical state
  std::string device_kind;  // "cpu"
  Sha256Digest model_digest{};
  Sha256Digest numerics_id{};
};

// Where the same inputs give the same bits.
struct Arithmetic {
  Sha256Digest numerics_id{};
  std::string device_kind;
};

struct LayerReport {
  uint64_t layer = 0;
  std::string kind;  // the layer's kind in config.json: "window", "svdd", "palimpsa", …
  LayerMethod method = LayerMethod::kUnchanged;
};

// P2 of one support-vector memory head (memory/svdd/proof.h): how far the stored solution is from
// the exact optimum over the keys under the certified digest. Each is in [0, +infinity], +infinity
// meaning that there is no bound. The last two exist where the partition is proved; without it there
// is no bound on a readout that holds for every query.
struct DeviationBounds {
  double gap = 0;         // G, the duality gap in alpha-units
  double delta = 0;       // what making the stored solution feasible moved it, 1-norm
  double kernel_sum = 0;  // |sum alpha_i k(q,x_i) - sum alpha*_i k(q,x_i)| for every query q
  double alpha = 0;       // |alpha_i - alpha*_i| for every i
  double rho = 0;         // |rho - rho*|
  double decision = 0;    // |f(x) - f*(x)| for every x
  // |alpha_i - alpha*_i|/alpha_i over the support: times a coordinate's range of values it bounds that
  // coordinate of every readout.
  double weight_ratio = std::numeric_limits<double>::infinity();
  // |o_c - o*_c| for every query and coordinate c, over the values under the certified digest.
  double readout = std::numeric_limits<double>::infinity();
  // HMAC-SHA-256(certSalt, "evidence\0" || hash of this head's part of the state digest).
  Sha256Digest evidence{};
};

// One support-vector memory head: its Karush-Kuhn-Tucker partition.
struct MemoryReport {
  uint64_t layer = 0;
  uint64_t group = 0;
  uint64_t head = 0;
  uint64_t num_margin = 0;
  uint64_t num_error = 0;
  uint64_t num_reserve = 0;
  // RFC 6962 root over the rows (token commitment, class, a bits) in rank order.
  Sha256Digest rows_root{};
  // The least slack of any sign of the solution, in a-units; +infinity where every a is fixed. With
  // deviation: ProveOptimality's.
  double smallest_margin = 0;
  // By ProveOptimality, for the exact kernel; false in records without deviation.
  bool partition_proved = false;
  // In certify records that carry P2, for heads with at least one key.
  std::optional<DeviationBounds> deviation;
};

// The store whose erasure ends the residual scope of physical erasure as a whole (scopes.h).
inline constexpr char kStoreProcessMemory[] = "process-memory";

struct StoreReport {
  std::string store;   // "session-memory", …
  std::string result;  // "replaced", …
};

struct Statement {
  RecordKind kind = RecordKind::kForget;
  // HMAC-SHA-256(certSalt, state digest after); certSalt travels in the opening only.
  Sha256Digest subject_digest{};

  std::string log_origin;
  Sha256Digest session_pseudonym{};  // HMAC-SHA-256(K_pseudonym, session id)
  uint64_t seq = 1;                  // per session, gapless from 1
  Sha256Digest prev{};               // leaf hash of the session's previous record; zeros at seq 1
  std::string nonce;                 // the client's bytes, echoed
  std::string request_id;
  std::string issued_at;  // RFC 3339 text, informational, never used to verify
  EngineIdentity engine;
  CommittedSet retained;
  std::vector<LayerReport> layers;
  std::vector<MemoryReport> memories;
  bool proves_state = true;                  // P1
  bool proves_optimality = false;            // P2
  std::vector<StoreReport> stores;           // stores erased, with results
  std::vector<std::string> residual_scopes;  // what is not covered (scopes.h), sorted

  // Forget and select records only. HMAC-SHA-256(certSalt of the session's previous record, state digest
  // before); at seq 1 under a salt that nobody keeps.
  Sha256Digest before_digest{};
  CommittedSet forgot;  // of a select record: evicted
  // Forget records only.
  DerivedPolicy derived_policy = DerivedPolicy::kFail;
  CommittedSet derived_kept;
  // Migrate records only, and always: where the session was evaluated before; engine says where it is now.
  std::optional<Arithmetic> migrated_from;
  // Disclose records only, and always: the credential's name to whose bearer the state was disclosed.
  std::string auditor;
};

absl::StatusOr<std::string> WriteStatement(const Statement& statement);
absl::StatusOr<Statement> ParseStatement(absl::string_view bytes);

// Canonical and known predicate type, without reading further: what ParseStatement checks first.
absl::StatusOr<RecordKind> PeekRecordKind(absl::string_view bytes);

// The rules between fields, which WriteStatement keeps and a verifier checks under a name of their
// own. Sequence: seq >= 1, and prev is zero at seq 1 and only there. Scope: CheckResidualScopes; in
// a record that takes inputs out physical erasure is a residual scope exactly where the process's memory is no store.
absl::Status CheckSequenceFields(const Statement& statement);
absl::Status CheckScopeFields(const Statement& statement);

absl::string_view DerivedPolicyName(DerivedPolicy policy);
absl::string_view LayerMethodName(LayerMethod method);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_STATEMENT_H_
