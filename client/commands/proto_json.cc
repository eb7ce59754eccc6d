#include "client/commands/proto_json.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/time_util.h"

namespace lethe::client {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

// Files that travel as bytes fields but are ASCII text by their formats.
bool IsTextFile(const std::string& name) {
  return name == "leaf" || name == "envelope" || name == "log_proof" || name == "opening" ||
         name == "bundle";
}

Json BytesToJson(const FieldDescriptor* field, const std::string& value) {
  return IsTextFile(field->name()) ? value : absl::BytesToHexString(value);
}

Json ScalarToJson(const Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->GetFloat(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(field->enum_type(), reflection->GetEnumValue(message, field));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string value = reflection->GetString(message, field);
      return field->type() == FieldDescriptor::TYPE_BYTES ? BytesToJson(field, value) : Json(value);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(reflection->GetMessage(message, field));
  }
  return nullptr;
}

// The protos repeat messages, vocabulary ids, doubles and hashes only.
Json RepeatedToJson(const Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  Json list = Json::array();
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        list.push_back(MessageToJson(reflection->GetRepeatedMessage(message, field, i)));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        list.push_back(reflection->GetRepeatedInt32(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        list.push_back(reflection->GetRepeatedUInt64(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        list.push_back(reflection->GetRepeatedDouble(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        list.push_back(BytesToJson(field, reflection->GetRepeatedString(message, field, i)));
        break;
      default:
        break;
    }
  }
  return list;
}

}  // namespace

std::string EnumName(const google::protobuf::EnumDescriptor* descriptor, int value) {
  const google::protobuf::EnumValueDescriptor* entry = descriptor->FindValueByNumber(value);
  if (entry == nullptr) {
    return absl::StrCat(value);
  }
  // Value 0 is PREFIX_UNSPECIFIED in every enum, which gives the prefix.
  const std::string& zero = descriptor->FindValueByNumber(0)->name();
  const size_t prefix = zero.size() - std::string("UNSPECIFIED").size();
  return absl::AsciiStrToLower(entry->name().substr(prefix));
}

nlohmann::ordered_json MessageToJson(const google::protobuf::Message& message) {
  if (const auto* time = dynamic_cast<const google::protobuf::Timestamp*>(&message)) {
    return google::protobuf::util::TimeUtil::ToString(*time);
  }
  Json object = Json::object();
  const google::protobuf::Descriptor* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->is_repeated()) {
      object[field->name()] = RepeatedToJson(message, field);
    } else if (!field->has_presence() || message.GetReflection()->HasField(message, field)) {
      object[field->name()] = ScalarToJson(message, field);
    }
  }
  return object;
}

}  // namespace lethe::client
