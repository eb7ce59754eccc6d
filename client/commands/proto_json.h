// MessageToJson: a protobuf message as JSON, in the shape that `lethe --json` prints.
//
// Field names as in the .proto files. Every field appears, except unset optional ones and the unset
// alternatives of a oneof. Integers are JSON numbers (64-bit ones exact, so read them with a parser that
// keeps 64 bits); enums are their short names in lower case ("keep_and_report"); times are RFC 3339;
// bytes are lower-case hex, except leaf, envelope, log_proof, opening and bundle, which are text already.
//
// Equation:  none.
// Shapes:    none.
// Units:     as in the .proto files.
// Requires:  none.
// Rejects:   nothing.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_PROTO_JSON_H_
#define LETHE_CLIENT_COMMANDS_PROTO_JSON_H_

#include <string>

#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace lethe::client {

nlohmann::ordered_json MessageToJson(const google::protobuf::Message& message);

// "keep_and_report" of DERIVED_POLICY_KEEP_AND_REPORT; the number when the value is unknown.
std::string EnumName(const google::protobuf::EnumDescriptor* descriptor, int value);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_PROTO_JSON_H_
