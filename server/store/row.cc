#include "server/store/row.h"

#include "audit/crypto/aead.h"
#include "kernels/base/byte_io.h"

namespace lethe {
namespace {

std::string AssociatedOf(const StoreId& store, int64_t session, const StoredRow& row) {
  ByteWriter writer;
  writer.String("lethe-row-v1");
  writer.Raw(store.data(), store.size());
  writer.I64(session);
  writer.I64(static_cast<int64_t>(row.kind));
  writer.I64(row.row_id);
  writer.U64(row.key.slot);
  writer.U64(row.key.generation);
  writer.U64(row.span.first_id);
  writer.U64(row.span.end_id);
  writer.I64(row.span.num_inputs);
  return writer.Take();
}

std::string AssociatedOfName(const StoreId& store, int64_t session) {
  ByteWriter writer;
  writer.String("lethe-name-v1");
  writer.Raw(store.data(), store.size());
  writer.I64(session);
  return writer.Take();
}

}  // namespace

std::string SealName(const StoreId& store, int64_t session, const audit::Secret32& key,
                     absl::string_view name) {
  return audit::SealAes256Gcm(key, AssociatedOfName(store, session), name);
}

absl::StatusOr<std::string> OpenName(const StoreId& store, int64_t session,
                                     const audit::Secret32& key, absl::string_view sealed) {
  return audit::OpenAes256Gcm(key, AssociatedOfName(store, session), sealed);
}

std::string SealRow(const StoreId& store, int64_t session, const StoredRow& row,
                    const audit::Secret32& key, absl::string_view body) {
  return audit::SealAes256Gcm(key, AssociatedOf(store, session, row), body);
}

absl::StatusOr<std::string> OpenRow(const StoreId& store, int64_t session, const StoredRow& row,
                                    const audit::Secret32& key, absl::string_view sealed) {
  return audit::OpenAes256Gcm(key, AssociatedOf(store, session, row), sealed);
}

}  // namespace lethe
