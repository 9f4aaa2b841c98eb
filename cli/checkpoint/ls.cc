// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/checkpoint/output.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/verify_step.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string name;
  uint64_t bytes = 0;
};

struct StepEntry : Entry {
  int64_t step = 0;
  std::string state;  // "good", "damaged", "unreadable", "newer"
  std::vector<std::string> faults;
  int64_t written = 0;  // seconds since 1970
  std::optional<CheckpointIndex> index;
};

struct Listing {
  std::vector<StepEntry> steps;
  std::vector<Entry> leftovers, set_aside;
  std::string latest;        // the name of a step, or ""
  std::string latest_fault;  // a sentence
};

uint64_t size_of_tree(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(fs::symlink_status(path, error))) return fs::file_size(path, error);
  uint64_t bytes = 0;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error))
    if (std::error_code ignored; it->is_regular_file(ignored) && !it->is_symlink(ignored))
      if (const auto size = it->file_size(ignored); !ignored) bytes += size;
  return bytes;
}

StepEntry step_entry(const fs::path& folder) {
  StepEntry entry;
  entry.name = folder.filename().string();
  entry.bytes = size_of_tree(folder);
  entry.step = step_of_folder(entry.name);
  struct stat st {};
  if (::stat((folder / CheckpointIndex::kFileName).c_str(), &st) == 0) entry.written = st.st_mtime;
  try {
    StepVerdict verdict = glance_at_step(folder.string());
    entry.index = std::move(verdict.index);
    // What the disk or its permissions do not give is not known to be damaged.
    const bool is_damaged = std::any_of(verdict.faults.begin(), verdict.faults.end(),
                                        [](const StepFault& fault) { return !fault.unread; });
    entry.state = verdict.good() ? "good" : is_damaged ? "damaged" : "unreadable";
    for (const StepFault& fault : verdict.faults) entry.faults.push_back(fault.what);
  } catch (const UsageError& e) {
    entry.state = "newer";
    entry.faults.push_back(e.what());
  }
  return entry;
}

Listing list_run(const std::string& run_dir) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator it(run_dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (step_of_folder(name) >= 0) {
      listing.steps.push_back(step_entry(it->path()));
      std::error_code ignored;  // its run may have deleted it meanwhile
      if (!fs::exists(it->path(), ignored)) listing.steps.pop_back();
    } else if (name.starts_with(".tmp-step-") || name.starts_with("latest.tmp.")) {
      listing.leftovers.push_back({name, size_of_tree(it->path())});
    } else if (name.starts_with("damaged-")) {
      listing.set_aside.push_back({name, size_of_tree(it->path())});
    }
  }
  check<ResourceError>(!error, "cannot read the folder {}: {}", run_dir, error.message());
  const auto by_name = [](const Entry& a, const Entry& b) { return a.name < b.name; };
  std::sort(listing.steps.begin(), listing.steps.end(),
            [](const StepEntry& a, const StepEntry& b) { return a.step < b.step; });
  std::sort(listing.leftovers.begin(), listing.leftovers.end(), by_name);
  std::sort(listing.set_aside.begin(), listing.set_aside.end(), by_name);
  try {
    if (fs::exists(run_dir + "/latest", error)) listing.latest = name_of(find_checkpoint(run_dir));
  } catch (const Error& e) {
    listing.latest_fault = e.what();
  }
  return listing;
}

std::string listing_text(const std::string& run_dir, const Listing& listing) {
  if (listing.steps.empty() && listing.leftovers.empty() && listing.set_aside.empty())
    return fmt::format("no checkpoint in {}\n", shown(run_dir));
  std::vector<std::vector<std::string>> rows{
      {"STEP", "SIZE", "RANKS", "WRITTEN", "STATE", "LAYOUT"}};
  for (const StepEntry& s : listing.steps)
    rows.push_back({s.name, bytes_text(s.bytes), s.index ? std::to_string(s.index->world) : "?",
                    s.written ? time_text(s.written) : "?",
                    s.state + (s.name == listing.latest ? ", latest" : ""),
                    s.index ? s.index->layout : "?"});
  std::string text = listing.steps.empty() ? "" : table(rows);
  for (const StepEntry& s : listing.steps)
    for (const std::string& fault : s.faults)
      text += fmt::format("{}: {}{}\n", s.name, s.state == "unreadable" ? "unreadable: " : "",
                          shown(fault));
  for (const Entry& e : listing.leftovers)
    text +=
        fmt::format("{} ({}): of a save that is under way or has died; the next save removes it\n",
                    shown(e.name), bytes_text(e.bytes));
  for (const Entry& e : listing.set_aside)
    text += fmt::format("{} ({}): set aside because it was damaged\n", shown(e.name),
                        bytes_text(e.bytes));
  return text;
}

nlohmann::ordered_json entries_json(const std::vector<Entry>& entries) {
  auto list = nlohmann::ordered_json::array();
  for (const Entry& e : entries) list.push_back({{"name", e.name}, {"bytes", e.bytes}});
  return list;
}

nlohmann::ordered_json listing_json(const std::string& run_dir, const Listing& listing) {
  auto steps = nlohmann::ordered_json::array();
  for (const StepEntry& s : listing.steps) {
    nlohmann::ordered_json step{{"name", s.name},
                                {"step", s.step},
                                {"state", s.state},
                                {"latest", s.name == listing.latest},
                                {"bytes", s.bytes}};
    step["written"] = s.written ? nlohmann::ordered_json(time_text(s.written)) : nullptr;
    step["ranks"] = s.index ? nlohmann::ordered_json(s.index->world) : nullptr;
    step["layout"] = s.index ? nlohmann::ordered_json(s.index->layout) : nullptr;
    step["version"] = s.index ? nlohmann::ordered_json(s.index->version) : nullptr;
    step["faults"] = s.faults;
    steps.push_back(step);
  }
  nlohmann::ordered_json json{{"run", run_dir}, {"steps", steps}};
  json["latest"] =
      listing.latest.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(listing.latest);
  json["latest_fault"] = listing.latest_fault.empty()
                             ? nlohmann::ordered_json()
                             : nlohmann::ordered_json(listing.latest_fault);
  json["leftovers"] = entries_json(listing.leftovers);
  json["set_aside"] = entries_json(listing.set_aside);
  return json;
}

}  // namespace

int checkpoint_ls(const CheckpointFlags& flags) {
  check_folder(flags.path);
  check<UsageError>(!fs::exists(flags.path + "/" + CheckpointIndex::kFileName),
                    "{0} is one step: 'trireme checkpoint show {0}' says what it holds",
                    flags.path);
  const Listing listing = list_run(flags.path);
  deliver(flags, listing_text(flags.path, listing), listing_json(flags.path, listing));
  size_t damaged = 0, unreadable = 0;
  for (const StepEntry& s : listing.steps) {
    damaged += s.state == "damaged";
    unreadable += s.state == "unreadable";
  }
  if (damaged > 0)
    log_error("{} of {} checkpoints in {} {} damaged", damaged, listing.steps.size(),
              shown(flags.path), damaged == 1 ? "is" : "are");
  if (unreadable > 0)
    log_error("{} of {} checkpoints in {} cannot be read, which does not show that {} damaged",
              unreadable, listing.steps.size(), shown(flags.path),
              unreadable == 1 ? "it is" : "they are");
  if (!listing.latest_fault.empty()) log_error("{}", shown(listing.latest_fault));
  return damaged + unreadable > 0 || !listing.latest_fault.empty() ? kExitFailed : kExitDone;
}

}  // namespace trireme
