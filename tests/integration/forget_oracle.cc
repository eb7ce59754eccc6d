// forget_oracle [MODEL_DIRECTORY]: the other process of the exact-forgetting property test (fresh_process.h).

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>

#include "tests/integration/forget_cases.h"
#include "tests/integration/property_stacks.h"

namespace {

using lethe::Model;
using lethe::Session;

// A fresh session that is given the whole history in one call.
absl::StatusOr<lethe::testing::Observation> Fresh(const std::shared_ptr<const Model>& model,
                                                  const std::vector<int32_t>& vocab_ids) {
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(model, lethe::SessionOptions());
  if (!session.ok()) return session.status();
  if (!vocab_ids.empty()) {
    const auto ids = (*session)->Append(vocab_ids, "", lethe::InputKind::kPrompt);
    if (!ids.ok()) return ids.status();
  }
  return lethe::testing::Observe(**session);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::shared_ptr<const Model>> models;
  if (argc > 1 && argv[1][0] != '\0') {
    auto model = Model::Load(argv[1]);
    if (!model.ok()) return 1;
    models.push_back(*model);
  } else {
    models = lethe::testing::PropertyStacks();
  }
  size_t stack = 0;
  size_t count = 0;
  while (std::cin >> stack >> count) {
    std::vector<int32_t> vocab_ids(count);
    for (int32_t& id : vocab_ids) std::cin >> id;
    auto observation = Fresh(models[stack % models.size()], vocab_ids);
    if (!observation.ok()) return 1;
    std::replace(observation->digest_parts.begin(), observation->digest_parts.end(), '\n', ';');
    std::cout << observation->digest_parts << "\n"
              << observation->logits << "\n"
              << observation->text << std::endl;
  }
  return 0;
}
