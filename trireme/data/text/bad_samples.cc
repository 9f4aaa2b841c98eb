// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/bad_samples.h"

#include "trireme/base/check.h"

namespace trireme {

void BadSamples::found(const std::string& what) {
  if (then_ == OnBadSample::stop)
    fail<Corrupt>("{}; mend the file, or leave such samples out (OnBadSample::skip)", what);
  ++count_;
  if (first_.size() < kShown) first_.push_back(what);
}

void BadSamples::add(int64_t count, const std::vector<std::string>& first) {
  count_ += count;
  for (const std::string& what : first)
    if (first_.size() < kShown) first_.push_back(what);
}

}  // namespace trireme
