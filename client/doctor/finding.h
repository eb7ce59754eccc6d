// Finding: what one check of `lethe doctor` found out.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   nothing.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_DOCTOR_FINDING_H_
#define LETHE_CLIENT_DOCTOR_FINDING_H_

#include <string>
#include <vector>

namespace lethe::client {

enum class Verdict {
  kGood,
  kNote,     // nothing to mend, but something to know before erasure is promised
  kWarning,  // the server runs; a promise is weaker than it could be
  kError,    // the server does not run, or a promise does not hold
};

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string check;   // what was looked at, two or three words; the same for every verdict
  std::string found;   // one sentence
  std::string remedy;  // what to do; "" when good
};

using Findings = std::vector<Finding>;

}  // namespace lethe::client

#endif  // LETHE_CLIENT_DOCTOR_FINDING_H_
