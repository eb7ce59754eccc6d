#include "client/commands/vector_text.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace lethe::client {

void AddVectorFields(const v1::VectorOptions& options, FieldTable* table) {
  table->Add("keys", FormatCount(options.key_dim(), "number"));
  table->Add("values", options.value_dim() == 0 ? std::string("none")
                                                : FormatCount(options.value_dim(), "number"));
  table->Add("sigma", FormatDouble(options.sigma()));
  table->Add("box mass 1/C", FormatDouble(options.box_mass()));
  table->Add("ridge", FormatDouble(options.ridge()));
  table->Add("selection",
             options.selection() ? "allowed (lethe vectors evict)" : "not allowed: reserve stays");
}

}  // namespace lethe::client
