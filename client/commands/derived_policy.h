// AddDerivedPolicy: the option --derived of the commands that forget.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   the option: anything but keep, forget and fail.
// Effects:   `set` is called with what was chosen; `fail_means` completes the help of fail.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_DERIVED_POLICY_H_
#define LETHE_CLIENT_COMMANDS_DERIVED_POLICY_H_

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "lethe/v1/forgetting.pb.h"

namespace lethe::client {

inline void AddDerivedPolicy(CLI::App& command, const std::string& fail_means,
                             std::function<void(v1::DerivedPolicy)> set) {
  const std::map<std::string, v1::DerivedPolicy> policies = {
      {"keep", v1::DERIVED_POLICY_KEEP_AND_REPORT},
      {"forget", v1::DERIVED_POLICY_FORGET_DERIVED},
      {"fail", v1::DERIVED_POLICY_FAIL}};
  command
      .add_option_function<std::string>(
          "--derived",
          [set = std::move(set), policies](const std::string& name) { set(policies.at(name)); },
          absl::StrCat("What to do with text that the model wrote while a forgotten token was in "
                       "context: keep (and list it), forget (it too), or fail (",
                       fail_means, ")"))
      ->check(CLI::IsMember({"keep", "forget", "fail"}))
      ->required();
}

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_DERIVED_POLICY_H_
