// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/compare.h"

#include <fmt/ranges.h>

#include <algorithm>
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
std::string renamed(const std::string& name, const std::string& from, const std::string& to) {
  if (name == from) return to;
  if (!name.ends_with("." + from)) return "";
  return name.substr(0, name.size() - from.size()) + to;
}

// The walk shows memory that the bytes of the checkpoint can be read to.
bool has_bytes_of(const IndexTensor& saved, const at::Tensor& local) {
  return local.is_cpu() && local.is_contiguous() &&
         local.scalar_type() == safetensors_scalar_type(saved.dtype);
}

// " (nor 'b', 'c', 'd', 'e' and 3 more)" of the names behind the first.
std::string others(const std::vector<std::string>& names) {
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
  tensors_.reserve(most);
  numbers_.reserve(most);
  for (const Saved& saved : index_.tensors) {
    numbers_.emplace(saved.first, tensors_.size());
    tensors_.push_back({&saved});
  }
  shown_.reserve(most + index_.values.size());
  plan.tensors.reserve(most);
}

const Comparer::Known* Comparer::known_tensor(std::string_view name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? nullptr : &tensors_[found->second];
}

Comparer::Known* Comparer::known_tensor(std::string_view name) {
  return const_cast<Known*>(std::as_const(*this).known_tensor(name));
}

// A run in another precision: which tensor has the most exact values of what the walk shows as
// `name`; `saved` is the one of that name, null if it is not there.
const Comparer::Saved* Comparer::in_other_precision(const std::string& name, const Saved* saved,
                                                    const at::Tensor& local) {
  if (const size_t at = name.find(kMasters); !saved && at != std::string::npos)
    return saved_tensor(std::string(kWeights) + name.substr(at + kMasters.size()));
  const std::string here = safetensors_dtype_name(local.scalar_type());
  if (!saved || !saved->first.starts_with(kWeights) || saved->second.dtype == here) return saved;
  // Masters of a program with several updates have the update's name before them.
  const std::string master = std::string(kMasters) + saved->first.substr(kWeights.size());
  auto it = index_.tensors.find(master);
  if (it == index_.tensors.end())
    it = std::find_if(index_.tensors.lower_bound("updates."), index_.tensors.end(),
                      [&](const auto& t) { return t.first.ends_with("." + master); });
  if (converted_.empty())
    converted_ =
        fmt::format("the weights ({} here, {} there{}) are converted", here, saved->second.dtype,
                    it == index_.tensors.end() ? "" : " with float32 masters");
  if (it == index_.tensors.end()) return saved;
  known_tensor(saved->first)->seen = true;
  return &*it;
}

// A master that is not asked for, because the weight is.
bool Comparer::master_of_known(const std::string& name) const {
  const size_t at = name.find(kMasters);
  if (!options_.other_precision || at == std::string::npos) return false;
  const Known* weight = known_tensor(std::string(kWeights) + name.substr(at + kMasters.size()));
  return weight && weight->seen;
}

