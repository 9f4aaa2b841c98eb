// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/checkpoint/output.h"
#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/verify_step.h"

namespace trireme {
namespace {

struct Verified {
  std::string folder;
  StepVerdict verdict;
  double seconds = 0;
};

std::vector<std::string> folders_to_verify(const CheckpointFlags& flags) {
  if (!flags.all) return {step_folder_at(flags.path)};
  check_folder(flags.path);
  std::vector<std::string> folders;
  for (int64_t step : list_steps(flags.path))
    folders.push_back(flags.path + "/" + step_folder_name(step));
  check<UsageError>(!folders.empty(), "no checkpoint in {}", flags.path);
  return folders;
}

Verified verify(const std::string& folder) {
  const auto begin = Clock::now();
  Verified v{folder, verify_step(folder), 0};
  v.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (!v.verdict.good()) check_not_deleted(folder);
  return v;
}

std::string verified_text(const Verified& v) {
  const double rate = static_cast<double>(v.verdict.bytes_read) / std::max(v.seconds, 1e-9);
  const size_t n = v.verdict.faults.size();
  std::string text = fmt::format(
      "{}: {}; {} read in {:.3g} s ({}/s)\n", shown(v.folder),
      v.verdict.good() ? "good"
                       : fmt::format("{}, {} {}", v.verdict.unread() ? "not read" : "damaged", n,
                                     n == 1 ? "fault" : "faults"),
      bytes_text(v.verdict.bytes_read), v.seconds, bytes_text(static_cast<uint64_t>(rate)));
  for (const StepFault& fault : v.verdict.faults) text += "  " + shown(fault.what) + "\n";
  return text;
}

nlohmann::ordered_json fault_json(const StepFault& fault) {
  nlohmann::ordered_json json{{"file", fault.file}};
  json["tensor"] =
      fault.tensor.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(fault.tensor);
  if (fault.first_block >= 0) {
    json["blocks"] = {fault.first_block, fault.last_block};
    json["bytes"] = {fault.begin, fault.end};
  }
  if (fault.unread) json["unread"] = true;
  json["what"] = fault.what;
  return json;
}

nlohmann::ordered_json verified_json(const Verified& v) {
  auto faults = nlohmann::ordered_json::array();
  for (const StepFault& fault : v.verdict.faults) faults.push_back(fault_json(fault));
  return {{"folder", v.folder},
          {"good", v.verdict.good()},
          {"bytes_read", v.verdict.bytes_read},
          {"seconds", v.seconds},
          {"faults", faults}};
}

}  // namespace

int checkpoint_verify(const CheckpointFlags& flags) {
  std::string text;
  auto steps = nlohmann::ordered_json::array();
  size_t damaged = 0, unread = 0;
  for (const std::string& folder : folders_to_verify(flags)) {
    Verified v;
    try {
      v = verify(folder);
    } catch (const ResourceError& deleted) {
      if (!flags.all) throw;
      log_warn("{}", shown(deleted.what()));  // the others are there
      continue;
    }
    const bool not_read = v.verdict.unread() != nullptr;
    unread += not_read;
    damaged += !not_read && !v.verdict.good();
    text += verified_text(v);
    steps.push_back(verified_json(v));
  }
  check<ResourceError>(!steps.empty(), "every checkpoint in {} was deleted while it was read",
                       flags.path);
  deliver(flags, text, {{"good", damaged + unread == 0}, {"steps", steps}});
  if (unread > 0)
    log_error(
        "the disk or its file system failed while {} of {} checkpoints {} read, which does "
        "not show that {} damaged",
        unread, steps.size(), unread == 1 ? "was" : "were", unread == 1 ? "it is" : "they are");
  if (damaged > 0 && steps.size() == 1)
    log_error("{} is damaged", shown(steps[0]["folder"].get<std::string>()));
  else if (damaged > 0)
    log_error("{} of {} checkpoints {} damaged", damaged, steps.size(),
              damaged == 1 ? "is" : "are");
  return damaged + unread > 0 ? kExitFailed : kExitDone;
}

}  // namespace trireme
