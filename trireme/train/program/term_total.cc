// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/term_total.h"

#include <ATen/TensorOperators.h>

#include "trireme/base/check.h"

namespace trireme {

at::Tensor total_of_terms(const LossTerms& terms, const std::vector<at::Tensor>& values,
                          const std::map<std::string, double>& factors,
                          std::map<std::string, HostScalars>& sums) {
  at::Tensor total;
  for (size_t i = 0; i < terms.size(); ++i) {
    const std::string& name = terms[i].first;
    at::Tensor value = values[i];
    check<UsageError>(
        value.defined() && value.numel() == 1,
        "Program::loss(): the term '{}' is not a scalar: return its sum over the micro-batch",
        name);
    value = value.reshape({}).to(at::kFloat);
    if (!factors.empty()) {
      const auto factor = factors.find(name);
      check<UsageError>(factor != factors.end(),
                        "Program::weights() gives no weight for the term '{}'", name);
      if (factor->second != 1) value = value * factor->second;
    }
    if (terms.size() > 1) sums[name].add(value);
    total = total.defined() ? total + value : value;
  }
  check<UsageError>(total.defined(), "Program::loss() returned no term");
  return total;
}

}  // namespace trireme
