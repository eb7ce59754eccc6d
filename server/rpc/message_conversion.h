// Conversions between the messages of lethe.v1 and the server's own structs.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_MESSAGE_CONVERSION_H_
#define LETHE_SERVER_RPC_MESSAGE_CONVERSION_H_

#include <string>
#include <vector>

#include <google/protobuf/repeated_ptr_field.h>

#include "audit/state/state_digest.h"
#include "lethe/v1/certification.pb.h"
#include "lethe/v1/session.pb.h"
#include "lethe/v1/types.pb.h"
#include "server/certification/certifier.h"
#include "server/certification/partition.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

std::string DigestBytes(const audit::Sha256Digest& digest);

void SetRange(const TokenIdRange& range, v1::TokenRange* message);
void SetRanges(const std::vector<TokenIdRange>& ranges,
               google::protobuf::RepeatedPtrField<v1::TokenRange>* messages);
void SetDigest(const audit::Sha256Digest& digest, const std::vector<audit::StatePart>& parts,
               v1::StateDigest* message);
void SetSession(const SessionEntry& entry, v1::Session* message);
void SetPartitionRow(const PartitionEntry& row, v1::PartitionRow* message);
void SetCertificateRef(const std::string& session_id, const RecordRef& ref,
                       v1::CertificateRef* message);
void SetCertificate(const std::string& session_id, const CertificateText& text,
                    v1::Certificate* message);
}  // namespace lethe

#endif  // LETHE_SERVER_RPC_MESSAGE_CONVERSION_H_
