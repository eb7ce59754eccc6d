// Status macros: early return on absl::Status errors, in the manner common to Abseil code bases.
//
//   LETHE_RETURN_IF_ERROR(DoIt());
//   LETHE_ASSIGN_OR_RETURN(auto value, Compute());   // declares or assigns the left side
//
// Threads: none.   Numerics: none.
#ifndef LETHE_KERNELS_BASE_STATUS_MACROS_H_
#define LETHE_KERNELS_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define LETHE_RETURN_IF_ERROR(expr)                               \
  do {                                                            \
    if (absl::Status lethe_status = (expr); !lethe_status.ok()) { \
      return lethe_status;                                        \
    }                                                             \
  } while (false)

#define LETHE_CONCAT_INNER(a, b) a##b
#define LETHE_CONCAT(a, b) LETHE_CONCAT_INNER(a, b)
#define LETHE_ASSIGN_OR_RETURN(lhs, expr) \
  LETHE_ASSIGN_OR_RETURN_IMPL(LETHE_CONCAT(lethe_or_, __LINE__), lhs, expr)
// NOLINTBEGIN(bugprone-macro-parentheses): a name or a declaration cannot stand in parentheses
#define LETHE_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                \
  if (!result.ok()) {                                  \
    return std::move(result).status();                 \
  }                                                    \
  lhs = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)

#endif  // LETHE_KERNELS_BASE_STATUS_MACROS_H_
