#include "client/message_check.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/stubs/common.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

// No request has a repeated string or message that holds one.
absl::Status CheckUnder(const std::string& prefix, const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated()) continue;
    const std::string path = absl::StrCat(prefix, field->name());
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      if (!IsUtf8(reflection.GetString(message, field))) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": want valid UTF-8"));
      }
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
      LETHE_RETURN_IF_ERROR(
          CheckUnder(absl::StrCat(path, "."), reflection.GetMessage(message, field)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  return google::protobuf::internal::IsStructurallyValidUTF8(text.data(),
                                                             static_cast<int>(text.size()));
}

absl::Status CheckText(const Message& message) { return CheckUnder("", message); }

}  // namespace lethe::client