// State that is no weight keeps its dtype, or is refused.
bool Comparer::is_weight_in_other_precision(const std::string& name) const {
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
const Comparer::Saved* Comparer::find(ShownNames::value_type& shown, const std::string& first,
                                      at::Tensor& local) {
  const std::string& name = shown.first;
  const Saved* found = saved_tensor(name);
  if (options_.other_precision) found = in_other_precision(name, found, local);
  if (!found) {  // it may be there under another of its names
    missing_.emplace_back(name, first);
    return nullptr;
  }
  known_tensor(found->first)->seen = true;
  const auto& [from, saved] = *found;
  // Of tens of thousands of tensors: what an error would say is put together for an error alone.
  if (safetensors_scalar_type(saved.dtype) != local.scalar_type() &&
      !((options_.convert || is_weight_in_other_precision(name)) && local.is_floating_point() &&
        c10::isFloatingType(safetensors_scalar_type(saved.dtype))))
    fail<UsageError>("{} is {} there and {} here", opened_.described(from), saved.dtype,
                     c10::toString(local.scalar_type()));
  shown.second.from = found;
  return found;
}

void Comparer::tensor(const Slice& slice, at::Tensor local) {
  const auto [at, fresh] = shown_.try_emplace(slice.name, Shown{.whole = slice.is_whole()});
  check<UsageError>(fresh || (!at->second.whole && !slice.is_whole()),
                    "load: the state names '{}' twice", slice.name);
  const std::string fault = fault_of(slice);
  check<UsageError>(fault.empty() && local.defined() && local.numel() == slice.numel(),
                    "load: '{}' is not a slice of its tensor: {}", slice.name,
                    fault.empty() ? "its memory has another size" : fault);
  const std::string first = same_.first_of(slice, local);
  TensorSource& source = plan.tensors.emplace_back();
  source.shown = slice.name, source.numel = local.numel();
  const Saved* found = find(*at, first, local);
  if (!found) return;
  const auto& [from, saved] = *found;
  if (!shapes_fit(slice.global_shape, saved.shape(), index_.block == 0))
    fail<UsageError>("{} has shape [{}] there and [{}] here: is it of another model?",
                     opened_.described(from), fmt::join(saved.shape(), ", "),
                     fmt::join(slice.global_shape, ", "));
  const bool is_first = first == slice.name;
  const Saved*& filled = is_first ? at->second.filled : shown_.at(first).filled;
  if (filled && !is_first) return refuse_other_values(filled->first, from);
  if (!filled) filled = found;
  source.saved = &saved;
  source.copies = plan_load(saved, slice);
  source.in_place = has_bytes_of(saved, local);
}

void Comparer::rank_tensor(const std::string& name, int rank, int ranks, RankStateRule rule,
                           at::Tensor local) {
  const auto [at, fresh] = shown_.try_emplace(name);
  check<UsageError>(fresh, "load: the state names '{}' twice", name);
  const int64_t n = local.numel();
  TensorSource& source = plan.tensors.emplace_back();
  source.shown = name, source.numel = n;
  const Saved* found = find(*at, name, local);
  if (!found) return;
  const IndexTensor& saved = found->second;
  const std::vector<int64_t>& shape = saved.shape();
  const int64_t all = numel_of(shape);
  check<UsageError>((n == 0) == (all == 0) && (n == 0 || all % n == 0) &&
                        (shape.size() == 1 || shape.back() == n),
                    "{}: what each rank has of '{}' has another size there than the {} elements "
                    "here: is it of another model?",
                    folder_, name, n);
  at->second.filled = found;
  source.saved = &saved;
  if (n == 0) return;
  source.old_ranks = all / n;
  auto row = [&](int64_t r) { return plan_load(saved, Slice::range(name, shape, r * n, n)); };
  if (source.old_ranks == ranks) {
    source.copies = row(rank);
    source.in_place = has_bytes_of(saved, local);
    return;
  }
  source.rule = rule;
  for (int64_t r = 0; r < source.old_ranks; ++r)
    if (rule == RankStateRule::average || (rule == RankStateRule::add && r % ranks == rank))
      source.rows.push_back({r, row(r)});
}

void Comparer::compare(const std::string& name, size_t type) {
  check<UsageError>(shown_.try_emplace(name).second, "load: the state names '{}' twice", name);
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
  std::vector<std::string> names;
  for (const auto& [name, first] : missing_)
    if (!shown_.at(first).filled && !excepted(name) && !excepted_otherwise(name))
      names.push_back(name);
  check<UsageError>(names.empty(),
                    "{} has no tensor '{}', which this state asks for{}: is it of another model or "
                    "optimizer?",
                    folder_, names.empty() ? "" : names[0], others(names));
}

// Named by LoadOptions::except.
bool Comparer::excepted(const std::string& name) const {
  const std::string_view whole = name;
  return std::any_of(options_.except.begin(), options_.except.end(), [&](const std::string& p) {
    return glob_match(p, whole) ||
           (whole.starts_with(kWeights) && glob_match(p, whole.substr(kWeights.size())));
  });
}

// Under another of its names.
bool Comparer::excepted_otherwise(const std::string& name) const {
  return std::any_of(tied_.begin(), tied_.end(), [&](const TiedName& t) {
    const std::string other = renamed(name, t.first, t.name);
    return !other.empty() && excepted(other);
  });
}

void Comparer::finish() {
  refuse_missing();
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
      kinds[t.shown.substr(0, t.shown.find('.', t.shown.find('.') + 1))] = {t.old_ranks, *t.rule};
  for (const auto& [kind, what] : kinds)
    plan.notes.push_back(fmt::format(
        "{} of {} ranks {}", kind, what.first,
        what.second == RankStateRule::add       ? "is added up over the ranks of this run"
        : what.second == RankStateRule::average ? "is averaged: each rank begins with the mean"
                                                : "cannot be divided anew and begins afresh"));
}

std::vector<bool> Comparer::known() const {
  std::vector<bool> known;
  known.reserve(tensors_.size() + index_.values.size());
  for (const auto& [saved, seen] : tensors_)
    known.push_back(seen || is_other_name(saved->first) || master_of_known(saved->first));
  for (const auto& [name, v] : index_.values)
    known.push_back(seen_values_.count(name) || shown_as(name) || begins_anew(name));
  return known;
}

void Comparer::refuse_unknown(const std::vector<bool>& known) const {
  size_t i = 0;
  std::vector<std::string> tensors, values;
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
const Comparer::Saved* Comparer::saved_tensor(const std::string& name) const {
  if (const Known* known = known_tensor(name)) return known->saved;
  for (const TiedName& t : tied_)
    if (const Known* known = known_tensor(renamed(name, t.first, t.name))) return known->saved;
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
const Comparer::Shown* Comparer::shown_as(const std::string& name) const {
  for (const TiedName& t : tied_)
    if (const auto found = shown_.find(renamed(name, t.name, t.first)); found != shown_.end())
      return &found->second;
  return nullptr;
}

bool Comparer::is_other_name(const std::string& name) const {
  const Shown* first = shown_as(name);
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
