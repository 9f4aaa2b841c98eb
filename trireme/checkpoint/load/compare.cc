// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/compare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/safetensors_dtype.h"

namespace trireme {
namespace {

constexpr std::string_view kWeights = "model.";
constexpr std::string_view kMasters = "optim.master.";
constexpr const char* kTypeNames[] = {"int", "double", "string"};

int64_t numel_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

// Versions 1 and 2, whose flat state has lost its shape, have no blocks.
bool shapes_fit(const std::vector<int64_t>& a, const std::vector<int64_t>& b, bool may_be_flat) {
  return a == b || (may_be_flat && (a.size() == 1 || b.size() == 1) && numel_of(a) == numel_of(b));
}

// `name` with `to` in the place of `from` at its end, behind a dot; "" if it does not end so.
std::string renamed(std::string_view name, const std::string& from, const std::string& to) {
  if (name == from) return to;
  if (!name.ends_with("." + from)) return "";
  return std::string(name.substr(0, name.size() - from.size())) + to;
}

// Of the master weight whose kMasters is at `at` of its name.
std::string weight_of(std::string_view master, size_t at) {
  return std::string(kWeights).append(master.substr(at + kMasters.size()));
}

// The walk shows memory that the bytes of the checkpoint can be read to.
bool has_bytes_of(const IndexTensor& saved, const at::Tensor& local) {
  return local.is_cpu() && local.is_contiguous() &&
         local.scalar_type() == safetensors_scalar_type(saved.dtype);
}

// " (nor 'b', 'c', 'd', 'e' and 3 more)" of the names behind the first.
std::string others(const std::vector<std::string_view>& names) {
  if (names.size() < 2) return "";
  const size_t shown = std::min<size_t>(names.size(), 5);
  std::string text = fmt::format(
      " (nor '{}'", fmt::join(names.begin() + 1, names.begin() + static_cast<long>(shown), "', '"));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text + ")";
}

}  // namespace

Comparer::Comparer(const OpenedStep& opened, const LoadOptions& options)
    : opened_(opened),
      folder_(opened.folder()),
      index_(opened.index()),
      options_(options),
      tied_(options.tied) {
  const size_t most = index_.tensors.size();  // a walk of one rank of many shows fewer
  names_.reserve(most + index_.values.size());
  saved_.reserve(most);
  size_t parts = 0;
  for (const Saved& saved : index_.tensors) {
    saved_.push_back(&names_.try_emplace(saved.first, Name{.saved = &saved}).first->second);
    parts += saved.second.parts.size();
  }
  plan.tensors.reserve(most);
  plan.copies.reserve(parts);
}

Comparer::Names::value_type& Comparer::name_of(const std::string& shown) {
  auto at = names_.find(shown);
  if (at == names_.end()) at = names_.try_emplace(plan.names.emplace_back(shown)).first;
  return *at;
}

Comparer::Name* Comparer::saved_name(std::string_view name) {
  const auto found = names_.find(name);
  return found == names_.end() || !found->second.saved ? nullptr : &found->second;
}

// A run in another precision: which tensor has the most exact values of what the walk shows as
// `name`; `found` is the one of that name, null if it is not there.
Comparer::Name* Comparer::in_other_precision(std::string_view name, Name* found,
                                             const at::Tensor& local) {
  if (const size_t at = name.find(kMasters); !found && at != std::string::npos)
    return saved_tensor(weight_of(name, at));
  const std::string here = safetensors_dtype_name(local.scalar_type());
  if (!found) return nullptr;
  const auto& [weight, saved] = *found->saved;
  if (!weight.starts_with(kWeights) || saved.dtype == here) return found;
  // Masters of a program with several updates have the update's name before them.
  const std::string master = std::string(kMasters) + weight.substr(kWeights.size());
  auto it = index_.tensors.find(master);
  if (it == index_.tensors.end())
    it = std::find_if(index_.tensors.lower_bound("updates."), index_.tensors.end(),
                      [&](const auto& t) { return t.first.ends_with("." + master); });
  if (converted_.empty())
    converted_ = fmt::format("the weights ({} here, {} there{}) are converted", here, saved.dtype,
                             it == index_.tensors.end() ? "" : " with float32 masters");
  if (it == index_.tensors.end()) return found;
  found->seen = true;
  return saved_name(it->first);
}

// A master that is not asked for, because the weight is.
bool Comparer::master_of_known(std::string_view name) const {
  const size_t at = name.find(kMasters);
  if (!options_.other_precision || at == std::string::npos) return false;
  const auto weight = names_.find(weight_of(name, at));
  return weight != names_.end() && weight->second.seen;
}

// State that is no weight keeps its dtype, or is refused.
bool Comparer::is_weight_in_other_precision(std::string_view name) const {
  return options_.other_precision &&
         (name.starts_with(kWeights) || name.find(kMasters) != std::string::npos);
}

// The trainer's own loss scale; of a program with several updates it has the update's name before
// it. What a program calls "program.scaler.mean" is the program's.
bool Comparer::begins_anew(const std::string& value) const {
  return options_.other_precision &&
         (value.starts_with("scaler.") ||
          (value.starts_with("updates.") && value.find(".scaler.") != std::string::npos));
}

// The tensor that fills what is shown; null where it is filled under the name that was shown
// first, or is missing so far.
const Comparer::Saved* Comparer::find(Names::value_type& shown, const Name& first,
                                      const at::Tensor& local) {
  const std::string_view name = shown.first;
  Name* found = shown.second.saved ? &shown.second : saved_otherwise(name);
  if (options_.other_precision) found = in_other_precision(name, found, local);
  if (!found) {  // it may be there under another of its names
    missing_.emplace_back(name, &first);
    return nullptr;
  }
  found->seen = true;
  const auto& [from, saved] = *found->saved;
  // Of tens of thousands of tensors: what an error would say is put together for an error alone.
  if (safetensors_scalar_type(saved.dtype) != local.scalar_type() &&
      !((options_.convert || is_weight_in_other_precision(name)) && local.is_floating_point() &&
        c10::isFloatingType(safetensors_scalar_type(saved.dtype))))
    fail<UsageError>("{} is {} there and {} here", opened_.described(from), saved.dtype,
                     c10::toString(local.scalar_type()));
  shown.second.from = found->saved;
  return found->saved;
}

void Comparer::tensor(const Slice& slice, at::Tensor local) {
  auto& shown = name_of(slice.name);
  auto& [name, mine] = shown;
  const bool whole = slice.is_whole();
  check<UsageError>(!mine.shown || (!mine.whole && !whole), "load: the state names '{}' twice",
                    name);
  mine.shown = true, mine.whole = whole;
  const std::string fault = fault_of(slice);
  check<UsageError>(fault.empty() && local.defined() && local.numel() == slice.numel(),
                    "load: '{}' is not a slice of its tensor: {}", name,
                    fault.empty() ? "its memory has another size" : fault);
  const size_t number = plan.tensors.size(), same = same_.first_of(slice, local, number);
  TensorSource& source = plan.tensors.emplace_back();
  source.shown = name, source.numel = local.numel();
  Name& first = same == number ? mine : names_.at(plan.tensors[same].shown);
  const Saved* found = find(shown, first, local);
  if (!found) return;
  const auto& [from, saved] = *found;
  if (!shapes_fit(slice.global_shape, saved.shape(), index_.block == 0))
    fail<UsageError>("{} has shape [{}] there and [{}] here: is it of another model?",
                     opened_.described(from), fmt::join(saved.shape(), ", "),
                     fmt::join(slice.global_shape, ", "));
  if (&first != &mine) {
    // Of several boxes of a name each is filled by itself.
    const Saved*& otherwise = filled_otherwise_[same];
    const Saved* filled = plan.tensors[same].saved ? first.from : otherwise;
    if (filled) return refuse_other_values(filled->first, from);
    first.from = otherwise = found;
  }
  source.saved = &saved;
  plan_copies(source, slice);
  source.in_place = has_bytes_of(saved, local);
}

void Comparer::plan_copies(TensorSource& source, const Slice& slice) {
  std::vector<Copy> copies = plan_load(*source.saved, slice);
  if (source.copies == 0) source.first_copy = plan.copies.size();
  source.copies += copies.size();
  std::move(copies.begin(), copies.end(), std::back_inserter(plan.copies));
}

void Comparer::rank_tensor(const std::string& shown_name, int rank, int ranks, RankStateRule rule,
                           at::Tensor local) {
  auto& shown = name_of(shown_name);
  auto& [name, mine] = shown;
  check<UsageError>(!std::exchange(mine.shown, true), "load: the state names '{}' twice", name);
  const int64_t n = local.numel();
  TensorSource& source = plan.tensors.emplace_back();
  source.shown = name, source.numel = n;
  const Saved* found = find(shown, mine, local);
  if (!found) return;
  const IndexTensor& saved = found->second;
  const std::vector<int64_t>& shape = saved.shape();
  const int64_t all = numel_of(shape);
  check<UsageError>((n == 0) == (all == 0) && (n == 0 || all % n == 0) &&
                        (shape.size() == 1 || shape.back() == n),
                    "{}: what each rank has of '{}' has another size there than the {} elements "
                    "here: is it of another model?",
                    folder_, name, n);
  source.saved = &saved;
  if (n == 0) return;
  source.old_ranks = all / n;
  const bool as_saved = source.old_ranks == ranks;
  if (as_saved)
    source.in_place = has_bytes_of(saved, local);
  else
    source.rule = rule;
  for (int64_t r = 0; r < source.old_ranks; ++r)
    if (as_saved ? r == rank : source.combines(r, rank, ranks))
      plan_copies(source, Slice::range(shown_name, shape, r * n, n));
}

void Comparer::compare(const std::string& name, size_t type) {
  check<UsageError>(!std::exchange(name_of(name).second.shown, true),
                    "load: the state names '{}' twice", name);
  const std::string from = saved_value(name);
  if (from.empty() && begins_anew(name)) {
    scale_begins_anew_ = true;
    return;
  }
  if (from.empty()) refuse_missing();  // the first difference is reported
  check<UsageError>(!from.empty(), "{} has no value '{}', which this state asks for", folder_,
                    name);
  const IndexValue& saved = index_.values.at(from);
  check<UsageError>(saved.index() == type, "{}: the value '{}' is of type {} there and {} here",
                    folder_, name, kTypeNames[saved.index()], kTypeNames[type]);
  seen_values_.insert(from);
  plan.values[name] = from;
}

void Comparer::constant(const std::string& name, const std::string& v) {
  compare(name, 2);
  const auto& saved = std::get<std::string>(index_.values.at(plan.values.at(name)));
  check<UsageError>(saved == v, "{}: '{}' is '{}' there and '{}' here", folder_, name, saved, v);
}

void Comparer::refuse_missing() const {
  std::vector<std::string_view> names;
  for (const auto& [name, first] : missing_)
    if (!first->from && !excepted(name) && !excepted_otherwise(name)) names.push_back(name);
  check<UsageError>(names.empty(),
                    "{} has no tensor '{}', which this state asks for{}: is it of another model or "
                    "optimizer?",
                    folder_, names.empty() ? "" : names[0], others(names));
}

// Named by LoadOptions::except.
bool Comparer::excepted(std::string_view name) const {
  return std::any_of(options_.except.begin(), options_.except.end(), [&](const std::string& p) {
    return glob_match(p, name) ||
           (name.starts_with(kWeights) && glob_match(p, name.substr(kWeights.size())));
  });
}

// Under another of its names.
bool Comparer::excepted_otherwise(std::string_view name) const {
  return std::any_of(tied_.begin(), tied_.end(), [&](const TiedName& t) {
    const std::string other = renamed(name, t.first, t.name);
    return !other.empty() && excepted(other);
  });
}

void Comparer::finish() {
  refuse_missing();
  note_what_changes();
  find_known();
  names_ = {}, saved_ = {}, same_ = {}, filled_otherwise_ = {}, missing_ = {};
}

void Comparer::note_what_changes() {
  if (!converted_.empty()) plan.notes.push_back(converted_);
  if (scale_begins_anew_)
    plan.notes.push_back("the loss scale begins anew: the run that saved had none");
  else if (std::any_of(index_.values.begin(), index_.values.end(), [&](const auto& value) {
             return begins_anew(value.first) && !seen_values_.count(value.first);
           }))
    plan.notes.push_back("the loss scale that was saved is left out: this run has none");
  std::map<std::string, std::pair<int64_t, RankStateRule>> kinds;  // kind of state → what became
  for (const TensorSource& t : plan.tensors)
    if (t.rule)
      kinds[std::string(t.shown.substr(0, t.shown.find('.', t.shown.find('.') + 1)))] = {
          t.old_ranks, *t.rule};
  for (const auto& [kind, what] : kinds)
    plan.notes.push_back(fmt::format(
        "{} of {} ranks {}", kind, what.first,
        what.second == RankStateRule::add       ? "is added up over the ranks of this run"
        : what.second == RankStateRule::average ? "is averaged: each rank begins with the mean"
                                                : "cannot be divided anew and begins afresh"));
}

void Comparer::find_known() {
  known_.reserve(saved_.size() + index_.values.size());
  for (const Name* name : saved_)
    known_.push_back(name->seen || is_other_name(name->saved->first) ||
                     master_of_known(name->saved->first));
  for (const auto& [name, v] : index_.values)
    known_.push_back(seen_values_.count(name) || shown_as(name) || begins_anew(name));
}

void Comparer::refuse_unknown(const std::vector<bool>& known) const {
  size_t i = 0;
  std::vector<std::string_view> tensors, values;
  for (const auto& [name, t] : index_.tensors)
    if (!known[i++] && !excepted(name)) tensors.push_back(name);
  for (const auto& [name, v] : index_.values)
    if (!known[i++]) values.push_back(name);
  check<UsageError>(tensors.empty(),
                    "{} holds tensor '{}', which this state does not know{}: is it of another "
                    "model or optimizer?",
                    folder_, tensors.empty() ? "" : tensors[0], others(tensors));
  check<UsageError>(values.empty(), "{} holds the value '{}', which this state does not know{}",
                    folder_, values.empty() ? "" : values[0], others(values));
}

// What the checkpoint holds of what the walk shows as `name`: the tensor of that name, or of one
// that is tied to it; null for none.
Comparer::Name* Comparer::saved_tensor(std::string_view name) {
  Name* const found = saved_name(name);
  return found ? found : saved_otherwise(name);
}

Comparer::Name* Comparer::saved_otherwise(std::string_view name) {
  for (const TiedName& t : tied_)
    if (Name* found = saved_name(renamed(name, t.first, t.name))) return found;
  return nullptr;
}

// Likewise the name of a value; "": none.
std::string Comparer::saved_value(const std::string& name) const {
  if (index_.values.count(name)) return name;
  for (const TiedName& t : tied_)
    if (const std::string other = renamed(name, t.first, t.name); index_.values.count(other))
      return other;
  return "";
}

// What the walk shows for another name of it; null: nothing.
const Comparer::Name* Comparer::shown_as(const std::string& name) const {
  for (const TiedName& t : tied_)
    if (const auto found = names_.find(renamed(name, t.name, t.first));
        found != names_.end() && found->second.shown)
      return &found->second;
  return nullptr;
}

bool Comparer::is_other_name(const std::string& name) const {
  const Name* first = shown_as(name);
  if (!first) return false;
  // State of an optimizer that stepped a tensor under each name may differ; the first one's stays.
  if (name.starts_with(kWeights) && first->from) refuse_other_values(first->from->first, name);
  return true;
}

void Comparer::refuse_other_values(const std::string& a, const std::string& b) const {
  check<UsageError>(opened_.same_values(a, b),
                    "{}: '{}' and '{}' have different values there, and are one tensor here: it "
                    "is of a model whose weights are not tied",
                    folder_, a, b);
}

}  // namespace trireme
