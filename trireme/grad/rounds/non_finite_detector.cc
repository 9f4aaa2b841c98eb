// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/non_finite_detector.h"

#include "trireme/tensor/finite.h"

namespace trireme {

NonFiniteDetector::NonFiniteDetector() : first_(std::make_shared<double>(0)) {}

CommHook NonFiniteDetector::around(CommHook inner) {
  return [first = first_, inner = std::move(inner)](Group& g, GradBucket& bucket, ReduceOp op) {
    if (bucket.index == 0) *first = 0;
    for (const GradBucketPart& part : *bucket.parts) {
      if (*first != 0) break;
      if (!part.finite.value_or(true) || (!part.finite && !all_finite(part.gradient)))
        *first = static_cast<double>(part.parameter + 1);
    }
    return inner ? inner(g, bucket, op) : g.all_reduce(bucket.buffer, op);
  };
}

void NonFiniteDetector::attach(RoundRecord& record) {
  fact_ = record.add([first = first_] { return *first; });
}

NonFiniteDetector::Found NonFiniteDetector::found(const RoundRecord& record) const {
  return first_non_finite(record, fact_);
}

}  // namespace trireme
