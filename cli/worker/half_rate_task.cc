// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/worker/tasks.h"
#include "trireme/base/error.h"
#include "trireme/layers/half_products.h"

namespace trireme {

int half_rate_task(const Words&) {
  at::set_num_threads(1);
  const ProductRates rates = measure_product_rates(1024, 0.25);
  const nlohmann::ordered_json text{{"float32", rates.float32}, {"bfloat16", rates.bfloat16}};
  std::puts(text.dump().c_str());
  return std::fflush(stdout) == 0 ? kExitDone : kExitFailed;
}

}  // namespace trireme
