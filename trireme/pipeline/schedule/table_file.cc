// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/table_file.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/pipeline/schedule/check.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/messages.h"

namespace trireme::pipeline {

namespace {

bool repeats(std::vector<Action> list) {
  for (Action& a : list) a.overlaps_next = false;
  std::sort(list.begin(), list.end());
  return std::adjacent_find(list.begin(), list.end()) != list.end();
}

// Of a table that no messages help the checker says what is wrong with it as it stands, rather than
// with the messages that nobody wrote.
bool wants_messages(const Schedule& table) {
  return !table.has_messages() &&
         std::all_of(table.rank_of_stage.begin(), table.rank_of_stage.end(),
                     [](int rank) { return rank >= 0; }) &&
         std::none_of(table.actions.begin(), table.actions.end(), repeats);
}

}  // namespace

TableFile read_table_file(const std::string& path) {
  Schedule table = read_table(read_file(path), path);
  Schedule complete = wants_messages(table) ? place_messages(table) : table;
  return {std::move(table), std::move(complete)};
}

Schedule proven_table(const std::string& path, const std::string& asked_for) {
  TableFile file;
  try {
    const PathKind kind = path_kind(path);
    check<UsageError>(kind != PathKind::nothing, "there is no file {}", path);
    // A pipe would wait for somebody who writes, and gives its text to one reader alone.
    check<UsageError>(kind == PathKind::file, "{} is not a file", path);
    file = read_table_file(path);
    const auto found = check_schedule(file.complete);
    check<UsageError>(!found, "{}: {} ({}); `trireme plan schedule --table` draws it", path,
                      found ? found->sentence : "", found ? name_of(found->fault) : "");
  } catch (const ResourceError& e) {
    fail<UsageError>("{}: {}", asked_for, e.what());
  } catch (const UsageError& e) {
    fail<UsageError>("{}: {}", asked_for, e.what());
  }
  return std::move(file.given);
}

}  // namespace trireme::pipeline
