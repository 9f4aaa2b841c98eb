// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/join.h"

#include "trireme/base/check.h"
#include "trireme/grad/ddp_impl.h"
#include "trireme/grad/module_sync.h"

namespace trireme {

class Join {
 public:
  Join(const std::vector<DistributedDataParallel*>& objects, bool throws) : objects_(objects) {
    for (auto* d : objects_)
      check<UsageError>(!d->impl_->leaves,
                        "join(): with DdpOptions::leaves every rank has the same number of leaves; "
                        "leave the tail of the data out (GlobalBatch does)");
    for (auto* d : objects_) d->impl_->throw_on_early_termination = throws;
  }
  ~Join() {
    for (auto* d : objects_) d->impl_->throw_on_early_termination = false;
  }
  Join(const Join&) = delete;

  /// False: nobody had a batch.
  bool shadow() {
    bool active = false;
    for (auto* d : objects_) active = d->impl_->shadow_round() || active;
    return active;
  }
  void take_last_weights() {
    for (auto* d : objects_) {
      auto& i = *d->impl_;
      broadcast_tensors(i.group, i.tensors.parameters, i.trained_last);
      broadcast_tensors(i.group, i.tensors.buffers, i.trained_last);
    }
  }

 private:
  const std::vector<DistributedDataParallel*>& objects_;
};

void join(const std::vector<DistributedDataParallel*>& objects, const std::function<void()>& loop,
          JoinOptions options) {
  check<UsageError>(!objects.empty(), "join() of no DistributedDataParallel");
  Join join(objects, options.throw_on_early_termination);
  loop();
  while (join.shadow())
    if (options.shadow_step) options.shadow_step();
  if (!options.shadow_step) join.take_last_weights();
}

}  // namespace trireme
