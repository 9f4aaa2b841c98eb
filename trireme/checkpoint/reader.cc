// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/reader.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/load/compare.h"
#include "trireme/checkpoint/load/direct_blocks.h"
#include "trireme/checkpoint/load/fill.h"
#include "trireme/checkpoint/load/opened.h"
#include "trireme/checkpoint/load/until_failure.h"
#include "trireme/checkpoint/load/verify.h"
#include "trireme/checkpoint/rank_failure.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/comm/objects.h"
#include "trireme/interop/weights/bert_names.h"
#include "trireme/interop/weights/gpt2_names.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// What to use instead of a damaged checkpoint.
std::string advice(const std::string& folder) {
  const int64_t step = step_of_folder(folder);
  if (step < 0) return "";
  const fs::path parent = fs::path(folder).parent_path();
  const std::string run_dir = parent.empty() ? "." : parent.string();
  std::vector<int64_t> steps;
  try {
    steps = list_steps(run_dir);
  } catch (const ResourceError& e) {
    return fmt::format(". Which checkpoints are before it is not known: {}", e.what());
  }
  for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
    if (*it >= step) continue;
    const std::string candidate = run_dir + "/" + step_folder_name(*it);
    try {
      verify_checkpoint(candidate);
      return fmt::format(
          ". The newest good checkpoint before it is {}: give that path to continue from it",
          candidate);
    } catch (const Error&) {
    }
  }
  return fmt::format(". There is no good checkpoint before it in {}", run_dir);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

CheckpointInfo info_of(const OpenedStep& opened, std::vector<std::string> notes = {}) {
  const CheckpointIndex& index = opened.index();
  for (std::string& note : opened.notes()) notes.push_back(std::move(note));
  return {opened.folder(), index.step, index.world, index.layout, std::move(notes)};
}

// Rank → all, after its first walk.
struct Compared {
  RankFailure failure;
  std::vector<bool> known;
  TRIREME_FIELDS(failure, known)
};

// Of the names that a walk shows, what decides how a GPT-2's names are taken.
class ModelShown : public StateVisitor {
 public:
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor) override {
    blocks = blocks || slice.name.starts_with("model.blocks.");
    head = head || slice.name == "model.head.weight";
    bert = bert || slice.name.starts_with("model.bert.");
  }
  void value(const std::string&, int64_t&) override {}
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}
  void constant(const std::string&, const std::string&) override {}
  Purpose purpose() const override { return Purpose::compare; }

  bool blocks = false, head = false, bert = false;
};

// Rank → all: a rank of ZeRO shows a part of the names.
struct ShownByRank {
  RankFailure failure;
  bool blocks = false, head = false, bert = false;
  TRIREME_FIELDS(failure, blocks, head, bert)
};

// One load, by one process or by all ranks of a group.
class Load {
 public:
  Load(std::string path, const LoadOptions& options) : path_(std::move(path)), options_(options) {}
  Load(std::shared_ptr<const HeldStep> held, const LoadOptions& options)
      : path_(held->name()), options_(options), held_(std::move(held)) {}

  CheckpointInfo run(const StateWalk& walk) {
    agree(failure_of([&] { find(); }));
    const ShownByRank shown = options_.python_files ? shown_by_all(walk) : ShownByRank();
    std::optional<OpenedStep> opened;
    std::optional<Comparer> comparer;
    Compared mine;
    mine.failure = with_advice([&] {
      open(opened, shown);
      for (const auto& [from, to] : options_.renamed) opened->rename(from, to);
      comparer.emplace(*opened, options_);
      walk(*comparer);
      comparer->finish();
      mine.known = comparer->known();
    });
    const std::vector<Compared> all = of_all(mine);
    raise_first(all, mine.failure);
    refuse_unknown(*comparer, all);
    fill(*opened, comparer->plan, walk);
    return info_of(*opened, std::move(comparer->plan.notes));
  }

 private:
  // The ranks of a host share the reading.
  void fill(OpenedStep& opened, const LoadPlan& plan, const StateWalk& walk) {
    DirectBlocks direct;
    bool check_first = true;
    if (opened.is_foreign()) {
      agree(with_advice([&] { verify_foreign(opened, plan); }));
    } else {
      std::vector<BlocksWanted> all{blocks_wanted(opened, plan, together())};
      all[0].check_first = options_.check_first;
      size_t rank = 0;
      if (together()) {
        Group group = *options_.group;
        all = all_gather_object(group, all[0]);
        rank = static_cast<size_t>(group.rank());
      }
      // Who has something to lose decides.
      check_first = std::any_of(all.begin(), all.end(),
                                [](const BlocksWanted& wanted) { return wanted.check_first; });
      agree(with_advice([&] {
        open_files_of(opened, all[rank].ranges());
        const BlockShare share = share_of(all, rank);
        if (!check_first) direct = DirectBlocks(opened, plan, share);
        verify_blocks(opened, without(share.own, direct.blocks()));
      }));
      const std::optional<Group> readers = check_first ? std::nullopt : reading_together(direct);
      agree(failure_of([&] { direct.begin(readers); }));
    }
    bool passed_over = false;
    const auto body = [&] {
      c10::AutoGradMode no_grad(false);
      Filler filler(opened, plan, direct);
      UntilFailure until(filler, [&](size_t tensors) { direct.pass_over(tensors); });
      try {
        until.run(walk, [&] { filler.finish(); });
      } catch (const WindowNotRead&) {  // who was to read it says why
        passed_over = true;
      }
    };
    RankFailure failure = check_first ? failure_of(body) : with_advice(body);
    if (failure) failure.text += ". The state in memory may be part old and part new now";
    agree(failure);
    check<Error>(!passed_over, "{}: another rank could not read it, and has not said why", folder_);
  }

