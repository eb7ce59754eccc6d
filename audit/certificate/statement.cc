#include "audit/certificate/statement.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/deviation_json.h"
#include "audit/certificate/json.h"
#include "audit/certificate/json_fields.h"
#include "audit/certificate/statement_rules.h"
#include "audit/crypto/encoding.h"
#include "audit/log/merkle_tree.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr char kProofState[] = "P1";
constexpr char kProofOptimality[] = "P2";

struct KindNames {
  RecordKind kind;
  const char* type;
  const char* name;
};
constexpr std::array<KindNames, 5> kKinds = {{
    {RecordKind::kForget, kForgetPredicateType, "forget"},
    {RecordKind::kCertify, kCertifyPredicateType, "certify"},
    {RecordKind::kSelect, kSelectPredicateType, "select"},
    {RecordKind::kMigrate, kMigratePredicateType, "migrate"},
    {RecordKind::kDisclose, kDisclosePredicateType, "disclose"},
}};

const KindNames& KindEntry(RecordKind kind) {
  for (const KindNames& entry : kKinds) {
    if (entry.kind == kind) return entry;
  }
  return kKinds[0];
}

constexpr std::array<std::pair<DerivedPolicy, absl::string_view>, 3> kPolicyNames = {{
    {DerivedPolicy::kKeepAndReport, "KEEP_AND_REPORT"},
    {DerivedPolicy::kForgetDerived, "FORGET_DERIVED"},
    {DerivedPolicy::kFail, "FAIL"},
}};
constexpr std::array<std::pair<LayerMethod, absl::string_view>, 5> kMethodNames = {{
    {LayerMethod::kUnchanged, "unchanged"},
    {LayerMethod::kReevaluation, "re-evaluation"},
    {LayerMethod::kReplay, "replay"},
    {LayerMethod::kDecremental, "decremental"},
    {LayerMethod::kCanonicalResolve, "canonical-resolve"},
}};

template <typename E, size_t N>
absl::string_view NameOf(const std::array<std::pair<E, absl::string_view>, N>& names, E value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "";
}

template <typename E, size_t N>
E ReadName(const std::array<std::pair<E, absl::string_view>, N>& names, absl::string_view key,
           JsonReader* reader) {
  const std::string text = reader->String(key);
  for (const auto& [value, name] : names) {
    if (name == text) return value;
  }
  reader->Fail(key, "unknown name");
  return names[0].first;
}

Json SetJson(const CommittedSet& set) {
  return Json::MakeObject({{"count", JsonU64(set.count)}, {"root", JsonDigest(set.root)}});
}

Json EngineJson(const EngineIdentity& engine) {
  return Json::MakeObject({{"algorithm", Json::String(engine.algorithm)},
                           {"binary", JsonDigest(engine.binary)},
                           {"build", Json::String(engine.build)},
                           {"config", JsonDigest(engine.config)},
                           {"device", Json::String(engine.device_kind)},
                           {"model", JsonDigest(engine.model_digest)},
                           {"numerics", JsonDigest(engine.numerics_id)}});
}

Json MemoryJson(const MemoryReport& memory) {
  Json::Object object = {{"group", JsonU64(memory.group)},
                         {"head", JsonU64(memory.head)},
                         {"layer", JsonU64(memory.layer)},
                         {"partition", Json::MakeObject({{"error", JsonU64(memory.num_error)},
                                                         {"margin", JsonU64(memory.num_margin)},
                                                         {"reserve", JsonU64(memory.num_reserve)},
                                                         {"root", JsonDigest(memory.rows_root)}})},
                         {"partitionProved", Json::Bool(memory.partition_proved)},
                         {"smallestMargin", JsonF64(memory.smallest_margin)}};
  if (memory.deviation.has_value())
    object.push_back({"deviation", DeviationJson(*memory.deviation, memory.partition_proved)});
  return Json::MakeObject(std::move(object));
}

