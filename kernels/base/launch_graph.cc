#include "kernels/base/launch_graph.h"

#include "kernels/base/check.h"
#include "kernels/base/queue_cuda.h"
#include "kernels/base/status_macros.h"

namespace lethe {

absl::StatusOr<LaunchGraph> LaunchGraph::Capture(Queue* queue,
                                                 absl::FunctionRef<absl::Status()> work) {
  LETHE_CHECK(queue->kind() == DeviceKind::kCuda);
  LaunchGraph graph;
  LETHE_ASSIGN_OR_RETURN(graph.graph_, CudaCapture(queue->stream(), work));
  return graph;
}

LaunchGraph::~LaunchGraph() {
  if (graph_ != nullptr) CudaDestroyGraph(graph_);
}

absl::Status LaunchGraph::Launch(Queue* queue) const {
  LETHE_CHECK(queue->kind() == DeviceKind::kCuda && graph_ != nullptr);
  return CudaLaunchGraph(queue->stream(), graph_);
}

}  // namespace lethe
