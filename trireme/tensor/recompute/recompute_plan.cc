// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/recompute/recompute_plan.h"

#include <algorithm>
#include <limits>

#include "trireme/base/check.h"

namespace trireme {
namespace {
constexpr int64_t kImpossible = std::numeric_limits<int64_t>::max();
}

int64_t peak_bytes(const ActivationBytes& bytes, const std::vector<bool>& recompute) {
  int64_t alive = bytes.before, peak = 0;
  for (size_t i = 0; i < bytes.blocks.size(); ++i) {
    const BlockBytes& b = bytes.blocks[i];
    if (recompute[i]) peak = std::max(peak, alive + b.kept);
    alive += recompute[i] ? b.recomputed : b.kept;
  }
  return std::max(peak, alive + bytes.after);
}

// least[i][c]: the fewest bytes that the first i blocks can leave alive with c of them recomputed
// and no peak inside of them above the budget. Fewer bytes are never worse for what follows, so the
// least is all that has to be known.
RecomputePlan plan_recompute(const ActivationBytes& bytes, int64_t budget) {
  const size_t n = bytes.blocks.size();
  check<UsageError>(bytes.before >= 0 && bytes.after >= 0, "plan_recompute: negative bytes");
  for (const BlockBytes& b : bytes.blocks)
    check<UsageError>(b.recomputed >= 0 && b.kept >= b.recomputed,
                      "plan_recompute: a block of {} bytes, {} when recomputed", b.kept,
                      b.recomputed);
  std::vector<std::vector<int64_t>> least(n + 1, std::vector<int64_t>(n + 1, kImpossible));
  least[0][0] = bytes.before;
  // With the i-th block recomputed as the c-th, or kImpossible.
  auto with = [&](size_t i, size_t c) {
    if (c == 0 || least[i][c - 1] == kImpossible) return kImpossible;
    return least[i][c - 1] + bytes.blocks[i].kept <= budget
               ? least[i][c - 1] + bytes.blocks[i].recomputed
               : kImpossible;
  };
  for (size_t i = 0; i < n; ++i)
    for (size_t c = 0; c <= i + 1; ++c) {
      const int64_t kept =
          least[i][c] == kImpossible ? kImpossible : least[i][c] + bytes.blocks[i].kept;
      least[i + 1][c] = std::min(kept, with(i, c));
    }

  RecomputePlan plan;
  plan.recompute.assign(n, true);
  for (size_t c = 0; c <= n && !plan.fits; ++c) {
    if (least[n][c] == kImpossible || least[n][c] + bytes.after > budget) continue;
    plan.fits = true;
    for (size_t i = n, left = c; i-- > 0;) {
      plan.recompute[i] = with(i, left) == least[i + 1][left] && left > 0;
      if (plan.recompute[i]) --left;
    }
  }
  plan.blocks = std::count(plan.recompute.begin(), plan.recompute.end(), true);
  plan.peak = peak_bytes(bytes, plan.recompute);
  return plan;
}

std::vector<bool> every_kth(int64_t blocks, int64_t k) {
  check<UsageError>(k >= 0, "recompute: every {}-th block: give 0 (none) or k (every k-th)", k);
  std::vector<bool> recompute(static_cast<size_t>(blocks));
  if (k > 0)
    for (int64_t i = k - 1; i < blocks; i += k) recompute[static_cast<size_t>(i)] = true;
  return recompute;
}

}  // namespace trireme
