// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/plan/tuning.h"

namespace trireme {
class Store;
namespace detail {

class Backend;

/// Whether a table may choose this algorithm for a group of this backend: bits never depend on what
/// a clock has measured, so only those that give what the backend's own all_reduce gives.
TRIREME_API bool may_serve(Algorithm algorithm, const std::string& backend,
                           const std::vector<int>& hosts);

/// A backend whose all_reduce goes by the algorithm that was the fastest at its size when `table`
/// was measured, of those that may_serve(). "direct" in the table is the backend's own. hosts[r]:
/// where rank r runs.
/// Calls complete in issue order among themselves; they move forward where this rank waits, asks or
/// calls progress().
std::shared_ptr<Backend> tuned_backend(std::shared_ptr<Backend> inner, const TuningTable& table,
                                       std::vector<int> hosts);

/// tuned_backend() by the table that rank 0's host has for this backend (trireme bench --tune), or
/// `inner` itself where it has none or where its own algorithm always won. Every rank calls it.
/// UsageError, on every rank, for a table that cannot be read.
std::shared_ptr<Backend> tuned_by_cache(std::shared_ptr<Backend> inner,
                                        const std::shared_ptr<Store>& store);

}  // namespace detail
}  // namespace trireme
