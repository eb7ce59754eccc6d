#include "tests/erasure/features.h"

#include <variant>

#include "kernels/gram/gram.h"
#include "server/model/cpu_model_state.h"
#include "server/model/memory_layer.h"
#include "server/session/session.h"
#include "tests/integration/vectors_testing.h"

namespace lethe::testing {
namespace {

constexpr double kSigma = 1.5;  // of Requests

void AddRow(const char* name, const SvNumbers& numbers, int64_t row, int64_t columns,
            Markers* markers) {
  const auto& all = std::get<absl::Span<const float>>(numbers);
  markers->AddFloats(name,
                     all.subspan(static_cast<size_t>(row * columns), static_cast<size_t>(columns)));
}

// Of the token that was appended last.
void AddLast(Session* session, Markers* markers) {
  markers->AddFloats("logits", session->logits());
  const BankToken& last = session->state().AsCpu()->bank()->last();
  markers->AddFloats("a residual stream", last.x);
  for (const WipedFloats& projection : last.projections) {
    markers->AddFloats("projections", projection);
  }
}

}  // namespace

void AddModelFeatures(const std::shared_ptr<const Model>& model,
                      const std::vector<PlantedText>& texts, Markers* markers) {
  const std::unique_ptr<Session> session = Session::Create(model, {}).value();
  std::vector<int64_t> ranks;
  for (const PlantedText& planted : texts) {
    const std::vector<int32_t> ids = model->Tokenize(planted.text);
    if (planted.label.empty()) {
      static_cast<void>(session->Append(ids, "", InputKind::kAppended).value());
      continue;
    }
    for (const int32_t& id : ids) {
      ranks.push_back(session->num_tokens());
      static_cast<void>(
          session->Append(absl::MakeConstSpan(&id, 1), planted.label, InputKind::kAppended)
              .value());
      AddLast(session.get(), markers);
    }
  }
  const StoredInputs& stored = session->state().AsCpu()->bank()->stored();
  const SvHead head = session->SvHeads()[0];
  const int64_t num_gated = head.solution->num_keys;
  for (const int64_t rank : ranks) {
    markers->AddFloats(
        "what streaming heads stored",
        absl::MakeConstSpan(stored.row(rank), static_cast<size_t>(stored.columns())));
    const bool gated = rank < num_gated;
    const int64_t row = gated ? rank : rank - num_gated;
    AddRow("a support-vector key", gated ? head.keys : head.tail_keys, row, head.params->key_dim,
           markers);
    AddRow("a support-vector value", gated ? head.values : head.tail_values, row, head.value_dim,
           markers);
  }
}

void AddVectorFeatures(const std::vector<double>& forgotten, const std::vector<double>& retained,
                       Markers* markers) {
  std::vector<double> row(retained.size() / kKeyDim);
  for (size_t at = 0; at + kKeyDim <= forgotten.size(); at += kKeyDim) {
    GramRow(absl::MakeConstSpan(forgotten).subspan(at, kKeyDim), retained, kSigma,
            absl::MakeSpan(row));
    markers->AddDoubles("a kernel value", row);
  }
}

}  // namespace lethe::testing
