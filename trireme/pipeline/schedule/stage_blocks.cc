// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/stage_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/pipeline/schedule/generators.h"

namespace trireme::pipeline {
namespace {

void check_stages(int64_t blocks, int stages) {
  check<UsageError>(stages >= 1, "a pipeline of {} stages", stages);
  check<UsageError>(stages <= blocks,
                    "{} stages, and the model has {} blocks: each stage needs one, so use fewer "
                    "ranks or stages",
                    stages, blocks);
}

// Sums of the costs before each block, in parts of 2^28 of the whole, so that comparisons are exact
// and squares of sums fit.
std::vector<int64_t> sums_before(const std::vector<double>& costs) {
  double total = 0;
  for (size_t b = 0; b < costs.size(); ++b) {
    check<UsageError>(std::isfinite(costs[b]) && costs[b] >= 0,
                      "block {} costs {}: a cost is a number that is not negative", b, costs[b]);
    total += costs[b];
  }
  check<UsageError>(std::isfinite(total), "the costs of the blocks have no finite sum");
  std::vector<int64_t> sums{0};
  for (const double c : costs)
    sums.push_back(sums.back() + (total > 0 ? std::llround(c / total * (1 << 28)) : 1));
  return sums;
}

// How many stages the blocks need if none may take longer than `most`, which each block fits into.
size_t stages_within(const std::vector<int64_t>& sums, int64_t most) {
  size_t stages = 1, begin = 0;
  for (size_t end = 1; end < sums.size(); ++end)
    if (sums[end] - sums[begin] > most) ++stages, begin = end - 1;
  return stages;
}

// The least that the slowest stage can take.
int64_t least_most(const std::vector<int64_t>& sums, size_t stages) {
  int64_t low = 0, high = sums.back();
  for (size_t b = 0; b + 1 < sums.size(); ++b) low = std::max(low, sums[b + 1] - sums[b]);
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (stages_within(sums, middle) <= stages)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace

std::vector<int64_t> counts_by_cost(const std::vector<double>& costs, int stages) {
  check_stages(static_cast<int64_t>(costs.size()), stages);
  const std::vector<int64_t> sums = sums_before(costs);
  const size_t blocks = costs.size(), count = static_cast<size_t>(stages);
  // Costs that are equal may have been rounded differently.
  const int64_t most = least_most(sums, count) + static_cast<int64_t>(blocks);
  // For the blocks from `b` on in the last `s` stages: the least sum of squares where none takes
  // longer than `most`, and where the first of these stages ends.
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  using Table = std::vector<std::vector<int64_t>>;
  Table squares(count + 1, std::vector<int64_t>(blocks + 1, kNever)), ends = squares;
  squares[0][blocks] = 0;
  for (size_t s = 1; s <= count; ++s)
    for (size_t b = count - s; b + s <= blocks; ++b)
      for (size_t end = b + 1; end + s - 1 <= blocks && sums[end] - sums[b] <= most; ++end) {
        if (squares[s - 1][end] == kNever) continue;
        const int64_t cost = sums[end] - sums[b], sum = cost * cost + squares[s - 1][end];
        if (sum <= squares[s][b]) squares[s][b] = sum, ends[s][b] = static_cast<int64_t>(end);
      }
  std::vector<int64_t> counts;
  size_t begin = 0;
  for (size_t s = count; s > 0; --s) {
    const auto end = static_cast<size_t>(ends[s][begin]);
    counts.push_back(static_cast<int64_t>(end - begin));
    begin = end;
  }
  return counts;
}

std::vector<StageBlocks> divide_blocks(int64_t blocks, int stages,
                                       const std::vector<int64_t>& counts) {
  check_stages(blocks, stages);
  std::vector<int64_t> each = counts;
  if (each.empty())
    for (int s = 0; s < stages; ++s) each.push_back(blocks / stages + (s < blocks % stages));
  check<UsageError>(each.size() == static_cast<size_t>(stages),
                    "the blocks of {} stages are given, and the pipeline has {}", each.size(),
                    stages);
  const int64_t sum = std::accumulate(each.begin(), each.end(), int64_t{0});
  check<UsageError>(sum == blocks, "the stages have {} blocks together, and the model has {}", sum,
                    blocks);
  std::vector<StageBlocks> all;
  int64_t begin = 0;
  for (int s = 0; s < stages; ++s) {
    const int64_t count = each[static_cast<size_t>(s)];
    check<UsageError>(count >= 1, "stage {} has {} blocks: each stage needs one", s, count);
    all.push_back({begin, begin + count, s == 0, s + 1 == stages});
    begin += count;
  }
  return all;
}

namespace {

// A stage's gradients are added as they come, along a tree that is the same from both ends, and the
// losses are added as the last stage computes them.
void check_micro_batches_in_order(const Schedule& table) {
  std::vector<std::vector<int>> gradients(table.rank_of_stage.size());
  std::vector<int> losses;
  for (const auto& list : table.actions)
    for (const Action& a : list) {
      if (gives_weight_gradient(a.kind))
        gradients[static_cast<size_t>(a.stage)].push_back(a.micro_batch);
      if (a.kind == ActionKind::forward && a.stage + 1 == table.stages())
        losses.push_back(a.micro_batch);
    }
  constexpr const char* kWhy =
      "training.reproducible wants the bits of one process, which depend on that order";
  for (size_t s = 0; s < gradients.size(); ++s)
    check<UsageError>(std::is_sorted(gradients[s].begin(), gradients[s].end()) ||
                          std::is_sorted(gradients[s].rbegin(), gradients[s].rend()),
                      "{}: the weight gradients of stage {} come neither in the order of the "
                      "micro-batches nor in the reverse of it, and {}",
                      table.name, s, kWhy);
  check<UsageError>(std::is_sorted(losses.begin(), losses.end()),
                    "{}: the forwards of the last stage do not come in the order of the "
                    "micro-batches, and {}",
                    table.name, kWhy);
}

Schedule schedule_for(const PipelineShape& shape) {
  if (shape.table) {
    const Schedule& table = *shape.table;
    check<UsageError>(table.ranks() == shape.ranks,
                      "{} is for {} ranks, one a line, and the pipeline has {}", table.name,
                      table.ranks(), shape.ranks);
    check<UsageError>(table.micro_batches == shape.micro_batches,
                      "{} is for {} micro-batches, and a step has {}", table.name,
                      table.micro_batches, shape.micro_batches);
    const auto& ranks = table.rank_of_stage;
    for (int rank = 0; rank < table.ranks(); ++rank)
      check<UsageError>(std::find(ranks.begin(), ranks.end(), rank) != ranks.end(),
                        "{}: rank {} has no stage", table.name, rank);
    if (shape.same_bits) check_micro_batches_in_order(table);
    return table;
  }
  int each = shape.stages_per_rank;
  for (const ScheduleKind& kind : schedule_kinds())
    if (each == 0 && shape.schedule == kind.name) each = kind.stages_per_rank;
  return generate_schedule(shape.schedule, {.ranks = shape.ranks,
                                            .micro_batches = shape.micro_batches,
                                            .stages_per_rank = std::max(each, 1)});
}

}  // namespace

PipelinePlan plan_pipeline(const PipelineShape& shape) {
  PipelinePlan plan{schedule_for(shape), {}};
  const int stages = plan.schedule.stages();
  const bool by_cost = shape.counts.empty() && !shape.costs.empty();
  check<UsageError>(!by_cost || static_cast<int64_t>(shape.costs.size()) == shape.blocks,
                    "the costs of {} blocks are given, and the model has {}", shape.costs.size(),
                    shape.blocks);
  plan.stages = divide_blocks(shape.blocks, stages,
                              by_cost ? counts_by_cost(shape.costs, stages) : shape.counts);
  return plan;
}

}  // namespace trireme::pipeline