Json StoresJson(const Statement& statement) {
  Json::Array stores;
  for (const StoreReport& store : statement.stores) {
    stores.push_back(Json::MakeObject(
        {{"result", Json::String(store.result)}, {"store", Json::String(store.store)}}));
  }
  return Json::MakeArray(std::move(stores));
}

void AppendForgetFields(const Statement& statement, Json::Object* predicate) {
  predicate->push_back({"before", JsonDigest(statement.before_digest)});
  predicate->push_back(
      {"derived",
       Json::MakeObject({{"kept", SetJson(statement.derived_kept)},
                         {"policy", Json::String(DerivedPolicyName(statement.derived_policy))}})});
  predicate->push_back({"forgot", SetJson(statement.forgot)});
  predicate->push_back({"stores", StoresJson(statement)});
}

void AppendSelectFields(const Statement& statement, Json::Object* predicate) {
  predicate->push_back({"before", JsonDigest(statement.before_digest)});
  predicate->push_back({"evicted", SetJson(statement.forgot)});
  predicate->push_back({"stores", StoresJson(statement)});
}

void AppendMigrateFields(const Statement& statement, Json::Object* predicate) {
  predicate->push_back(
      {"from", Json::MakeObject({{"device", Json::String(statement.migrated_from->device_kind)},
                                 {"numerics", JsonDigest(statement.migrated_from->numerics_id)}})});
}

Json PredicateJson(const Statement& statement) {
  Json::Array layers;
  for (const LayerReport& layer : statement.layers) {
    layers.push_back(Json::MakeObject({{"kind", Json::String(layer.kind)},
                                       {"layer", JsonU64(layer.layer)},
                                       {"method", Json::String(LayerMethodName(layer.method))}}));
  }
  Json::Array memories;
  for (const MemoryReport& memory : statement.memories) memories.push_back(MemoryJson(memory));
  Json::Array proofs = {Json::String(kProofState)};
  if (statement.proves_optimality) proofs.push_back(Json::String(kProofOptimality));
  Json::Array residual;
  for (const std::string& scope : statement.residual_scopes)
    residual.push_back(Json::String(scope));
  Json::Object predicate = {{"engine", EngineJson(statement.engine)},
                            {"issuedAt", Json::String(statement.issued_at)},
                            {"layers", Json::MakeArray(std::move(layers))},
                            {"log", Json::String(statement.log_origin)},
                            {"memories", Json::MakeArray(std::move(memories))},
                            {"nonce", Json::String(HexEncode(statement.nonce))},
                            {"prev", JsonDigest(statement.prev)},
                            {"proofs", Json::MakeArray(std::move(proofs))},
                            {"requestId", Json::String(statement.request_id)},
                            {"residual", Json::MakeArray(std::move(residual))},
                            {"retained", SetJson(statement.retained)},
                            {"seq", JsonU64(statement.seq)},
                            {"session", JsonDigest(statement.session_pseudonym)}};
  if (statement.kind == RecordKind::kForget) AppendForgetFields(statement, &predicate);
  if (statement.kind == RecordKind::kSelect) AppendSelectFields(statement, &predicate);
  if (statement.kind == RecordKind::kMigrate) AppendMigrateFields(statement, &predicate);
  if (statement.kind == RecordKind::kDisclose) {
    predicate.push_back({"auditor", Json::String(statement.auditor)});
  }
  return Json::MakeObject(std::move(predicate));
}

CommittedSet ReadSet(JsonReader reader) {
  CommittedSet set;
  set.count = reader.U64("count");
  set.root = reader.Digest("root");
  reader.Finish();
  return set;
}

EngineIdentity ReadEngine(JsonReader reader) {
  EngineIdentity engine;
  engine.algorithm = reader.String("algorithm");
  engine.binary = reader.Digest("binary");
  engine.build = reader.String("build");
  engine.config = reader.Digest("config");
  engine.device_kind = reader.String("device");
  engine.model_digest = reader.Digest("model");
  engine.numerics_id = reader.Digest("numerics");
  reader.Finish();
  return engine;
}

