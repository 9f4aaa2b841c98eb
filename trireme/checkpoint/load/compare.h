// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "trireme/checkpoint/load/opened.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/save/same_tensors.h"
#include "trireme/checkpoint/steps/load_plan.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// How one tensor that a walk shows is filled.
struct TensorSource {
  std::string_view shown;              // its name in the walk
  const IndexTensor* saved = nullptr;  // null: it is filled under another of its names
  int64_t numel = 0;
  size_t first_copy = 0, copies = 0;  // LoadPlan::copies_of()
  /// Of rank_tensor() for another number of ranks, so many: the copies are of all those that are
  /// combined. Without any it becomes zeros (add) or stays as it is (begin_anew).
  int64_t old_ranks = 0;
  std::optional<RankStateRule> rule = {};
  /// Its memory has the checkpoint's bytes: in host memory, one behind another.
  bool in_place = false;

  bool combines(int64_t old_rank, int64_t rank, int64_t ranks) const {
    return rule == RankStateRule::average ||
           (rule == RankStateRule::add && old_rank % ranks == rank);
  }
};

/// From where everything that a walk shows is filled. Of tens of thousands of tensors each has
/// little memory of its own: names are the checkpoint's where it has them.
struct LoadPlan {
  std::vector<TensorSource> tensors;  // in the walk's order
  std::vector<Copy> copies;
  std::deque<std::string> names;              // that the checkpoint has no tensor of
  std::map<std::string, std::string> values;  // name shown → name in the checkpoint; not there: it
                                              // stays as it is
  std::vector<std::string> notes;  // for people: what could not be kept, and why

  std::span<const Copy> copies_of(const TensorSource& t) const {
    return std::span(copies).subspan(t.first_copy, t.copies);
  }
};

/// The first walk of a load: does the state ask for what the checkpoint holds, and where is it?
/// Writes nothing. UsageError, naming the first difference.
class Comparer : public StateVisitor {
 public:
  /// `opened` must outlive it and the plan, with the same names.
  Comparer(const OpenedStep& opened, const LoadOptions& options);

  void tensor(const Slice& slice, at::Tensor local) override;
  void rank_tensor(const std::string& name, int rank, int ranks, RankStateRule rule,
                   at::Tensor local) override;
  void value(const std::string& name, int64_t&) override { compare(name, 0); }
  void value(const std::string& name, double&) override { compare(name, 1); }
  void value(const std::string& name, std::string&) override { compare(name, 2); }
  void constant(const std::string& name, const std::string& v) override;
  Purpose purpose() const override { return Purpose::compare; }

  /// After the walk: everything that it asks for is there. What it was looked up in is given back.
  void finish();
  /// … of the checkpoint's tensors and values, in the order of their names: those that this walk
  /// reads, or knows under another name.
  const std::vector<bool>& known() const { return known_; }
  /// UsageError for those that are not known, naming up to five of them.
  void refuse_unknown(const std::vector<bool>& known) const;

  LoadPlan plan;

 private:
  using Saved = CheckpointIndex::Tensors::value_type;  // a name of the checkpoint, and its tensor
  /// A name of the checkpoint's tensors, or of the walk.
  struct Name {
    const Saved* saved = nullptr;  // the checkpoint's tensor of this name
    const Saved* from = nullptr;  // … that fills what is shown, or another name of the same tensor
    bool seen = false;            // `saved` fills something
    bool shown = false;
    bool whole = true;  // what was shown, or a value
  };
  using Names = std::unordered_map<std::string_view, Name>;

  Names::value_type& name_of(const std::string& shown);
  Name* saved_name(std::string_view name);
  Name* saved_tensor(std::string_view name);
  Name* saved_otherwise(std::string_view name);
  const Saved* find(Names::value_type& shown, const Name& first, const at::Tensor& local);
  Name* in_other_precision(std::string_view name, Name* found, const at::Tensor& local);
  void plan_copies(TensorSource& source, const Slice& slice);
  bool master_of_known(std::string_view name) const;
  bool begins_anew(const std::string& value) const;
  bool is_weight_in_other_precision(std::string_view name) const;
  void compare(const std::string& name, size_t type);
  void refuse_missing() const;
  void note_what_changes();
  void find_known();
  std::string saved_value(const std::string& name) const;
  const Name* shown_as(const std::string& name) const;
  bool excepted(std::string_view name) const;
  bool excepted_otherwise(std::string_view name) const;
  bool is_other_name(const std::string& name) const;
  void refuse_other_values(const std::string& a, const std::string& b) const;

  const OpenedStep& opened_;
  const std::string& folder_;
  const CheckpointIndex& index_;
  const LoadOptions& options_;
  const TiedNames& tied_;
  Names names_;               // of tens of thousands, each is looked up once
  std::vector<Name*> saved_;  // those of the checkpoint, in their order
  std::unordered_set<std::string> seen_values_;
  std::vector<bool> known_;
  SameTensors same_;
  // By the number of what was shown first and is not in the checkpoint: the other name that fills
  // it.
  std::unordered_map<size_t, const Saved*> filled_otherwise_;
  bool scale_begins_anew_ = false;
  std::string converted_;  // the first weight that is taken from another precision, and how
  std::vector<std::pair<std::string_view, const Name*>> missing_;  // shown, the name shown first
};

}  // namespace trireme
