// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/sharded_writer.h"

#include <unistd.h>

#include <optional>

#include "trireme/base/check.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/run_folder.h"
#include "trireme/checkpoint/step_files.h"
#include "trireme/comm/objects.h"

// Two questions of rank 0 (what do you hold? what have you written?), each answered for all ranks
// at once, so that whatever fails on one of them is thrown by all, at the same place.
namespace trireme {
namespace {

struct Failure {
  enum Kind : uint8_t { none, usage, resource, corrupt, other };
  uint8_t kind = none;
  std::string text;
  TRIREME_FIELDS(kind, text)
  explicit operator bool() const { return kind != none; }
};

// What `body` throws, but for what ends the group: that goes on as it is.
template <class Body>
Failure failure_of(const Body& body) {
  try {
    body();
    return {};
  } catch (const PeerLost&) {
    throw;
  } catch (const Timeout&) {
    throw;
  } catch (const Aborted&) {
    throw;
  } catch (const Mismatch&) {
    throw;
  } catch (const UsageError& e) {
    return {Failure::usage, e.what()};
  } catch (const ResourceError& e) {
    return {Failure::resource, e.what()};
  } catch (const Corrupt& e) {
    return {Failure::corrupt, e.what()};
  } catch (const std::exception& e) {
    return {Failure::other, e.what()};
  }
}

void raise(const Failure& f) {
  if (f.kind == Failure::usage) throw UsageError(f.text);
  if (f.kind == Failure::resource) throw ResourceError(f.text);
  if (f.kind == Failure::corrupt) throw Corrupt(f.text);
  if (f) throw Error(f.text);
}

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
  std::vector<int64_t> shape, offsets, lengths;
  TRIREME_FIELDS(name, dtype, shape, offsets, lengths)
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
    for (const auto& t : held.tensors)
      tensors.push_back(
          {t.slice.name, t.dtype, t.slice.global_shape, t.slice.offsets, t.slice.lengths});
    for (const auto& [name, v] : held.values) values[name] = WireValue::from(v);
  }
  HeldState held() const {
    HeldState held;
    for (const auto& t : tensors)
      held.tensors.push_back({{t.name, t.shape, t.offsets, t.lengths}, t.dtype});
    for (const auto& [name, v] : values) held.values[name] = v.value();
    return held;
  }
};

// Rank 0 → rank: where it writes what.
struct Orders {
  Failure failure;
  std::string temporary, host;  // a folder that rank 0, there, has made in the run folder
  std::vector<std::string> files;
  TRIREME_FIELDS(failure, temporary, host, files)
};

// Rank → rank 0: what it has written.
struct Written {
  Failure failure;
  std::map<std::string, std::pair<uint64_t, std::string>> files;  // size, checksum of the head
  std::vector<std::string> checksums;
  TRIREME_FIELDS(failure, files, checksums)

  void take(const RankFiles& w) {
    for (const auto& [file, info] : w.files) files[file] = {info.size, info.head};
    checksums = w.checksums;
  }
  RankFiles rank_files() const {
    RankFiles w;
    for (const auto& [file, info] : files) w.files[file] = {info.first, info.second};
    w.checksums = checksums;
    return w;
  }
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
                    "characters, and not '{}'",
                    options.layout, CheckpointIndex::kReplicated);
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

    const Orders orders =
        scatter_object(group_, group_.rank() == 0 ? decide() : std::vector<Orders>{}, 0);
    raise(orders.failure);

    Written written;
    written.failure = failure_of([&] { write(orders, written); });
    const auto all = gather_object(group_, written, 0);
    raise(broadcast_object(group_, group_.rank() == 0 ? publish(all) : Failure{}, 0));
  }

 private:
  // Rank 0. Nothing on disk has changed where it finds a mistake.
  std::vector<Orders> decide() {
    std::vector<Orders> orders(holdings_.size());
    Failure failure = first_failure(holdings_, holdings_);
    if (!failure) failure = failure_of([&] { prepare(orders); });
    if (failure)
      failure.text = fmt::format("checkpoint of step {} was not saved: {}", step_, failure.text);
    for (Orders& o : orders) o.failure = failure;
    return orders;
  }

  void prepare(std::vector<Orders>& orders) {
    for (size_t r = 1; r < holdings_.size(); ++r) {
      const Holding& h = holdings_[r];
      check<UsageError>(h.step == step_ && h.keep == options_.keep && h.layout == options_.layout,
                        "save_sharded_step: rank 0 saves step {}, keep {}, layout '{}', and rank "
                        "{} step {}, keep {}, layout '{}'",
                        step_, options_.keep, options_.layout, r, h.step, h.keep, h.layout);
    }
    std::vector<HeldState> held;
    for (const Holding& h : holdings_) held.push_back(h.held());
    plan_ = plan_save(held);
    plan_.index.step = step_;
    plan_.index.world = group_.size();
    plan_.index.layout = options_.layout;
    draft_.emplace(run_dir_, step_);
    for (size_t r = 0; r < orders.size(); ++r) {
      orders[r].temporary = draft_->name();
      orders[r].host = holdings_[0].host;
      orders[r].files = plan_.files[r];
    }
  }

  void write(const Orders& orders, Written& written) {
    const std::string folder = run_dir_ + "/" + orders.temporary;
    check<Corrupt>(orders.files.size() == state_.tensors.size(),
                   "checkpoint: rank 0 sent orders for {} tensors; this rank has {}",
                   orders.files.size(), state_.tensors.size());
    check<ResourceError>(path_kind(folder) == PathKind::folder,
                         "{} is not there, and rank 0 on {} has just made it: the run folder must "
                         "be one that all hosts share",
                         folder, orders.host);
    try {
      written.take(write_rank_files(folder, state_, orders.files, group_.rank() == 0));
    } catch (const ResourceError& e) {
      fail<ResourceError>("{}.{}", e.what(),
                          space_text(run_dir_, bytes_to_write(state_, orders.files)));
    }
  }

  // Rank 0.
  Failure publish(const std::vector<Written>& all) {
    Failure failure = first_failure(all, holdings_);
    if (!failure)
      failure = failure_of([&] {
        for (size_t r = 0; r < all.size(); ++r)
          add_rank_files(plan_.index, all[r].rank_files(), holdings_[r].held(), plan_.files[r]);
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
  std::vector<Holding> holdings_;  // these three on rank 0
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
