// ReceivedBytesAreWiped: whether this program wipes the bytes of a request once it is parsed (received_bytes.cc).
//
// gRPC reads a connection into blocks of at least 8 KiB and holds a block until it is full: without this the requests of
// an idle connection stay in memory for as long as it is open, long after their call ended.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   tries it on a buffer of its own.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_RECEIVED_BYTES_H_
#define LETHE_SERVER_RPC_RECEIVED_BYTES_H_

namespace lethe {

bool ReceivedBytesAreWiped();

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_RECEIVED_BYTES_H_
