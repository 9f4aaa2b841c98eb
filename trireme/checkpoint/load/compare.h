// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
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
  std::string shown;                   // its name in the walk
  const IndexTensor* saved = nullptr;  // null: it is filled under another of its names
  int64_t numel = 0;
  std::vector<Copy> copies = {};
  bool in_place =
      false;  // its memory has the checkpoint's bytes: in host memory, one behind another
  /// Of rank_tensor() for another number of ranks: the copies of each old rank's that are combined.
  /// Without any it becomes zeros (add) or stays as it is (begin_anew).
  std::optional<RankStateRule> rule = {};
  struct OfRank {
    int64_t rank;  // of the run that saved
    std::vector<Copy> copies;
  };
  std::vector<OfRank> rows = {};
  int64_t old_ranks = 0;
};

/// From where everything that a walk shows is filled.
struct LoadPlan {
  std::vector<TensorSource> tensors;          // in the walk's order
  std::map<std::string, std::string> values;  // name shown → name in the checkpoint; not there: it
                                              // stays as it is
  std::vector<std::string> notes;  // for people: what could not be kept, and why
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

  /// After the walk: everything that it asks for is there.
  void finish();
  /// Of the checkpoint's tensors and values, in the order of their names: those that this walk
  /// reads, or knows under another name.
  std::vector<bool> known() const;
  /// UsageError for those that are not known, naming up to five of them.
  void refuse_unknown(const std::vector<bool>& known) const;

  LoadPlan plan;

 private:
  using Saved = CheckpointIndex::Tensors::value_type;  // a name of the checkpoint, and its tensor
  struct Known {
    const Saved* saved;
    bool seen = false;
  };
  /// A name of the walk.
  struct Shown {
    bool whole = true;              // or a value
    const Saved* from = nullptr;    // what it is filled from, or is the same as
    const Saved* filled = nullptr;  // … of all that are the same tensor as this, shown first
  };
  using ShownNames = std::unordered_map<std::string, Shown>;

  Known* known_tensor(std::string_view name);
  const Known* known_tensor(std::string_view name) const;
  const Saved* saved_tensor(const std::string& name) const;
  const Saved* find(ShownNames::value_type& shown, const std::string& first, at::Tensor& local);
  const Saved* in_other_precision(const std::string& name, const Saved* from,
                                  const at::Tensor& local);
  bool master_of_known(const std::string& name) const;
  bool begins_anew(const std::string& value) const;
  bool is_weight_in_other_precision(const std::string& name) const;
  void compare(const std::string& name, size_t type);
  void refuse_missing() const;
  std::string saved_value(const std::string& name) const;
  const Shown* shown_as(const std::string& name) const;
  bool excepted(const std::string& name) const;
  bool excepted_otherwise(const std::string& name) const;
  bool is_other_name(const std::string& name) const;
  void refuse_other_values(const std::string& a, const std::string& b) const;

  const OpenedStep& opened_;
  const std::string& folder_;
  const CheckpointIndex& index_;
  const LoadOptions& options_;
  const TiedNames& tied_;
  // Of tens of thousands of names each is looked up once.
  std::vector<Known> tensors_;                            // in the order of their names
  std::unordered_map<std::string_view, size_t> numbers_;  // … by name
  std::unordered_set<std::string> seen_values_;
  ShownNames shown_;
  SameTensors same_;
  bool scale_begins_anew_ = false;
  std::string converted_;  // the first weight that is taken from another precision, and how
  std::vector<std::pair<std::string, std::string>> missing_;  // name shown, name shown first
};

}  // namespace trireme
