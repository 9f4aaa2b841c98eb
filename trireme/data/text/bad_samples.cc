// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/bad_samples.h"

#include "trireme/base/check.h"

namespace trireme {

void BadSamples::found(const std::string& what) {
  constexpr size_t kShown = 8;
  if (then_ == OnBadSample::stop)
    fail<Corrupt>("{}; mend the file, or leave such samples out (OnBadSample::skip)", what);
  ++count_;
  if (first_.size() < kShown) first_.push_back(what);
}

}  // namespace trireme
