// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank_zero.h"

#include "trireme/base/check.h"
#include "trireme/comm/objects.h"

namespace trireme {
namespace {

struct Outcome {
  std::string failed;  // the kind of an error; "": none
  std::string text;    // of the error, or what was returned
  TRIREME_FIELDS(failed, text)
};

Outcome outcome_of(const std::function<std::string()>& body) {
  try {
    return {"", body()};
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  } catch (const std::exception& e) {
    return {"Error", brief(e)};
  }
}

}  // namespace

std::string from_rank_0(Group world, const std::function<std::string()>& body) {
  if (world.size() == 1) return body();
  const Outcome outcome =
      broadcast_object(world, world.rank() == 0 ? outcome_of(body) : Outcome{}, 0);
  if (outcome.failed == "UsageError") throw UsageError(outcome.text);
  if (outcome.failed == "ResourceError") throw ResourceError(outcome.text);
  if (outcome.failed == "Corrupt") throw Corrupt(outcome.text);
  if (!outcome.failed.empty()) throw Error(outcome.text);
  return outcome.text;
}

}  // namespace trireme