  bool together() const { return options_.group && options_.group->size() > 1; }

  // The ranks, if each takes the same windows, and what one reads comes to the others at the speed
  // of memory.
  std::optional<Group> reading_together(const DirectBlocks& direct) const {
    if (!together() || options_.group->backend() != "local") return std::nullopt;
    Group group = *options_.group;
    const std::string mine = direct.windows_of_all();
    const std::vector<std::string> all = all_gather_object(group, mine);
    const bool alike =
        std::all_of(all.begin(), all.end(), [&](const auto& w) { return w == mine; });
    return alike ? std::optional(group) : std::nullopt;
  }

  // Rank 0 chooses: `latest` may change while others look.
  void find() {
    if (together() && options_.group->rank() != 0) return;
    folder_ = without_slashes(path_);
    if (held_) return;
    check<UsageError>(!options_.python_files || path_kind(folder_) != PathKind::nothing,
                      "there is nothing at {}: name a run folder, a step folder, or a file or "
                      "folder of weights",
                      folder_);
    if (!is_foreign()) folder_ = without_slashes(find_checkpoint(folder_));
  }

  bool is_foreign() const {
    return !held_ && options_.python_files && interop::is_weight_source(folder_);
  }

  ShownByRank shown_by_all(const StateWalk& walk) const {
    ShownByRank mine;
    mine.failure = failure_of([&] {
      ModelShown names;
      walk(names);
      mine.blocks = names.blocks, mine.head = names.head, mine.bert = names.bert;
    });
    const std::vector<ShownByRank> all = of_all(mine);
    raise_first(all, mine.failure);
    for (const ShownByRank& rank : all) {
      mine.blocks = mine.blocks || rank.blocks;
      mine.head = mine.head || rank.head;
      mine.bert = mine.bert || rank.bert;
    }
    return mine;
  }

  void open(std::optional<OpenedStep>& opened, const ShownByRank& shown) const {
    if (held_) {
      opened.emplace(held_, options_.prefix);
      return;
    }
    if (!is_foreign()) {
      opened.emplace(folder_, options_.prefix);
      return;
    }
    interop::WeightSource source = interop::open_weights(folder_);
    if (shown.blocks && interop::has_gpt2_names(source)) {
      interop::ArrayReader reader;
      interop::take_gpt2_names(source,
                               shown.head ? interop::TiedHead::copied : interop::TiedHead::dropped,
                               [&](const auto& a, const auto& b) { return reader.same(a, b); });
    }
    if (shown.bert && interop::has_bert_names(source)) interop::take_bert_names(source);
    opened.emplace(std::move(source), options_.prefix);
  }

  template <class Body>
  RankFailure with_advice(const Body& body) const {
    RankFailure failure = failure_of(body);
    if (failure.kind != RankFailure::corrupt) return failure;
    const std::string more = advice(folder_);
    failure.text += failure.text.ends_with('?') && !more.empty() ? more.substr(1) : more;
    return failure;
  }

  template <class Answer>
  std::vector<Answer> of_all(const Answer& mine) const {
    if (!together()) return {mine};
    Group group = *options_.group;
    return all_gather_object(group, mine);
  }

  // One rank's failure is everybody's.
  void agree(const RankFailure& mine) {
    if (!together()) return raise(mine);
    Compared answer;
    answer.failure = mine;
    raise_first(of_all(answer), mine);
    Group group = *options_.group;
    folder_ = broadcast_object(group, folder_, 0);
  }

  template <class Answer>
  void raise_first(const std::vector<Answer>& all, const RankFailure& mine) const {
    raise(mine);
    for (size_t r = 0; r < all.size(); ++r)
      if (all[r].failure)
        raise({all[r].failure.kind, fmt::format("rank {}: {}", r, all[r].failure.text)});
  }

  // What no rank's walk knows.
  void refuse_unknown(const Comparer& comparer, const std::vector<Compared>& all) const {
    std::vector<bool> known = all[0].known;
    for (const Compared& rank : all) {
      check<Corrupt>(rank.known.size() == known.size(),
                     "{}: the ranks do not see the same step folder", folder_);
      for (size_t i = 0; i < known.size(); ++i)
        if (rank.known[i]) known[i] = true;
    }
    if (!options_.partial || together()) comparer.refuse_unknown(known);
  }

  const std::string path_;
  const LoadOptions& options_;
  const std::shared_ptr<const HeldStep> held_;  // null: from files
  std::string folder_;
};

}  // namespace

CheckpointInfo load_step(const std::string& path, const StateWalk& walk,
                         const LoadOptions& options) {
  Span span("checkpoint", "load");
  return Load(path, options).run(walk);
}

CheckpointInfo load_snapshot(std::shared_ptr<HeldStep> step, const StateWalk& walk,
                             const LoadOptions& options) {
  check<UsageError>(step != nullptr, "load_snapshot: there is no step");
  Span span("checkpoint", "load");
  step->sum_blocks();
  return Load(std::move(step), options).run(walk);
}

CheckpointInfo verify_checkpoint(const std::string& folder) {
  OpenedStep opened(without_slashes(folder), "");
  verify_all_blocks(opened);
  return info_of(opened);
}

}  // namespace trireme
