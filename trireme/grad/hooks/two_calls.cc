// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/two_calls.h"

#include <memory>

#include "trireme/grad/hooks/stateful_hook.h"

namespace trireme {
namespace {

class Two final : public BucketReduction {
 public:
  Two(std::pair<Work, SecondCall> calls)
      : work_(std::move(calls.first)), second_(std::move(calls.second)) {}
  bool advance() override {
    work_.wait();
    if (!second_) return false;
    work_ = second_();
    second_ = {};
    return true;
  }

 private:
  Work work_;
  SecondCall second_;
};

class TwoCalls final : public StatefulHook {
 public:
  explicit TwoCalls(FirstCall first) : first_(std::move(first)) {}
  void state(StateVisitor&) override {}

 private:
  std::unique_ptr<BucketReduction> start(Group& group, GradBucket& bucket, ReduceOp op) override {
    return std::make_unique<Two>(first_(group, bucket, op));
  }
  FirstCall first_;
};

}  // namespace

CommHook two_calls(FirstCall first) { return std::make_shared<TwoCalls>(std::move(first))->hook(); }

}  // namespace trireme
