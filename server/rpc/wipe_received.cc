// grpc_byte_buffer_reader_destroy of a program that wipes: gRPC's C++ library reads a received message through a reader
// and destroys it when the message is parsed; from then on nobody needs the bytes. Only received messages are read so.

#include <cstring>

#include <dlfcn.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>

#include "kernels/base/fault.h"
#include "server/wiping/dead_stacks.h"

namespace {

void WipeBytesOf(grpc_byte_buffer* buffer) {
  if (buffer == nullptr || buffer->type != GRPC_BB_RAW) return;
  if (lethe::FaultActive(lethe::Fault::kReceivedBytesKept)) return;
  grpc_slice_buffer& slices = buffer->data.raw.slice_buffer;
  for (size_t k = 0; k < slices.count; ++k) {
    explicit_bzero(GRPC_SLICE_START_PTR(slices.slices[k]), GRPC_SLICE_LENGTH(slices.slices[k]));
  }
}

using Destroy = void (*)(grpc_byte_buffer_reader*);

}  // namespace

extern "C" void grpc_byte_buffer_reader_destroy(grpc_byte_buffer_reader* reader) {
  static const auto destroy =
      reinterpret_cast<Destroy>(dlsym(RTLD_NEXT, "grpc_byte_buffer_reader_destroy"));
  WipeBytesOf(reader->buffer_in);
  destroy(reader);
  // The parser keeps the last bytes of a message in its own frame. Soon they would lie between slots that gRPC's frames use.
  lethe::WipeOwnDeadStack();
}
