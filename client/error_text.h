// ErrorText: what a failed call says to a person, and the same as fields for a program.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  FormatError: status is not OK.
// Rejects:   nothing; a status without ErrorInfo has an empty reason.
// Effects:   none. The text is the server's message and metadata, which by contract hold no content;
//            the request is never looked at.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_ERROR_TEXT_H_
#define LETHE_CLIENT_ERROR_TEXT_H_

#include <map>
#include <string>

#include "absl/status/status.h"

namespace lethe::client {

// The parts of a failed call.
struct CallError {
  std::string code;                             // "NOT_FOUND"
  std::string message;                          // the server's sentence
  std::string reason;                           // ErrorInfo.reason, or ""
  std::map<std::string, std::string> metadata;  // ErrorInfo.metadata, by key
  bool outcome_unknown = false;                 // the call may have taken effect
  std::string request_id;                       // of such a call, or ""
};

CallError DecodeError(const absl::Status& status);

// Several lines without a final newline: what happened, the reason, one line for each metadata entry,
// and a hint on what to do where the code implies one. `address` is that of --server; a status of another server names
// its own (kServerAddressType).
std::string FormatError(const absl::Status& status, const std::string& address);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_ERROR_TEXT_H_
