#include "audit/certificate/deviation_json.h"

#include <utility>

namespace lethe::audit {
namespace {

// Over which arguments, in which norm, and how the bounds were found.
constexpr char kDeviationDomain[] = "every-query";
constexpr char kDeviationNorm[] = "absolute";
constexpr char kDeviationMethod[] = "duality-gap-double-double";
constexpr char kProvedMethod[] = "kkt-enclosure-double-double";

}  // namespace

Json DeviationJson(const DeviationBounds& bounds, bool partition_proved) {
  Json::Object bound = {
      {"alpha", JsonF64(bounds.alpha)}, {"decision", JsonF64(bounds.decision)},
      {"delta", JsonF64(bounds.delta)}, {"gap", JsonF64(bounds.gap)},
      {"rho", JsonF64(bounds.rho)},     {"kernelSum", JsonF64(bounds.kernel_sum)},
  };
  if (partition_proved) {
    bound.push_back({"readout", JsonF64(bounds.readout)});
    bound.push_back({"weightRatio", JsonF64(bounds.weight_ratio)});
  }
  const char* method = partition_proved ? kProvedMethod : kDeviationMethod;
  return Json::MakeObject({{"bound", Json::MakeObject(std::move(bound))},
                           {"domain", Json::String(kDeviationDomain)},
                           {"evidence", JsonDigest(bounds.evidence)},
                           {"method", Json::String(method)},
                           {"norm", Json::String(kDeviationNorm)}});
}

DeviationBounds ReadDeviation(JsonReader reader, bool partition_proved) {
  DeviationBounds bounds;
  JsonReader bound = reader.Object("bound");
  bounds.alpha = bound.F64("alpha");
  bounds.decision = bound.F64("decision");
  bounds.delta = bound.F64("delta");
  bounds.gap = bound.F64("gap");
  bounds.kernel_sum = bound.F64("kernelSum");
  bounds.rho = bound.F64("rho");
  if (partition_proved) {
    bounds.readout = bound.F64("readout");
    bounds.weight_ratio = bound.F64("weightRatio");
  }
  bound.Finish();
  reader.Constant("domain", kDeviationDomain);
  bounds.evidence = reader.Digest("evidence");
  reader.Constant("method", partition_proved ? kProvedMethod : kDeviationMethod);
  reader.Constant("norm", kDeviationNorm);
  reader.Finish();
  return bounds;
}

}  // namespace lethe::audit
