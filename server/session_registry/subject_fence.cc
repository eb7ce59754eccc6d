#include "server/session_registry/subject_fence.h"

#include <algorithm>

#include "audit/crypto/secret.h"
#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"

namespace lethe {

absl::Status SubjectBeingForgottenError() {
  return WithErrorInfo(
      absl::FailedPreconditionError("subject: inputs under this label are being forgotten in every "
                                    "session; retry when that has ended"),
      {"SUBJECT_BEING_FORGOTTEN", {{"field", "subject"}, {"retry_after_ms", "1000"}}});
}

LabelledWriter::~LabelledWriter() { audit::SecureWipe(&subject); }

SubjectFence::~SubjectFence() {
  MutexLock lock(&mutex_);
  for (Label& label : closed_) audit::SecureWipe(&label.subject);
}

absl::Status SubjectFence::Check(absl::string_view tenant, absl::string_view subject) const {
  if (FaultActive(Fault::kSubjectAdmitted)) return absl::OkStatus();
  return IsClosed(tenant, subject) ? SubjectBeingForgottenError() : absl::OkStatus();
}

bool SubjectFence::IsClosed(absl::string_view tenant, absl::string_view subject) const {
  MutexLock lock(&mutex_);
  return std::any_of(closed_.begin(), closed_.end(), [&](const Label& label) {
    return label.tenant == tenant && label.subject == subject;
  });
}

void SubjectFence::Close(absl::string_view tenant, absl::string_view subject) {
  LETHE_CHECK(!subject.empty() && !IsClosed(tenant, subject));
  MutexLock lock(&mutex_);
  closed_.push_back({std::string(tenant), std::string(subject)});
}

void SubjectFence::Open(absl::string_view tenant, absl::string_view subject) {
  MutexLock lock(&mutex_);
  const auto found = std::find_if(closed_.begin(), closed_.end(), [&](const Label& label) {
    return label.tenant == tenant && label.subject == subject;
  });
  LETHE_CHECK(found != closed_.end());
  std::swap(*found, closed_.back());
  audit::SecureWipe(&closed_.back().subject);
  closed_.pop_back();
}

}  // namespace lethe
