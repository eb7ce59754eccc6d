// TestLeaf, TestLogKey: leaves and keys that are the same in every run.
// Threads: safe.
#ifndef LETHE_TESTS_AUDIT_LOG_LOG_TESTING_H_
#define LETHE_TESTS_AUDIT_LOG_LOG_TESTING_H_

#include <memory>
#include <string>

#include "audit/crypto/ed25519.h"
#include "audit/log/leaf.h"

namespace lethe::audit {

inline std::shared_ptr<const Ed25519PrivateKey> TestLogKey() {
  return std::make_shared<const Ed25519PrivateKey>(
      Ed25519PrivateKey::FromSeed(AsByteSpan(std::string(32, 'l'))).value());
}

inline std::string TestLeaf(int number) {
  static const Ed25519PrivateKey kKey =
      Ed25519PrivateKey::FromSeed(AsByteSpan(std::string(32, 'r'))).value();
  const std::string pae = "record " + std::to_string(number);
  return WriteLogLeaf(LogLeaf{Sha256Of(pae), kKey.Sign(pae), kKey.public_key()});
}

}  // namespace lethe::audit

#endif  // LETHE_TESTS_AUDIT_LOG_LOG_TESTING_H_
