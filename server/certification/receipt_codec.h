// EncodeForgetReceipt … DecodeCertifiedHeads: receipts as the session store keeps them for repeats.
//
// Equation:  Decode(Encode(r)) = r, the record's place in the log taken from `records`; with keep_openings = false
//            without the state digest.
// Shapes:    server/session_registry/request_table.h: the kind first, which Decode… does not read.
// Units:     none.
// Requires:  a receipt with its record.
// Rejects:   Decode…: DATA_LOSS for other bytes, and for a record that is not among `records`.
// Effects:   none.
// Numerics:  none; floating point by its bits.
// Threads:   safe.
#ifndef LETHE_SERVER_CERTIFICATION_RECEIPT_CODEC_H_
#define LETHE_SERVER_CERTIFICATION_RECEIPT_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/byte_io.h"
#include "server/certification/certifier.h"
#include "server/certification/forgetter.h"
#include "server/certification/selection.h"

namespace lethe {

std::string EncodeForgetReceipt(const ForgetReceipt& receipt, bool keep_openings);
absl::StatusOr<ForgetReceipt> DecodeForgetReceipt(ByteReader* reader,
                                                  absl::Span<const RecordRef> records);

std::string EncodeEvictReceipt(const EvictReceipt& receipt, bool keep_openings);
absl::StatusOr<EvictReceipt> DecodeEvictReceipt(ByteReader* reader,
                                                absl::Span<const RecordRef> records);

std::string EncodeCertifiedHeads(const CertifiedHeads& certified, bool keep_openings);
absl::StatusOr<CertifiedHeads> DecodeCertifiedHeads(ByteReader* reader,
                                                    absl::Span<const RecordRef> records);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_RECEIPT_CODEC_H_
