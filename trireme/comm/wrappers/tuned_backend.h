// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/plan/tuning.h"

namespace trireme {
class Store;
namespace detail {

class Backend;

/// Whether a table may choose this algorithm for a group of this backend. Bits must not depend on
/// measured times, so only algorithms with the same result as the backend's own all_reduce are
/// allowed.
TRIREME_API bool may_serve(Algorithm algorithm, const std::string& backend,
                           const std::vector<int>& hosts);

/// A backend whose all_reduce uses, among the algorithms that may_serve(), the one that was fastest
/// at its size when `table` was measured; "direct" in the table means the backend's own. hosts[r]
/// is the host of rank r. Calls complete in issue order among themselves; they make progress while
/// this rank waits, polls or calls progress().
std::shared_ptr<Backend> tuned_backend(std::shared_ptr<Backend> inner, const TuningTable& table,
                                       std::vector<int> hosts);

/// Applies tuned_backend() with the table that rank 0's host has for this backend (trireme bench
/// --tune), or returns `inner` if there is none or its own algorithm always won. Every rank must
/// call it. Throws UsageError on every rank if the table cannot be read.
std::shared_ptr<Backend> tuned_by_cache(std::shared_ptr<Backend> inner,
                                        const std::shared_ptr<Store>& store);

}  // namespace detail
}  // namespace trireme
