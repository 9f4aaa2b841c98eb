// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/checkpoint/output.h"
#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/compare_tensors.h"

namespace trireme {
namespace {

using nlohmann::ordered_json;

// What one name comes to.
struct Finding {
  std::string name;
  std::string how;   // "only in A", "shapes", "dtypes", "bytes", "values"; "": equal
  std::string text;  // a sentence
  ordered_json json;
  bool within = false;  // the bytes differ, but by no more than --atol
};

Finding only_in(const std::string& name, const char* side) {
  return {name, fmt::format("only in {}", side), fmt::format("{}: only in {}", shown(name), side),
          ordered_json::object()};
}

Finding of_two(const std::string& name, const char* how, const std::string& a,
               const std::string& b) {
  return {name,
          how,
          fmt::format("{}: {} in A, {} in B", shown(name), shown(a), shown(b)),
          {{"a", a}, {"b", b}}};
}

Finding compare_one(StepReader& a, StepReader& b, const std::string& name, double tolerance) {
  const auto in_a = a.index().tensors.find(name), in_b = b.index().tensors.find(name);
  if (in_b == b.index().tensors.end()) return only_in(name, "A");
  if (in_a == a.index().tensors.end()) return only_in(name, "B");
  const IndexTensor &x = in_a->second, &y = in_b->second;
  if (!shapes_fit(a.index(), x.shape(), b.index(), y.shape()))
    return of_two(name, "shapes", list_text(x.shape()), list_text(y.shape()));
  if (x.dtype != y.dtype) return of_two(name, "dtypes", x.dtype, y.dtype);
  const TensorComparison found = compare_tensors(a, b, name, tolerance);
  if (found.differing == 0) return {name, "", "", {}};
  return {name,
          "bytes",
          fmt::format("{}: {} {}, by at most {:.6g}; the first{} is at {}", shown(name),
                      found.differing, found.differing == 1 ? "element differs" : "elements differ",
                      found.largest, tolerance > 0 && !found.within ? " beyond --atol" : "",
                      list_text(found.first)),
          {{"elements", found.differing},
           {"largest", number_json(found.largest)},
           {"first", found.first},
           {"within", tolerance > 0 && found.within}},
          tolerance > 0 && found.within};
}

bool same_value(const IndexValue& a, const IndexValue& b) {
  const double *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  return x && y ? std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y) : a == b;
}

Finding compare_value(const CheckpointIndex& a, const CheckpointIndex& b, const std::string& name,
                      double tolerance) {
  const auto in_a = a.values.find(name), in_b = b.values.find(name);
  if (in_b == b.values.end()) return only_in(name, "A");
  if (in_a == a.values.end()) return only_in(name, "B");
  if (same_value(in_a->second, in_b->second)) return {name, "", "", {}};
  Finding finding{name,
                  "values",
                  fmt::format("{}: {} in A, {} in B", shown(name), value_text(in_a->second),
                              value_text(in_b->second)),
                  {{"a", value_json(in_a->second)}, {"b", value_json(in_b->second)}}};
  const auto *x = std::get_if<double>(&in_a->second), *y = std::get_if<double>(&in_b->second);
  finding.within = x && y && tolerance > 0 && std::fabs(*x - *y) <= tolerance;
  return finding;
}

template <class Map>
std::set<std::string> names_in(const Map& a, const Map& b, const std::string& glob) {
  std::set<std::string> names;
  for (const Map* map : {&a, &b})
    for (const auto& [name, value] : *map)
      if (matches(glob, name)) names.insert(name);
  return names;
}

std::string side_text(const char* side, const StepReader& step) {
  const CheckpointIndex& index = step.index();
  return fmt::format("{}: {} (step {}, {} {}, {})\n", side, shown(step.folder()), index.step,
                     index.world, index.world == 1 ? "rank" : "ranks", shown(index.layout));
}

class Report {
 public:
  void add(const char* what, const Finding& f) {
    ++compared_;
    if (f.how.empty()) return;
    ++differing_;
    beyond_ += !f.within;
    text_ += f.text + (f.within ? " (within --atol)\n" : "\n");
    ordered_json json{{what, f.name}, {"how", f.how}};
    json.update(f.json);
    list_.push_back(json);
  }
  bool equal() const { return beyond_ == 0; }
  std::string text() const {
    return text_ + (differing_ == 0 ? fmt::format("all {} are equal\n", compared_)
                                    : fmt::format("{} of {} differ{}\n", differing_, compared_,
                                                  equal() ? ", none by more than --atol" : ""));
  }
  ordered_json json() const {
    return {{"equal", equal()}, {"compared", compared_}, {"differences", list_}};
  }

 private:
  size_t compared_ = 0, differing_ = 0, beyond_ = 0;
  std::string text_;
  ordered_json list_ = ordered_json::array();
};

int diff_steps(const std::string& folder_a, const std::string& folder_b,
               const CheckpointFlags& flags) {
  StepReader a(folder_a), b(folder_b);
  const auto names = names_in(a.index().tensors, b.index().tensors, flags.tensors);
  check<UsageError>(flags.tensors.empty() || !names.empty(), "no tensor of {} or {} matches '{}'",
                    a.folder(), b.folder(), flags.tensors);
  Report report;
  for (const std::string& name : names)
    report.add("tensor", compare_one(a, b, name, flags.tolerance));
  if (flags.tensors.empty())
    for (const std::string& name : names_in(a.index().values, b.index().values, ""))
      report.add("value", compare_value(a.index(), b.index(), name, flags.tolerance));
  ordered_json json{{"a", a.folder()}, {"b", b.folder()}};
  json.update(report.json());
  deliver(flags, side_text("A", a) + side_text("B", b) + report.text(), json);
  return report.equal() ? kExitDone : kExitFailed;
}

}  // namespace

int checkpoint_diff(const CheckpointFlags& flags) {
  const std::string a = step_folder_at(flags.path), b = step_folder_at(flags.other);
  return reading_steps({a, b}, [&] { return diff_steps(a, b, flags); });
}

}  // namespace trireme
