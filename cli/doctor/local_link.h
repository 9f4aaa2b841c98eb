// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/advice.h"
#include "trireme/store/store.h"

namespace trireme::doctor {

/// What the local engine does between the ranks of one host.
struct LocalFigures {
  std::string error;             // "": measured
  double barrier = 0;            // seconds
  double all_reduce = 0;         // of 8 bytes, seconds
  std::vector<LinkModel> links;  // rank 0 of the host with rank 1, 2, …
};

/// Every rank of the host calls it; figures on its rank 0. `prefix`: of the keys in the store.
LocalFigures measure_local(Store& store, const std::string& prefix, int rank, int size,
                           Duration timeout);

}  // namespace trireme::doctor
