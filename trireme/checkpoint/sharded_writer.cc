// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/sharded_writer.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <tuple>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/rank_failure.h"
#include "trireme/checkpoint/step_files.h"
#include "trireme/checkpoint/steps/folders.h"
#include "trireme/checkpoint/steps/run_folder.h"
#include "trireme/comm/objects.h"

// Three questions of rank 0 (what do you hold? do you see the folder? what have you written?), each
// answered for all ranks at once, so that whatever fails on one of them is thrown by all, at the
// same place.
namespace trireme {
namespace {

using Failure = RankFailure;

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// IndexValue for the wire.
struct WireValue {
  std::optional<int64_t> i;
  std::optional<double> d;
  std::optional<std::string> s;
  TRIREME_FIELDS(i, d, s)

  static WireValue from(const IndexValue& v) {
    if (const auto* i = std::get_if<int64_t>(&v)) return {*i, {}, {}};
    if (const auto* d = std::get_if<double>(&v)) return {{}, *d, {}};
    return {{}, {}, std::get<std::string>(v)};
  }
  IndexValue value() const {
    if (i) return *i;
    if (d) return *d;
    check<Corrupt>(s.has_value(), "checkpoint: a rank sent a value of no type");
    return *s;
  }
};

struct WireTensor {
  std::string name, dtype;
  std::vector<int64_t> shape, offsets, lengths, flat;  // flat: {} or {begin, count}
  TRIREME_FIELDS(name, dtype, shape, offsets, lengths, flat)

  static WireTensor from(const HeldTensor& t) {
    WireTensor w{t.slice.name, t.dtype, t.slice.global_shape, t.slice.offsets, t.slice.lengths, {}};
    if (t.slice.flat) w.flat = {t.slice.flat->begin, t.slice.flat->count};
    return w;
  }
  HeldTensor held() const {
    HeldTensor t{{name, shape, offsets, lengths}, dtype};
    if (flat.size() == 2) t.slice.flat = FlatRange{flat[0], flat[1]};
    return t;
  }
};

// Rank → rank 0: what it holds.
struct Holding {
  Failure failure;
  std::string host, layout;
  int64_t step = 0, keep = 0;
  std::vector<WireTensor> tensors;
  std::map<std::string, WireValue> values;
  TRIREME_FIELDS(failure, host, layout, step, keep, tensors, values)

  void take(const HeldState& held) {
    for (const auto& t : held.tensors) tensors.push_back(WireTensor::from(t));
    for (const auto& [name, v] : held.values) values[name] = WireValue::from(v);
  }
  HeldState held() const {
    HeldState held;
    for (const auto& t : tensors) held.tensors.push_back(t.held());
    for (const auto& [name, v] : values) held.values[name] = v.value();
    return held;
  }
};

// Rank 0 → all: a folder that rank 0, there, has made in the run folder.
struct Begun {
  Failure failure;
  std::string temporary, host;
  TRIREME_FIELDS(failure, temporary, host)
};

// Rank → rank 0.
struct Seen {
  bool sees = false;
  std::string path;  // where it looked
  TRIREME_FIELDS(sees, path)
};

// Rank 0 → rank: what it writes where.
struct Orders {
  Failure failure;
  std::vector<std::tuple<std::string, std::string>> files;  // name, head
  std::vector<std::array<int64_t, 5>> writes;
  TRIREME_FIELDS(failure, files, writes)

  void take(const WriteOrders& o) {
    for (const PlannedFile& f : o.files) files.emplace_back(f.name, f.head);
    for (const PlannedWrite& w : o.writes)
      writes.push_back(
          {static_cast<int64_t>(w.tensor), w.from, static_cast<int64_t>(w.file), w.at, w.bytes});
  }
  WriteOrders orders(const Collector& state) const {
    WriteOrders o;
    for (const auto& [name, head] : files) o.files.push_back({name, head, 0, 0});
    for (const auto& [tensor, from, file, at, bytes] : writes) {
      check<Corrupt>(tensor >= 0 && file >= 0 && from >= 0 && at >= 0 && bytes >= 0 &&
                         static_cast<size_t>(tensor) < state.tensors.size() &&
                         static_cast<size_t>(file) < files.size() &&
                         static_cast<uint64_t>(from) + static_cast<uint64_t>(bytes) <=
                             state.tensors[static_cast<size_t>(tensor)].nbytes(),
                     "checkpoint: rank 0 sent orders that do not fit the tensors of this rank");
      o.writes.push_back({static_cast<size_t>(tensor), from, static_cast<size_t>(file), at, bytes});
    }
    return o;
  }
};

// Rank → rank 0: what it has written.
struct Written {
  Failure failure;
  std::vector<uint64_t> checksums;
  TRIREME_FIELDS(failure, checksums)
};

// The first rank's, with its name.
template <class Answer>
Failure first_failure(const std::vector<Answer>& answers, const std::vector<Holding>& holdings) {
  for (size_t r = 0; r < answers.size(); ++r)
    if (answers[r].failure)
      return {answers[r].failure.kind,
              fmt::format("rank {} on {}: {}", r, holdings[r].host, answers[r].failure.text)};
  return {};
}

void check_call(int64_t step, const ShardedSaveOptions& options) {
  check<UsageError>(step >= 0, "save_sharded_step: step {} is negative", step);
  check<UsageError>(options.keep >= 1,
                    "save_sharded_step: keep is {}: at least the new checkpoint must stay",
                    options.keep);
  check<UsageError>(is_layout_text(options.layout),
                    "save_sharded_step: '{}' is not the text of a layout: 1 to 200 printable ASCII "
                    "characters",
                    options.layout);
}

class Saver {
 public:
  Saver(const std::string& run_dir, int64_t step, Group group, const ShardedSaveOptions& options)
      : run_dir_(run_dir), step_(step), group_(std::move(group)), options_(options) {}

