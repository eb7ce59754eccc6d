// SlotLayout, MemoryColumns: where the parts of a session's state lie in an image of its slot, and where the
// channels of a memory layer's groups lie in the rows of its one convolution.
//
// Equation:  none. A layer's parts: of a local layer its convolution's tail, window keys, window values; of
//            a memory layer the tail of all its groups' channels; of a group (index in GroupParts)
//            palimpsa m, i_bar; vla a, s, key_sum; ovq keys, values, counts, pending keys, pending values;
//            window keys, values; sv none.
// Shapes:    as the batched kernels want a slot of their pools; a part that a configuration does without
//            has no bytes. MemoryColumns: group g has q at q_begin[g], then k, then v.
// Units:     bytes; channels.
// Requires:  a config from ParseModelConfig.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   values.
#ifndef LETHE_SERVER_DEVICE_SLOT_LAYOUT_H_
#define LETHE_SERVER_DEVICE_SLOT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ovq/ovq.h"
#include "kernels/vla/vla.h"
#include "kernels/window_attention/window_attention.h"
#include "server/model/config.h"

namespace lethe {

struct GroupColumns {
  int64_t q_begin = 0;
  int64_t k_begin = 0;
  int64_t v_begin = 0;
  int64_t num_keys = 0;    // H K
  int64_t num_values = 0;  // H V
};
struct MemoryColumns {
  explicit MemoryColumns(const MemoryLayerConfig& config);
  int64_t num_channels = 0;
  int64_t num_reads = 0;  // of all groups, concatenated
  std::vector<GroupColumns> groups;
};

struct SlotPart {
  size_t begin = 0;
  size_t bytes = 0;
};
struct LayerParts {
  std::vector<SlotPart> own;
  std::vector<std::vector<SlotPart>> groups;
};

class SlotLayout {
 public:
  explicit SlotLayout(const ModelConfig& config);

  const std::vector<LayerParts>& layers() const { return layers_; }
  // In the order of an image, those without bytes left out.
  const std::vector<SlotPart>& parts() const { return parts_; }
  size_t image_bytes() const { return image_bytes_; }

 private:
  void AddMemory(const MemoryLayerConfig& config);
  SlotPart Add(int64_t num_words);

  std::vector<LayerParts> layers_;
  std::vector<SlotPart> parts_;
  size_t image_bytes_ = 0;
};

// What the kernels are told of a group.
OvqShape OvqShapeOf(const GroupConfig& config);
VlaOptions VlaOptionsOf(const GroupConfig& config);
WindowAttentionShape WindowShapeOf(const GroupConfig& config);
inline bool IsPalimpsa(const GroupConfig& config) {
  return config.kind == MemoryKind::kPalimpsaD || config.kind == MemoryKind::kPalimpsaM;
}

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_SLOT_LAYOUT_H_
