#include "server/rpc/request_key.h"

namespace lethe {
namespace {

audit::Secret32* Key() {
  static auto* key = new audit::Secret32(audit::Secret32::Random());
  return key;
}

}  // namespace

void UseRequestKey(const audit::Secret32& key) { *Key() = key; }

const audit::Secret32& RequestHashKey() { return *Key(); }

}  // namespace lethe
