// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank_zero.h"

#include "trireme/checkpoint/rank_failure.h"
#include "trireme/comm/objects.h"

namespace trireme {
namespace {

struct Outcome {
  RankFailure failure;
  std::string text;
  TRIREME_FIELDS(failure, text)
};

}  // namespace

std::string from_rank_0(Group world, const std::function<std::string()>& body) {
  if (world.size() == 1) return body();
  Outcome outcome;
  if (world.rank() == 0) outcome.failure = failure_of([&] { outcome.text = body(); });
  outcome = broadcast_object(world, outcome, 0);
  raise(outcome.failure);
  return outcome.text;
}

}  // namespace trireme
