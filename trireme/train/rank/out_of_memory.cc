// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/out_of_memory.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <cstdlib>
#include <new>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/rank_label.h"
#include "trireme/planner/memory_plan.h"

namespace trireme {
namespace {

/// LibTorch's allocators throw a c10::Error, which only its text identifies.
bool is_torchs(const std::string& text) {
  return text.find("can't allocate memory") != std::string::npos ||
         text.find("not enough memory") != std::string::npos ||
         text.find("out of memory") != std::string::npos;
}

std::string asked_for(const std::string& text) {
  const std::string mark = "tried to allocate ";
  const auto at = text.find(mark);
  if (at == std::string::npos) return "";
  const int64_t bytes = std::strtoll(text.c_str() + at + mark.size(), nullptr, 10);
  return bytes > 0 ? fmt::format("it asked for {} more", mebibytes(bytes)) : "";
}

std::string limits() {
  std::string text;
  for (auto [resource, name] : {std::pair{RLIMIT_AS, "ulimit -v"}, {RLIMIT_DATA, "ulimit -d"}}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      text += fmt::format("{}{} is {}", text.empty() ? "" : ", ", name,
                          mebibytes(static_cast<int64_t>(limit.rlim_cur)));
  }
  return text;
}

}  // namespace

std::string failure_text(const std::exception& error, bool built_in_model) {
  if (dynamic_cast<const Error*>(&error)) return brief(error);  // our errors say what to do
  const std::string what = error.what();
  const int rank = thread_rank();
  const std::string who = rank < 0 ? "this process" : fmt::format("rank {}", rank);
  if (const auto* system = dynamic_cast<const std::system_error*>(&error);
      system && system->code() == std::errc::resource_unavailable_try_again)
    return fmt::format(
        "{} could not start a thread: {}. See 'ulimit -u', 'ulimit -v' and the pids limit of the "
        "cgroup, or start fewer ranks",
        who, brief(error));
  if (!dynamic_cast<const std::bad_alloc*>(&error) && !is_torchs(what)) return brief(error);
  std::string facts = asked_for(what);
  if (const std::string set = limits(); !set.empty()) facts += (facts.empty() ? "" : "; ") + set;
  return fmt::format(
      "{} ran out of memory{}. Start fewer ranks, take a smaller train_micro_batch_size_per_gpu or "
      "zero_optimization.stage=3, or allow more memory{}",
      who, facts.empty() ? "" : " (" + facts + ")",
      built_in_model ? ": 'trireme summary' says what is needed" : "");
}

}  // namespace trireme
