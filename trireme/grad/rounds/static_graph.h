// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/reducer.h"
#include "trireme/grad/rounds/round_decorator.h"

namespace trireme {

/// For a graph that is the same in every round: the first one counts each parameter's gradients
/// (parts that run backward by themselves, such as another library's checkpointing, give several),
/// and reduces when it closes; from the second on, buckets launch as soon as the counts are
/// reached, and nobody waits for parameters that were not used. A round that differs is reduced all
/// the same, at its close, and told by check(). Ranks may have different counts.
///
/// Source: torch's DistributedDataParallel(static_graph=True).
class TRIREME_API StaticGraph final : public RoundDecorator<Reducer> {
 public:
  explicit StaticGraph(Reducer& reducer);

  /// After a round, on every rank: Mismatch on all of them, naming the lowest rank of those with a
  /// batch whose graph changed.
  void check(const std::vector<bool>& has_batch);

  void open() override;
  void ready(size_t i) override;
  void close() override;

 private:
  size_t changed() const;

  RoundRecord::Fact differs_;
  bool learnt_ = false;
  std::vector<int> counts_, got_;
};

}  // namespace trireme
