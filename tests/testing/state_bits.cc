// state_bits MODEL: prints what the arithmetic of this build leaves behind, for comparison with that of
// another build: the numerics id, and the digest and logits of a session on MODEL that took 1,500 tokens
// and forgot one of the first, by replay and by re-evaluation.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/crypto/encoding.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/status_macros.h"
#include "server/model/numerics_id.h"
#include "server/session/session.h"

namespace lethe::testing {
namespace {

constexpr int kTokens = 1500;

std::string Hex(const audit::Sha256Digest& digest) {
  return audit::HexEncode(absl::Span<const uint8_t>(digest));
}

absl::Status PrintForget(const std::shared_ptr<const Model>& model, ForgetWay way) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                         Session::Create(model, SessionOptions()));
  std::vector<int32_t> vocab_ids;
  uint32_t state = 1;
  for (int i = 0; i < kTokens; ++i) {
    state = state * 1664525u + 1013904223u;
    vocab_ids.push_back(static_cast<int32_t>(97u + (state >> 24) % 26u));
  }
  LETHE_RETURN_IF_ERROR(session->Append(vocab_ids, "", InputKind::kAppended).status());
  LETHE_ASSIGN_OR_RETURN(
      std::unique_ptr<StagedForget> staged,
      session->StageForget(ForgetSelector::Ids({20}), DerivedPolicy::kFail, {}, way));
  LETHE_RETURN_IF_ERROR(session->Commit(std::move(staged)).status());
  const absl::Span<const float> logits = session->logits();
  const audit::Sha256Digest bits = audit::Sha256Of(absl::string_view(
      reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float)));
  std::printf("%s: state %s, logits %s\n", way == ForgetWay::kReplay ? "replay" : "re-evaluation",
              Hex(session->Digest()).c_str(), Hex(bits).c_str());
  return absl::OkStatus();
}

absl::Status Print(const char* directory) {
  std::printf("numerics id: %s\n", Hex(NumericsId()).c_str());
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::Load(directory));
  LETHE_RETURN_IF_ERROR(PrintForget(model, ForgetWay::kReplay));
  return PrintForget(model, ForgetWay::kReevaluation);
}

}  // namespace
}  // namespace lethe::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: state_bits MODEL_DIRECTORY\n");
    return 2;
  }
  const absl::Status status = lethe::testing::Print(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