MemoryReport ReadMemory(JsonReader reader) {
  MemoryReport memory;
  memory.partition_proved = reader.Bool("partitionProved");
  if (reader.Has("deviation")) {
    memory.deviation = ReadDeviation(reader.Object("deviation"), memory.partition_proved);
  }
  memory.group = reader.U64("group");
  memory.head = reader.U64("head");
  memory.layer = reader.U64("layer");
  JsonReader partition = reader.Object("partition");
  memory.num_error = partition.U64("error");
  memory.num_margin = partition.U64("margin");
  memory.num_reserve = partition.U64("reserve");
  memory.rows_root = partition.Digest("root");
  partition.Finish();
  memory.smallest_margin = reader.F64("smallestMargin");
  reader.Finish();
  return memory;
}

void ReadStores(JsonReader* predicate, Statement* statement) {
  for (JsonReader& store : predicate->Objects("stores")) {
    StoreReport report;
    report.result = store.String("result");
    report.store = store.String("store");
    store.Finish();
    statement->stores.push_back(std::move(report));
  }
}

void ReadForgetFields(JsonReader* predicate, Statement* statement) {
  statement->before_digest = predicate->Digest("before");
  JsonReader derived = predicate->Object("derived");
  statement->derived_kept = ReadSet(derived.Object("kept"));
  statement->derived_policy = ReadName(kPolicyNames, "policy", &derived);
  derived.Finish();
  statement->forgot = ReadSet(predicate->Object("forgot"));
  ReadStores(predicate, statement);
}

void ReadSelectFields(JsonReader* predicate, Statement* statement) {
  statement->before_digest = predicate->Digest("before");
  statement->forgot = ReadSet(predicate->Object("evicted"));
  statement->derived_kept.root = MerkleEmptyRoot();
  ReadStores(predicate, statement);
}

void ReadMigrateFields(JsonReader* predicate, Statement* statement) {
  JsonReader from = predicate->Object("from");
  Arithmetic& arithmetic = statement->migrated_from.emplace();
  arithmetic.device_kind = from.String("device");
  arithmetic.numerics_id = from.Digest("numerics");
  from.Finish();
}

void ReadProofs(JsonReader* predicate, Statement* statement) {
  const std::vector<std::string> proofs = predicate->Strings("proofs");
  statement->proves_state = !proofs.empty() && proofs[0] == kProofState;
  statement->proves_optimality = proofs.size() == 2 && proofs[1] == kProofOptimality;
  const size_t num_known = 1 + (statement->proves_optimality ? 1 : 0);
  if (!statement->proves_state || proofs.size() != num_known) {
    predicate->Fail("proofs", "want P1, or P1 and P2");
  }
}

void ReadPredicate(JsonReader predicate, Statement* statement) {
  statement->engine = ReadEngine(predicate.Object("engine"));
  statement->issued_at = predicate.String("issuedAt");
  for (JsonReader& layer : predicate.Objects("layers")) {
    LayerReport report;
    report.kind = layer.String("kind");
    report.layer = layer.U64("layer");
    report.method = ReadName(kMethodNames, "method", &layer);
    layer.Finish();
    statement->layers.push_back(std::move(report));
  }
  statement->log_origin = predicate.String("log");
  for (JsonReader& memory : predicate.Objects("memories")) {
    statement->memories.push_back(ReadMemory(memory));
  }
  statement->nonce = predicate.Bytes("nonce");
  statement->prev = predicate.Digest("prev");
  ReadProofs(&predicate, statement);
  statement->request_id = predicate.String("requestId");
  statement->residual_scopes = predicate.Strings("residual");
  statement->retained = ReadSet(predicate.Object("retained"));
  statement->seq = predicate.U64("seq");
  statement->session_pseudonym = predicate.Digest("session");
  if (statement->kind == RecordKind::kForget) ReadForgetFields(&predicate, statement);
  if (statement->kind == RecordKind::kSelect) ReadSelectFields(&predicate, statement);
  if (statement->kind == RecordKind::kMigrate) ReadMigrateFields(&predicate, statement);
  if (statement->kind == RecordKind::kDisclose) statement->auditor = predicate.String("auditor");
  predicate.Finish();
}

