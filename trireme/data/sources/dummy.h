// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/source.h"

namespace trireme {

struct DummyOptions {
  std::vector<int64_t> input_shape;  // of one sample; for tokens: {context}
  int64_t classes = 10;              // targets are below this; for tokens: the vocabulary
  bool tokens = false;  // input and target are [b, context] int64, target shifted by one
  uint64_t seed = 42;
  int64_t samples = int64_t{1} << 40;  // of an epoch
};

/// Random data for pure throughput: every sample id has its own values (mean 0, variance 1, or
/// tokens), and unless told otherwise no step sees a sample twice. Cheap: a sample is a copy out
/// of a pool of 4 MB that is drawn once, from a place that the id chooses; what the ids share is
/// the pool, never a whole sample.
TRIREME_API std::shared_ptr<DataSource> make_dummy(const DummyOptions& options);

}  // namespace trireme
