// UseRequestKey, RequestHashKey: the secret under which requests are hashed for their repeats (MakeRequestKey).
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  UseRequestKey: before the first request.
// Rejects:   none.
// Effects:   keyed, so that a stored hash is no oracle for content that was forgotten since. Without UseRequestKey the key is
//            drawn at random, and no answer is found again by another process.
// Numerics:  none.
// Threads:   safe after UseRequestKey.
#ifndef LETHE_SERVER_RPC_REQUEST_KEY_H_
#define LETHE_SERVER_RPC_REQUEST_KEY_H_

#include "audit/crypto/secret.h"

namespace lethe {

void UseRequestKey(const audit::Secret32& key);
const audit::Secret32& RequestHashKey();

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_REQUEST_KEY_H_
