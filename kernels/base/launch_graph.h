// LaunchGraph: launches of a CUDA queue recorded once and launched again as one.
//
// Shapes:   none.
// Units:    none.
// Requires: Capture: work enqueues on this queue alone, does not wait, allocate or copy to the host, and what
//           it copies from the host is a HostArray. Sizes and addresses are those of the capture; memory that
//           it names outlives the graph, the graph dies before its queue. A CUDA queue (LETHE_CHECK).
// Rejects:  Capture: what `work` returns; INTERNAL where work cannot be recorded; the queue goes on. Launch:
//           INTERNAL.
// Effects:  Capture does none of the work. Launch enqueues all of it, which reads memory as it is then.
// Numerics: those of the work.
// Threads:  as the queue.
#ifndef LETHE_KERNELS_BASE_LAUNCH_GRAPH_H_
#define LETHE_KERNELS_BASE_LAUNCH_GRAPH_H_

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/queue.h"

struct CUgraphExec_st;  // cudaGraphExec_t is a pointer to it

namespace lethe {

class LaunchGraph {
 public:
  LaunchGraph() = default;  // of nothing; may not be launched
  LaunchGraph(LaunchGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  LaunchGraph& operator=(LaunchGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~LaunchGraph();

  static absl::StatusOr<LaunchGraph> Capture(Queue* queue, absl::FunctionRef<absl::Status()> work);
  absl::Status Launch(Queue* queue) const;

 private:
  CUgraphExec_st* graph_ = nullptr;
};

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_LAUNCH_GRAPH_H_
