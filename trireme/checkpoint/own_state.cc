// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/own_state.h"

#include "trireme/base/check.h"
#include "trireme/checkpoint/rank_failure.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/comm/objects.h"

namespace trireme {
namespace {

class Prefixing final : public ForwardingVisitor {
 public:
  Prefixing(StateVisitor& inner, const std::string& prefix)
      : ForwardingVisitor(inner), prefix_(prefix) {}
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    Slice named = slice;
    named.name = prefix_ + slice.name;
    inner_.tensor(named, std::move(local));
  }
  void rank_tensor(const std::string& name, int rank, int ranks, RankStateRule rule,
                   at::Tensor local) override {
    inner_.rank_tensor(prefix_ + name, rank, ranks, rule, std::move(local));
  }
  void value(const std::string& name, int64_t& v) override { inner_.value(prefix_ + name, v); }
  void value(const std::string& name, double& v) override { inner_.value(prefix_ + name, v); }
  void value(const std::string& name, std::string& v) override { inner_.value(prefix_ + name, v); }
  void constant(const std::string& name, const std::string& v) override {
    inner_.constant(prefix_ + name, v);
  }
  void copy_of_rank_0(const std::string& name, at::Tensor whole) override {
    inner_.copy_of_rank_0(prefix_ + name, std::move(whole));
  }

 private:
  const std::string& prefix_;
};

template <class T>
StateWalk value_walk(std::string name, T& value) {
  return [name = std::move(name), &value](StateVisitor& v) { v.value(name, value); };
}

// What rank 0 found out.
struct StepFound {
  RankFailure failure;
  bool found = false;
  TRIREME_FIELDS(failure, found)
};

}  // namespace

StateWalk all_of(std::vector<StateWalk> walks) {
  for (const StateWalk& walk : walks)
    check<UsageError>(static_cast<bool>(walk), "all_of: a walk is empty");
  return [walks = std::move(walks)](StateVisitor& v) {
    for (const StateWalk& walk : walks) walk(v);
  };
}

StateWalk named(std::string name, StateWalk walk) {
  check<UsageError>(!name.empty() && walk, "named: the name or the walk is empty");
  return [prefix = std::move(name) + ".", walk = std::move(walk)](StateVisitor& v) {
    Prefixing prefixing(v, prefix);
    walk(prefixing);
  };
}

StateWalk state_of(std::string name, int64_t& value) { return value_walk(std::move(name), value); }
StateWalk state_of(std::string name, double& value) { return value_walk(std::move(name), value); }
StateWalk state_of(std::string name, std::string& value) {
  return value_walk(std::move(name), value);
}

StateWalk state_of(std::string name, at::Tensor& value) {
  return [name = std::move(name), &value](StateVisitor& v) {
    check<UsageError>(value.defined(), "state_of: the tensor '{}' is undefined", name);
    show_contiguous(value.detach(), [&](at::Tensor t) { v.copy_of_rank_0(name, std::move(t)); });
  };
}

std::string save(const std::string& run_dir, int64_t step, const StateWalk& walk,
                 const Group& group, ShardedSaveOptions options, CallSite site) {
  if (!group) {
    SaveOptions alone;
    alone.keep = options.keep;
    return save_step(run_dir, step, walk, alone);
  }
  Group ranks = group;
  ranks.barrier(site);  // names the line, where another rank does something else
  return save_sharded_step(run_dir, step, walk, group, options);
}

CheckpointInfo load(const std::string& path, const StateWalk& walk, const Group& group,
                    LoadOptions options) {
  if (group) options.group = group;
  return load_step(path, walk, options);
}

std::optional<CheckpointInfo> load_if_any(const std::string& run_dir, const StateWalk& walk,
                                          const Group& group, LoadOptions options) {
  StepFound answer;
  if (!group || group.rank() == 0)
    answer.failure = failure_of([&] { answer.found = holds_checkpoint(run_dir); });
  if (group && group.size() > 1) {
    Group ranks = group;
    answer = broadcast_object(ranks, answer, 0);
  }
  raise(answer.failure);
  if (!answer.found) return {};
  return load(run_dir, walk, group, std::move(options));
}

}  // namespace trireme
