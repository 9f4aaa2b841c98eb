// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/bench_table.h"

#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/worker/bench_plan.h"
#include "trireme/base/check.h"

namespace trireme::bench {

Output::Output(bool on, const std::string& json) : on_(on) {
  if (!on_ || json.empty()) return;
  if (json == "-") {
    to_stdout_ = true;
  } else {
    file_.open(json);
    check<ResourceError>(file_.good(), "bench: cannot write {}", json);
  }
}

void Output::human(const std::string& line) {
  if (on_ && !to_stdout_) std::puts(line.c_str()), std::fflush(stdout);
}

void Output::record(const nlohmann::ordered_json& row) {
  if (!on_) return;
  if (to_stdout_) std::puts(row.dump().c_str()), std::fflush(stdout);
  if (file_.is_open()) file_ << row.dump() << "\n" << std::flush;
}

std::string table_head(bool in_place, size_t width) {
  return fmt::format("#{:>71}\n", in_place ? "in-place" : "out-of-place") +
         fmt::format(
             "#{:>11}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>{}}  "
             "{:>7}  {:>6}\n",
             "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
             "backend", width, "p90", "bound") +
         fmt::format(
             "#{:>11}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>{}}  "
             "{:>7}  {:>6}",
             "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "", width, "(us)",
             "(%)");
}

std::string table_line(const Row& r, size_t width) {
  return fmt::format(
      "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>{}}  {:>7}  {:>6}",
      r.bytes, r.count, r.type, r.redop, r.root, fixed(r.seconds * 1e6, 7), fixed(r.algbw, 6),
      fixed(r.busbw, 6), r.wrong < 0 ? "N/A" : std::to_string(r.wrong), r.backend, width,
      fixed(r.p90 * 1e6, 7), r.bound > 0 ? fmt::format("{:.0f}", 100 * r.bound / r.seconds) : "-");
}

}  // namespace trireme::bench
