// RefRoot, RefInclusionProof, RefConsistencyProof: RFC 6962 section 2.1 word for word, by recursion
// over copies of the list. Slow; the oracle of the Merkle tests.
// Threads: safe.
#ifndef LETHE_TESTS_AUDIT_LOG_MERKLE_REF_H_
#define LETHE_TESTS_AUDIT_LOG_MERKLE_REF_H_

#include <string>
#include <vector>

#include "audit/crypto/sha256.h"

namespace lethe::audit {

using Entries = std::vector<std::string>;

// MTH(D[n])
Sha256Digest RefRoot(const Entries& entries);
// PATH(m, D[n])
std::vector<Sha256Digest> RefInclusionProof(size_t leaf_index, const Entries& entries);
// PROOF(m, D[n])
std::vector<Sha256Digest> RefConsistencyProof(size_t old_size, const Entries& entries);

}  // namespace lethe::audit

#endif  // LETHE_TESTS_AUDIT_LOG_MERKLE_REF_H_
