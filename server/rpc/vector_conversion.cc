#include "server/rpc/vector_conversion.h"

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/rpc/validation.h"
#include "server/vector_session/vector_rows.h"

namespace lethe {
namespace {

constexpr int64_t kRowsMax = 65536;
constexpr int64_t kDimMax = 65536;
// Before the box mass is reached every key weighs the same and rho is a sum over all pairs.
constexpr double kBoxMassMax = 65536.0;
constexpr double kRidgeDefault = 0x1.0p-11;

absl::StatusOr<double> ReadBoxMass(const v1::VectorOptions& message) {
  switch (message.box_case()) {
    case v1::VectorOptions::kC:
      LETHE_RETURN_IF_ERROR(CheckRange("options.c", message.c(), 1.0 / kBoxMassMax, 1.0));
      return 1.0 / message.c();
    case v1::VectorOptions::kNu: {
      const double nu = message.nu().nu();
      if (!(nu > 0.0 && nu <= 1.0)) return InvalidFieldError("options.nu.nu", "above 0, at most 1");
      const double mass = nu * static_cast<double>(message.nu().reference_size());
      if (!(mass >= 1.0 && mass <= kBoxMassMax)) {
        return InvalidFieldError("options.nu.reference_size",
                                 "such that nu reference_size is 1 to 65536");
      }
      return mass;
    }
    case v1::VectorOptions::kBoxMass:
      LETHE_RETURN_IF_ERROR(CheckRange("options.box_mass", message.box_mass(), 1.0, kBoxMassMax));
      return message.box_mass();
    case v1::VectorOptions::BOX_NOT_SET:
      break;
  }
  return InvalidFieldError("options.box", "one of c, nu and box_mass");
}

}  // namespace

absl::StatusOr<absl::Span<const double>> ReadMatrix(absl::string_view field,
                                                    const v1::Matrix& matrix, int64_t num_columns) {
  if (matrix.num_columns() != num_columns) {
    return InvalidFieldError(absl::StrCat(field, ".num_columns"), absl::StrCat(num_columns));
  }
  LETHE_RETURN_IF_ERROR(
      CheckIntegerRange(absl::StrCat(field, ".num_rows"), matrix.num_rows(), 1, kRowsMax));
  if (matrix.values_size() != matrix.num_rows() * num_columns) {
    return InvalidFieldError(absl::StrCat(field, ".values"), "num_rows x num_columns numbers");
  }
  const absl::Span<const double> numbers(matrix.values().data(),
                                         static_cast<size_t>(matrix.values_size()));
  if (!numbers.empty() && !CheckVectorRows(field, numbers, num_columns).ok()) {
    return InvalidFieldError(absl::StrCat(field, ".values"),
                             "finite numbers of at most 2^400 in magnitude");
  }
  return numbers;
}

void SetMatrix(absl::Span<const double> numbers, int64_t num_columns, v1::Matrix* matrix) {
  matrix->set_num_rows(static_cast<int32_t>(static_cast<int64_t>(numbers.size()) / num_columns));
  matrix->set_num_columns(static_cast<int32_t>(num_columns));
  matrix->mutable_values()->Add(numbers.begin(), numbers.end());
}

absl::StatusOr<VectorOptions> ReadVectorOptions(const v1::VectorOptions& message) {
  LETHE_RETURN_IF_ERROR(CheckIntegerRange("options.key_dim", message.key_dim(), 1, kDimMax));
  LETHE_RETURN_IF_ERROR(CheckIntegerRange("options.value_dim", message.value_dim(), 0, kDimMax));
  LETHE_RETURN_IF_ERROR(CheckRange("options.sigma", message.sigma(), 0x1.0p-20, 0x1.0p20));
  LETHE_ASSIGN_OR_RETURN(const double box_mass, ReadBoxMass(message));
  const double ridge = message.has_ridge() ? message.ridge() : kRidgeDefault;
  LETHE_RETURN_IF_ERROR(CheckRange("options.ridge", ridge, 1e-8, 1.0));
  VectorOptions options;
  LETHE_ASSIGN_OR_RETURN(options.params,
                         svdd::MakeParams(message.sigma(), box_mass, ridge, message.key_dim()));
  options.value_dim = message.value_dim();
  options.selection = message.selection();
  return options;
}

void SetVectorOptions(const VectorOptions& options, v1::VectorOptions* message) {
  message->set_key_dim(static_cast<int32_t>(options.params.key_dim));
  message->set_value_dim(static_cast<int32_t>(options.value_dim));
  message->set_sigma(options.params.sigma);
  message->set_ridge(options.params.ridge);
  message->set_selection(options.selection);
  message->set_box_mass(options.params.box_mass);
}

}  // namespace lethe
