// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/in_place/elastic.h"

#include <ATen/ops/full.h>
#include <ATen/ops/item.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/objects.h"
#include "trireme/comm/start/generation_group.h"
#include "trireme/train/in_place/ends_group.h"
#include "trireme/train/in_place/kept_state.h"

namespace trireme {

struct ElasticState::Impl {
  explicit Impl(StateWalk w) : walk(std::move(w)) {}

  struct Standing {
    int64_t commits = -1;  // -1: none
    std::vector<KeptBox> boxes;
    TRIREME_FIELDS(commits, boxes)
  };

  /// What is kept now is what a rank that is lost would have had, too.
  void keep() {
    kept.take(walk);
    standing = {commits, kept.boxes()};
    for (const auto& [name, elements] : whole_state_of(walk))
      check<UsageError>(are_whole({standing.boxes}, {{name, elements}}),
                        "elastic(): this rank holds a part of '{}', which would be lost with it. "
                        "Save checkpoints, and have all ranks start again from them",
                        name);
  }

  /// On a new group, every rank of which calls it: all get the newest commit.
  void meet(Group world) {
    const auto all = all_gather_object(world, standing);
    const auto newest = std::max_element(
        all.begin(), all.end(), [](const auto& a, const auto& b) { return a.commits < b.commits; });
    check<ResourceError>(newest->commits >= 0, "no rank that is left has committed its state");
    std::vector<std::vector<KeptBox>> boxes(all.size());
    for (size_t r = 0; r < all.size(); ++r)
      if (all[r].commits == newest->commits) boxes[r] = all[r].boxes;
    commits = newest->commits;
    if (standing.commits != commits) kept.clear();
    kept.share_values(world);
    kept.fill(walk, world, boxes_to_send(boxes));
    keep();
    world.barrier();  // until then another may need what is kept
  }

  const StateWalk walk;
  GenerationMember* member = nullptr;  // null: there is one world
  Group world;
  int64_t commits = 0;
  KeptState kept;
  Standing standing;
};

ElasticState::ElasticState(StateWalk walk) : impl_(std::make_unique<Impl>(std::move(walk))) {}
ElasticState::~ElasticState() = default;

void ElasticState::commit() {
  check<UsageError>(bool(impl_->world), "ElasticState::commit() outside of elastic()");
  if (!impl_->member) return;
  ++impl_->commits;
  impl_->keep();
  const at::Tensor over = at::full({1}, impl_->member->is_over() ? 1 : 0, at::kLong);
  impl_->world.all_reduce(over, ReduceOp::max).wait();
  if (over.item<int64_t>() != 0)
    throw GroupIsOver("the ranks leave their group: another is waiting, in which there are more");
}

bool elastic(ElasticState& state, const std::function<void(Group)>& body,
             const InitOptions& options) {
  ElasticState::Impl& s = *state.impl_;
  check<UsageError>(!s.world, "elastic() within elastic()");
  const auto member = GenerationMember::of_process(options.timeout);
  struct Leave {
    ElasticState::Impl& of;
    ~Leave() { of.world = {}, of.member = nullptr; }
  } leave{s};
  if (!member) {
    s.world = init_process_group(options);
    body(s.world);
    return true;
  }
  s.member = member.get();
  bool later = member->came_later();
  if (later) {
    member->say_ready();
    if (!member->next(Deadline::never()).came) return false;
  } else {
    s.keep();  // all begin with rank 0's
  }
  while (true) {
    bool ended = false;  // the body, and so the loop: what this rank holds then is the end of it
    try {
      s.world = later ? group_of_generation(options, *member,
                                            static_cast<int>(member->generation().members.size()))
                      : init_process_group(options);
      set_thread_rank(s.world.rank());
      if (!later && s.world.rank() != 0) s.standing = {};
      s.meet(s.world);
      member->say_able();
      body(s.world);
      ended = true;
      s.world.barrier();  // who returns is not waited for by others any more
      member->say_over(0);
      return true;
    } catch (const GroupIsOver& over) {
      log_debug("{}", over.what());
      s.world = {};
      const auto next = member->next(Deadline::after(kRegroupPatience));
      if (next.exit_code) return false;
      check<Timeout>(next.came, "no group came in place of the one that was left");
    } catch (const std::exception& error) {
      if (s.world) s.world.abort(error.what());
      if (!ends_group(error)) throw;
      log_debug("{}", error.what());
      s.world = {};
      const auto next = member->next(Deadline::after(kRegroupPatience));
      if (next.exit_code) return ended;
      if (!next.came) throw;
    }
    if (member->rank() == 0)
      log_info("{} ranks go on after commit {}", member->generation().members.size(), s.commits);
    later = true;
  }
}

}  // namespace trireme
