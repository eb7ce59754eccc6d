// CreateAnswer: what is kept of a Create or Import for its repeats.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_REGISTRY_CREATE_ANSWER_H_
#define LETHE_SERVER_SESSION_REGISTRY_CREATE_ANSWER_H_

#include <string>
#include <utility>

#include "kernels/base/byte_io.h"
#include "server/session_registry/request_table.h"

namespace lethe {

class CreateAnswer : public StoredAnswer {
 public:
  explicit CreateAnswer(std::string id) : session_id(std::move(id)) {}
  std::string Encode(bool /*keep_openings*/) const override {
    ByteWriter writer;
    writer.U64(static_cast<uint64_t>(AnswerKind::kCreate));
    writer.String(session_id);
    return writer.Take();
  }
  const std::string session_id;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_CREATE_ANSWER_H_
