#include "server/rpc/received_bytes.h"

#include <cstring>
#include <string>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>

namespace lethe {

bool ReceivedBytesAreWiped() {
  const std::string text(100, 'x');  // longer than what a slice holds in itself
  grpc_slice slice = grpc_slice_from_copied_buffer(text.data(), text.size());
  grpc_byte_buffer* const buffer = grpc_raw_byte_buffer_create(&slice, 1);
  grpc_byte_buffer_reader reader;
  const bool read = grpc_byte_buffer_reader_init(&reader, buffer) != 0;
  if (read) grpc_byte_buffer_reader_destroy(&reader);
  const void* const kept = std::memchr(GRPC_SLICE_START_PTR(slice), 'x', text.size());
  grpc_byte_buffer_destroy(buffer);
  grpc_slice_unref(slice);
  return read && kept == nullptr;
}

}  // namespace lethe