absl::StatusOr<RecordKind> KindOf(absl::string_view predicate_type) {
  for (const auto& [kind, type, name] : kKinds) {
    if (predicate_type == type) return kind;
  }
  return absl::InvalidArgumentError("predicateType: unknown");
}

absl::StatusOr<Statement> ReadStatement(const Json& json) {
  absl::Status status;
  JsonReader reader(json, "", &status);
  Statement statement;
  reader.Constant("_type", kStatementType);
  const absl::StatusOr<RecordKind> kind = KindOf(reader.String("predicateType"));
  if (!kind.ok()) reader.Fail("predicateType", "unknown");
  LETHE_RETURN_IF_ERROR(status);
  statement.kind = *kind;
  std::vector<JsonReader> subjects = reader.Objects("subject");
  if (subjects.size() != 1) reader.Fail("subject", "want exactly one");
  LETHE_RETURN_IF_ERROR(status);
  JsonReader digest = subjects[0].Object("digest");
  statement.subject_digest = digest.Digest("sha256");
  digest.Finish();
  subjects[0].Constant("name", kSubjectName);
  subjects[0].Finish();
  ReadPredicate(reader.Object("predicate"), &statement);
  reader.Finish();
  LETHE_RETURN_IF_ERROR(status);
  return statement;
}

std::string StatementBytes(const Statement& statement) {
  const Json subject = Json::MakeObject(
      {{"digest", Json::MakeObject({{"sha256", JsonDigest(statement.subject_digest)}})},
       {"name", Json::String(kSubjectName)}});
  return WriteJson(
      Json::MakeObject({{"_type", Json::String(kStatementType)},
                        {"predicate", PredicateJson(statement)},
                        {"predicateType", Json::String(KindEntry(statement.kind).type)},
                        {"subject", Json::MakeArray({subject})}}));
}

}  // namespace

absl::StatusOr<std::string> WriteStatement(const Statement& statement) {
  LETHE_RETURN_IF_ERROR(CheckStatementFields(statement));
  LETHE_RETURN_IF_ERROR(CheckSequenceFields(statement));
  LETHE_RETURN_IF_ERROR(CheckScopeFields(statement));
  std::string bytes = StatementBytes(statement);
  if (bytes.size() > kStatementBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("statement: over ", kStatementBytesMax, " bytes"));
  }
  return bytes;
}

absl::StatusOr<RecordKind> PeekRecordKind(absl::string_view bytes) {
  if (bytes.size() > kStatementBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("statement: over ", kStatementBytesMax, " bytes"));
  }
  LETHE_ASSIGN_OR_RETURN(const Json json, ParseJson(bytes, JsonSyntax::kCanonical));
  absl::Status status;
  JsonReader reader(json, "", &status);
  const std::string predicate_type = reader.String("predicateType");
  LETHE_RETURN_IF_ERROR(status);
  return KindOf(predicate_type);
}

absl::StatusOr<Statement> ParseStatement(absl::string_view bytes) {
  LETHE_RETURN_IF_ERROR(PeekRecordKind(bytes).status());
  LETHE_ASSIGN_OR_RETURN(const Json json, ParseJson(bytes, JsonSyntax::kCanonical));
  LETHE_ASSIGN_OR_RETURN(Statement statement, ReadStatement(json));
  LETHE_RETURN_IF_ERROR(CheckStatementFields(statement));
  // A second text for one value would be a second statement with the same meaning.
  if (StatementBytes(statement) != bytes) {
    return absl::InvalidArgumentError("statement: a value is not in its canonical text");
  }
  return statement;
}

absl::string_view RecordKindName(RecordKind kind) { return KindEntry(kind).name; }
absl::string_view DerivedPolicyName(DerivedPolicy policy) { return NameOf(kPolicyNames, policy); }
absl::string_view LayerMethodName(LayerMethod method) { return NameOf(kMethodNames, method); }

}  // namespace lethe::audit
