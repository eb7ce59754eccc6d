// Goal: weight files from outside never crash the reader, and what is accepted is tensors of finite numbers.
// Method: parse, check shapes, write as F32, parse again, compare the bits; a tensor that is asked for and not there is
// refused.
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "server/model/safetensors.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {
namespace {

void CheckTensor(const Tensor& tensor) {
  int64_t num_values = 1;
  for (const int64_t size : tensor.shape) num_values *= size;
  LETHE_CHECK(static_cast<int64_t>(tensor.values.size()) == num_values);
  for (const float value : tensor.values) LETHE_CHECK(std::isfinite(value));
}

bool SameBits(const Tensor& a, const Tensor& b) {
  if (a.shape != b.shape || a.values.size() != b.values.size()) return false;
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (std::bit_cast<uint32_t>(a.values[i]) != std::bit_cast<uint32_t>(b.values[i])) return false;
  }
  return true;
}

}  // namespace

void FuzzSafetensors(absl::string_view bytes) {
  const auto tensors = ParseSafetensors(bytes, {});
  LETHE_CHECK(!ParseSafetensors(bytes, std::vector<std::string>{"no tensor"}).ok());
  if (!tensors.ok()) return;
  for (const auto& [name, tensor] : *tensors) CheckTensor(tensor);
  const auto again = ParseSafetensors(SafetensorsBytes(*tensors), {});
  LETHE_CHECK(again.ok() && again->size() == tensors->size());
  for (const auto& [name, tensor] : *tensors) LETHE_CHECK(SameBits(tensor, again->at(name)));
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzSafetensors)
