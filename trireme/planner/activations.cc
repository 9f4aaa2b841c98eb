// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/activations.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/planner/element_bytes.h"

namespace trireme {
namespace {

constexpr int64_t kIndex = 8, kMask = 1;

/// Bytes that one rank has of each of these, of all its tokens.
struct GptBytes {
  int64_t stream = 0;      // a vector of the width; 1/t of the positions with sequence_parallel
  int64_t whole = 0;       // one of all positions
  int64_t attended = 0;    // the heads' part of the width
  int64_t units = 0;       // the hidden units of the feed-forward
  int64_t statistics = 0;  // of a block's norms and its attention
  int64_t scores = 0;      // as the loss keeps them
  int64_t block() const { return 4 * stream + 4 * attended + 2 * units + statistics; }
};

GptBytes bytes_of(const ActivationQuestion& q) {
  const ModelGeometry& g = q.model;
  const ModelPart& part = q.part;
  const int64_t tokens = q.micro_batch * g.context, e = q.element_bytes;
  const int64_t own = part.sequence_parallel ? q.micro_batch * part.part_of(g.context) : tokens;
  const int64_t heads = split_heads(g.heads, g.heads, part.tp, part.tp_rank).queries.length;
  GptBytes n;
  n.stream = own * g.width * e;
  n.whole = tokens * g.width * e;
  n.attended = tokens * (g.width * heads / g.heads) * e;
  n.units = tokens * part.part_of(4 * g.width) * e;
  n.statistics = (own * 4 + tokens * heads) * kFloatBytes;
  n.scores = tokens * part.part_of(g.vocab) * (part.tp > 1 ? e : kFloatBytes);
  return n;
}

/// The most beside what is kept, while the scores and their loss are computed and differentiated.
int64_t at_loss(const ActivationQuestion& q, const GptBytes& n, int64_t gathered) {
  // A part's gradient; then the sum for the stream, when the part itself is gone.
  if (q.part.tp > 1) return std::max(n.scores, gathered);
  return 2 * n.scores + (q.element_bytes == 2 ? n.scores : 0);  // once more, in the model's type
}

ActivationMemory gpt_activations(const ActivationQuestion& q) {
  const auto stage = q.part.stages.empty() ? pipeline::StageBlocks{0, q.model.layers, true, true}
                                           : q.part.stages.front();
  const GptBytes n = bytes_of(q);
  const int64_t tokens = q.micro_batch * q.model.context;
  const int64_t blocks = stage.end - stage.begin;
  int64_t kept = n.stream;  // the embedded stream, or what came from the stage before
  if (stage.first) {        // indices, and with tp those among the rank's own rows
    kept += tokens * kIndex;
    if (q.part.tp > 1) kept += tokens * (kIndex + kMask);
  }
  kept += (blocks - q.recomputed) * n.block() + q.recomputed * n.stream;
  // The last norm, two numbers a token of it and of the loss, targets.
  const int64_t end = n.stream + n.scores;
  if (stage.last) kept += end + tokens * (2 * kFloatBytes + kIndex);

  // Beside what is kept: the scores' gradients; then, in the last block, the stream's gradient and
  // both sides of GELU, when the scores and the values behind GELU are gone. The sums that ranks
  // exchange are of all positions; with sequence_parallel their inputs are gathered anew, and so is
  // the stream's gradient, beside GELU's.
  const bool sequence = q.part.sequence_parallel;
  const int64_t gathered = q.part.tp > 1 ? n.whole * (sequence ? 2 : 1) : 0;
  const int64_t beside = sequence ? n.whole : 0;
  const int64_t inner = q.recomputed > 0 ? n.block() - n.stream : 0;
  const int64_t gone = stage.last ? end : 0;
  int64_t in_block = inner + n.stream + std::max(n.units + beside, gathered - n.units) - gone;
  if (q.element_bytes == 2) {  // attention computes in float32: q, k, v, output, and the gradients
    const int64_t wide = 8 * n.attended / q.element_bytes * kFloatBytes;
    in_block = std::max(in_block,
                        inner + wide + 3 * n.attended + n.stream - (2 * n.units + n.stream) - gone);
  }
  const int64_t moving = std::max(stage.last ? at_loss(q, n, gathered) : 0, in_block);
  // The first stage has no input gradient: its first half does nothing. What is recomputed is one
  // function, of whose gradients one is noted.
  const int64_t noted = 4 * n.stream + 3 * n.attended + n.units;
  int64_t halves = n.stream;
  if (!stage.first)
    halves = (blocks - q.recomputed) * noted + q.recomputed * n.stream + (stage.last ? end : 0);
  return {kept, kept + moving, halves};
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

/// That may be recomputed.
int64_t blocks_of(const ActivationQuestion& q) {
  if (q.model.type != "gpt") return 0;
  return q.part.stages.empty() ? q.model.layers
                               : q.part.stages.front().end - q.part.stages.front().begin;
}

}  // namespace

ActivationMemory activation_memory(const ActivationQuestion& q) {
  const std::string& type = q.model.type;
  const int64_t blocks = blocks_of(q);
  check<UsageError>(q.micro_batch >= 0 && q.recomputed >= 0 && q.recomputed <= blocks,
                    "activations: {} of {} blocks recomputed, {} samples", q.recomputed, blocks,
                    q.micro_batch);
  check<UsageError>(
      type == "gpt" ? q.part.stages.size() <= 1 : q.part.tp == 1 && q.part.stages.empty(),
      "activations: of one stage at a time, and of parts of a gpt alone");
  if (type == "gpt") return gpt_activations(q);
  if (type == "mlp") return mlp_activations(q);
  if (type == "net") return images(q, {11520, 8000, 2000, 2000 + 50, 32 * 576 + 32 * 400});
  if (type == "convnet")  // dropout makes another of both it stands behind
    return images(q, {21632, 36864, 9216, 2 * 9216 + 2 * 128, 21632 + 36864});
  fail<UsageError>("the planner knows no model of type '{}'", type);
}

int64_t blocks_to_recompute(ActivationQuestion q, int64_t budget) {
  const int64_t blocks = blocks_of(q);
  for (q.recomputed = 0; q.recomputed < blocks; ++q.recomputed)
    if (activation_memory(q).peak <= budget) break;
  return q.recomputed;
}

ActivationMemory pipeline_activations(const pipeline::Schedule& schedule, int rank,
                                      const std::vector<ActivationMemory>& of_a_stage) {
  ActivationMemory most;
  int64_t held = 0;
  for (const auto& action : schedule.actions.at(static_cast<size_t>(rank))) {
    if (!pipeline::is_compute(action.kind)) continue;
    const ActivationMemory& stage = of_a_stage.at(static_cast<size_t>(action.stage));
    if (action.kind == pipeline::ActionKind::forward) held += stage.kept;
    most.kept = std::max(most.kept, held);
    most.peak = std::max(most.peak, held - stage.kept + stage.peak);
    if (action.kind == pipeline::ActionKind::input_gradient) {
      held += stage.noted;
      most.peak = std::max(most.peak, held);
    }
    if (action.kind == pipeline::ActionKind::weight_gradient) held -= stage.noted;
    if (pipeline::gives_weight_gradient(action.kind)) held -= stage.kept;
  }
  return most;
}

}  // namespace trireme