  void save(const StateWalk& walk) {
    Holding holding;
    holding.failure = failure_of([&] {
      check_call(step_, options_);
      walk(state_);
      holding.take(state_.held);
    });
    holding.host = host_name();
    holding.layout = options_.layout, holding.step = step_, holding.keep = options_.keep;
    holdings_ = gather_object(group_, holding, 0);

    const Begun begun = broadcast_object(group_, group_.rank() == 0 ? begin() : Begun{}, 0);
    raise(begun.failure);
    Seen seen;
    seen.path = run_dir_ + "/" + begun.temporary;
    std::error_code error;
    seen.sees = std::filesystem::is_directory(seen.path, error);
    const auto all_seen = gather_object(group_, seen, 0);

    const Orders orders =
        scatter_object(group_, group_.rank() == 0 ? decide(all_seen) : std::vector<Orders>{}, 0);
    raise(orders.failure);

    Written written;
    written.failure = failure_of([&] {
      const std::string folder = run_dir_ + "/" + begun.temporary;
      try {
        written.checksums = write_step_files(folder, state_, orders.orders(state_));
      } catch (const ResourceError& e) {
        int64_t bytes = 0;
        for (const auto& w : orders.writes) bytes += w[4];
        fail<ResourceError>("{}.{}", e.what(), space_text(run_dir_, static_cast<uint64_t>(bytes)));
      }
    });
    const auto all = gather_object(group_, written, 0);
    raise(broadcast_object(group_, group_.rank() == 0 ? publish(all) : Failure{}, 0));
  }

 private:
  // Rank 0. Nothing on disk has changed where the ranks' calls do not fit together.
  Begun begin() {
    Begun begun;
    begun.failure = first_failure(holdings_, holdings_);
    if (!begun.failure) begun.failure = failure_of([&] { prepare(); });
    if (begun.failure) return not_saved(begun);
    begun.temporary = draft_->name();
    begun.host = holdings_[0].host;
    return begun;
  }

  void prepare() {
    for (size_t r = 1; r < holdings_.size(); ++r) {
      const Holding& h = holdings_[r];
      check<UsageError>(h.step == step_ && h.keep == options_.keep && h.layout == options_.layout,
                        "save_sharded_step: rank 0 saves step {}, keep {}, layout '{}', and rank "
                        "{} step {}, keep {}, layout '{}'",
                        step_, options_.keep, options_.layout, r, h.step, h.keep, h.layout);
    }
    for (const Holding& h : holdings_) held_.push_back(h.held());
    plan_save(held_);  // refuses what does not fit together
    draft_.emplace(run_dir_, step_);
  }

  std::vector<Orders> decide(const std::vector<Seen>& seen) {
    std::vector<Orders> orders(holdings_.size());
    Orders failed;
    failed.failure = failure_of([&] {
      std::vector<bool> sees;
      for (const Seen& s : seen) sees.push_back(s.sees);
      check<ResourceError>(sees[0], "{} has gone", draft_->folder());
      plan_ = plan_save(held_, sees);
      plan_.index.step = step_;
      plan_.index.world = group_.size();
      plan_.index.layout = options_.layout;
      for (size_t r = 0; r < orders.size(); ++r) orders[r].take(orders_for(plan_, r));
    });
    if (failed.failure) {
      for (size_t r = 0; r < seen.size(); ++r)
        if (!seen[r].sees) {
          failed.failure.text += fmt::format(
              " (rank {} on {} does not see {}, which rank 0 on {} "
              "has just made)",
              r, holdings_[r].host, seen[r].path, holdings_[0].host);
          break;
        }
      draft_.reset();
      orders.assign(holdings_.size(), not_saved(failed));
    }
    return orders;
  }

  template <class Answer>
  Answer not_saved(Answer answer) const {
    answer.failure.text =
        fmt::format("checkpoint of step {} was not saved: {}", step_, answer.failure.text);
    return answer;
  }

  // Rank 0.
  Failure publish(const std::vector<Written>& all) {
    Failure failure = first_failure(all, holdings_);
    if (!failure)
      failure = failure_of([&] {
        for (size_t r = 0; r < all.size(); ++r) add_checksums(plan_, r, all[r].checksums);
        write_index(draft_->folder(), plan_.index);
        draft_->publish();
      });
    if (failure) {
      draft_.reset();  // before the others hear of it
      failure.text =
          fmt::format("checkpoint of step {} was not saved: {}{}", step_, failure.text,
                      failure.kind == Failure::resource
                          ? " Earlier checkpoints are as they were; free some space or choose "
                            "another --run-dir"
                          : "");
      return failure;
    }
    failure = failure_of([&] { draft_->settle(options_.keep); });
    if (failure)
      failure.text = fmt::format(
          "checkpoint of step {} is in {}, but its run folder could not be "
          "brought up to date: {}",
          step_, run_dir_, failure.text);
    draft_.reset();
    return failure;
  }

  const std::string& run_dir_;
  const int64_t step_;
  Group group_;
  const ShardedSaveOptions& options_;
  Collector state_;
  std::vector<Holding> holdings_;  // from here on those of rank 0
  std::vector<HeldState> held_;
  SavePlan plan_;
  std::optional<StepDraft> draft_;
};

}  // namespace

std::string save_sharded_step(const std::string& run_dir, int64_t step, const StateWalk& walk,
                              Group group, const ShardedSaveOptions& options) {
  Span span("checkpoint", "save");
  Saver(run_dir, step, std::move(group), options).save(walk);
  return run_dir + "/" + step_folder_name(step);
}

}  // namespace trireme
