// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/generations.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/log.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/start/generation_group.h"
#include "trireme/comm/start/run.h"
#include "trireme/config/sections/elastic.h"
#include "trireme/train/in_place/ranks_that_train.h"
#include "trireme/train/rank/group_options.h"

namespace trireme {
RankGenerations::RankGenerations(const Config& config, std::function<int()> stop_asked)
    : config_(config), stop_asked_(std::move(stop_asked)) {
  const auto elastic = config.section<ElasticSection>();
  if (!elastic.in_process()) return;
  member_ = GenerationMember::of_process(init_options(config).timeout);
  check<UsageError>(member_ != nullptr,
                    "elastic.mode is in_process ({}), and nobody would start another rank in the "
                    "place of one that is lost: that takes the launcher of `trireme train` or "
                    "`trireme run` with --max-restarts",
                    config.origin("elastic.mode"));
  in_place_.emplace(InPlace::Options{.first_ranks = member_->first_ones(),
                                     .scaled = elastic.batch == "scale",
                                     .is_over = [this] { return member_->is_over(); },
                                     .is_able = [this] { member_->say_able(); }});
}

int RankGenerations::active() const {
  return ranks_that_train(config_, member_->first_ones(),
                          static_cast<int>(member_->generation().members.size()));
}

bool RankGenerations::wait_for_turn(End& end) {
  while (member_->rank() < 0 || member_->rank() >= active()) {
    if (member_->rank() >= 0)
      log_info("rank {} of {} waits as a spare: {} train", member_->rank(),
               member_->generation().members.size(), active());
    const GenerationMember::Next next = member_->next(Deadline::never());
    if (!next.came) {
      end.exit_code = next.exit_code;
      return false;
    }
  }
  in_place_->goes_on(member_->generation().number);
  return true;
}

RankGenerations::End RankGenerations::run(
    const Body& body, const std::function<void(Group&, const std::exception&)>& failed) {
  End end;
  const InitOptions options = init_options(config_);
  bool first = true;
  if (member_ && member_->came_later()) {
    member_->say_ready();
    first = false;
    if (!wait_for_turn(end)) return end;
  }
  while (true) {
    try {
      if (!first) mark_progress(Activity::build);
      world_ =
          first ? init_process_group(options) : group_of_generation(options, *member_, active());
      last_rank_ = world_.rank();
      set_thread_rank(last_rank_);  // under mpirun and srun RANK does not give it
      end.result = body(world_, in_place_ ? &*in_place_ : nullptr);
      return end;
    } catch (const GroupIsOver& over) {
      log_debug("{}", over.what());
    } catch (const std::exception& error) {
      // Who leaves wakes those that wait in a call for it.
      if (world_) failed(world_, error);
      if (!member_ || !ends_group(error)) throw;
      log_debug("rank {}: {}", last_rank_, error.what());
      world_ = {};
      const auto next =
          member_->next(Deadline::after(kRegroupPatience), [&] { return stop_asked_() != 0; });
      end.exit_code = next.exit_code;
      if (end.exit_code) return end;
      if (!next.came) throw;
      first = false;
      if (!wait_for_turn(end)) return end;
      continue;
    }
    world_ = {};
    first = false;
    const auto next = member_->next(Deadline::after(kRegroupPatience));
    end.exit_code = next.exit_code;
    if (end.exit_code) return end;
    check<Timeout>(next.came, "no group came in place of the one that was left");
    if (!wait_for_turn(end)) return end;
  }
}

void RankGenerations::say_over(int exit_code) {
  if (member_) member_->say_over(exit_code);
}

}  // namespace trireme
