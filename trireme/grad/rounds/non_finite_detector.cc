// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/non_finite_detector.h"

namespace trireme {

NonFiniteDetector::NonFiniteDetector() : first_(std::make_shared<FirstNonFinite>()) {}

CommHook NonFiniteDetector::around(CommHook inner) {
  return [first = first_, inner = std::move(inner)](Group& g, GradBucket& bucket, ReduceOp op) {
    if (bucket.index == 0) first->clear();
    for (const GradBucketPart& part : *bucket.parts)
      first->look(part.parameter, part.finite, part.gradient);
    return inner ? inner(g, bucket, op) : g.all_reduce(bucket.buffer, op);
  };
}

void NonFiniteDetector::attach(RoundRecord& record) {
  fact_ = record.add([first = first_] { return first->first(); });
}

NonFiniteDetector::Found NonFiniteDetector::found(const RoundRecord& record) const {
  return first_non_finite(record, fact_);
}

}  // namespace trireme
