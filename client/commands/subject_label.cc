#include "client/commands/subject_label.h"

#include "client/commands/files.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

constexpr size_t kLabelBytesMax = 128;

}  // namespace

absl::StatusOr<std::string> ReadLabel(const std::optional<std::string>& label,
                                      const std::string& file, Context& context) {
  if (label.has_value() == !file.empty()) {
    return absl::InvalidArgumentError(
        "say the label either on the command line or with --label-file (- is standard input)");
  }
  std::string text;
  if (label.has_value()) {
    text = *label;
  } else {
    LETHE_ASSIGN_OR_RETURN(text, ReadInput(file, context.io().in));
    if (!text.empty() && text.back() == '\n') text.pop_back();
  }
  if (text.empty() || text.size() > kLabelBytesMax) {
    return absl::InvalidArgumentError("label: want 1 to 128 bytes");
  }
  return text;
}

}  // namespace lethe::client
