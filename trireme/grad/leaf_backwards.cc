// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/leaf_backwards.h"

#include "trireme/base/check.h"
#include "trireme/grad/ddp.h"
#include "trireme/tensor/random/stock_random.h"

namespace trireme {
namespace {

bool power_of_two(int n) { return n > 0 && (n & (n - 1)) == 0; }

}  // namespace

void LeafBackwards::open() {
  if (done_ == 0) {
    round_.set_leaves(leaves_);
    round_.open();
  }
  round_.begin_leaf(done_);
  in_backward_ = true;
}

void LeafBackwards::close() {
  in_backward_ = false;
  if (++done_ < leaves_) return;
  done_ = 0;
  round_.close();
}

void LeafBackwards::reset() {
  in_backward_ = false;
  done_ = 0;
  round_.reset();
}

void check_leaves(const Group& group, const DdpOptions& o, const DdpTensors& t) {
  if (o.leaves == 0) return;
  check<UsageError>(power_of_two(o.leaves) && power_of_two(group.size()),
                    "DdpOptions::leaves: {} leaves on each of {} ranks; both must be powers of two",
                    o.leaves, group.size());
  check<UsageError>(group.size() == 1 || group.backend() == "local",
                    "DdpOptions::leaves: the {} backend adds in an order of its own; ranks of one "
                    "host on the local backend add along the tree",
                    group.backend());
  for (const auto& [name, p] : t.parameters)
    check<UsageError>(p.scalar_type() == at::kFloat || p.scalar_type() == at::kDouble,
                      "DdpOptions::leaves: '{}' is {}, and sums of its gradients would depend on "
                      "the number of ranks; keep parameters in float32 and use AutocastScope for "
                      "speed",
                      name, c10::toString(p.scalar_type()));
  check<UsageError>(t.buffers.empty(),
                    "DdpOptions::leaves: the buffer '{}' (running statistics, say) depends on how "
                    "samples are split over ranks; take a layer without it, such as LayerNorm or "
                    "GroupNorm",
                    t.buffers.empty() ? "" : t.buffers.front().first);
  const auto refuse = [](bool given, const char* option) {
    check<UsageError>(!given, "DdpOptions::leaves does not go with DdpOptions::{}: leave one out",
                      option);
  };
  refuse(static_cast<bool>(o.hook), "hook");
  refuse(o.static_graph, "static_graph");
  refuse(static_cast<bool>(o.before_reducing), "before_reducing");
  refuse(!o.delayed.empty(), "delayed");
  refuse(!o.sparse.empty(), "sparse");
  check<UsageError>(
      t.sparse.empty(),
      "DdpOptions::leaves: '{}' has sparse gradients, which the tree of sums does not "
      "take; make it dense (sparse(false))",
      t.sparse.empty() ? "" : t.sparse.front());
}

void check_leaves(const DdpOptions& o, const torch::nn::Module& module) {
  if (o.leaves == 0) return;
  const auto drawn = find_stock_random(module);
  check<UsageError>(!drawn,
                    "DdpOptions::leaves: '{}' is a {}, which draws from LibTorch's generator: what "
                    "it draws depends on how samples are split over ranks. Take {}",
                    drawn ? drawn->path : "", drawn ? drawn->type : "",
                    drawn ? drawn->instead : "");
}

void check_leaves(const DdpOptions& o, const torch::jit::Module&) {
  check<UsageError>(o.leaves == 0,
                    "DdpOptions::leaves: whether a TorchScript module draws random numbers cannot "
                    "be seen; if it draws none, hand over its parameters as a list of tensors");
}

}  // namespace trireme
