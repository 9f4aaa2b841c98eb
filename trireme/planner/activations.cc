// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/activations.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/planner/element_bytes.h"

namespace trireme {
namespace {

constexpr int64_t kIndex = 8;

ActivationMemory gpt_activations(const ActivationQuestion& q) {
  const ModelGeometry& g = q.model;
  const int64_t tokens = q.micro_batch * g.context, e = q.element_bytes, w = g.width;
  const int64_t statistics = (4 + g.heads) * kFloatBytes;
  const int64_t block = 16 * w * e + statistics;  // per token, as all below
  const int64_t begin = w * e + kIndex;           // the embedded stream and its indices
  const int64_t softmax = g.vocab * kFloatBytes;
  const int64_t end = w * e + 2 * kFloatBytes + softmax + kIndex;  // the last norm, scores, targets
  const int64_t kept = begin + (g.layers - q.recomputed) * block + q.recomputed * w * e + end;
  // Beside what is kept: the scores' gradients; then, in the last block, the stream's gradient and
  // both sides of GELU, when the scores and the values behind GELU are gone.
  const int64_t half = e == 2 ? softmax : 0;  // scores once more, in the model's own type
  const int64_t at_loss = 2 * softmax + half;
  const int64_t inner = q.recomputed > 0 ? block - w * e : 0;
  int64_t in_block = inner + (w + 4 * w) * e - (softmax + w * e);
  if (e == 2)  // attention computes in float32: q, k, v, output, and the gradients of both
    in_block = std::max(in_block, inner + 8 * w * kFloatBytes + 4 * w * e - 10 * w * e - softmax);
  return {tokens * kept, tokens * (kept + std::max(at_loss, in_block))};
}

ActivationMemory mlp_activations(const ActivationQuestion& q) {
  const auto& sizes = q.model.mlp_sizes;
  int64_t kept = 0, widest = 0;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    kept += sizes[i] * q.element_bytes;
    if (i > 0) widest = std::max(widest, sizes[i]);
  }
  const int64_t scores = sizes.back() * kFloatBytes;
  kept += scores + kIndex;
  // A layer's gradient before and after its ReLU.
  const int64_t moving = std::max(2 * scores, 2 * widest * q.element_bytes);
  return {q.micro_batch * kept, q.micro_batch * (kept + moving)};
}

/// Images of 28 × 28, in numbers a sample. The peak is in the second convolution's backward, when
/// what came after it is gone: the image, the first's output, both gradients, and copies of the
/// first's output and of the gradient in oneDNN's layout, whose channels come in sixteens.
struct Images {
  int64_t first, second, pooled, rest;  // outputs; the pooled have an index each
  int64_t copies;
};

ActivationMemory images(const ActivationQuestion& q, const Images& n) {
  const int64_t e = q.element_bytes, scores = 10 * kFloatBytes;
  const int64_t kept =
      (784 + n.first + n.second + n.rest) * e + n.pooled * kIndex + scores + kIndex;
  const int64_t peak = (784 + 2 * n.first + n.second + n.copies) * e;
  return {q.micro_batch * kept, q.micro_batch * std::max(kept, peak)};
}

}  // namespace

ActivationMemory activation_memory(const ActivationQuestion& q) {
  const std::string& type = q.model.type;
  check<UsageError>(q.micro_batch >= 0 && q.recomputed >= 0 &&
                        q.recomputed <= (type == "gpt" ? q.model.layers : 0),
                    "activations: {} of {} blocks recomputed, {} samples", q.recomputed,
                    type == "gpt" ? q.model.layers : 0, q.micro_batch);
  if (type == "gpt") return gpt_activations(q);
  if (type == "mlp") return mlp_activations(q);
  if (type == "net") return images(q, {11520, 8000, 2000, 2000 + 50, 32 * 576 + 32 * 400});
  if (type == "convnet")  // dropout makes another of both it stands behind
    return images(q, {21632, 36864, 9216, 2 * 9216 + 2 * 128, 21632 + 36864});
  fail<UsageError>("the planner knows no model of type '{}'", type);
}

int64_t blocks_to_recompute(ActivationQuestion q, int64_t budget) {
  const int64_t blocks = q.model.type == "gpt" ? q.model.layers : 0;
  for (q.recomputed = 0; q.recomputed < blocks; ++q.recomputed)
    if (activation_memory(q).peak <= budget) break;
  return q.recomputed;
}

}  // namespace trireme
