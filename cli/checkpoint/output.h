// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/checkpoint/flags.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/verify_step.h"

// What the verbs of `trireme checkpoint` print. Names of files and tensors are strangers' words.
namespace trireme {

/// For a terminal: control characters, those that turn the writing direction, and what is not UTF-8
/// are escaped as \x1b or \u{202e}.
std::string shown(std::string_view text);

/// The text, or the JSON, goes to stdout, the JSON to a file if one was named. That nobody reads
/// stdout any more is no error.
void deliver(const CheckpointFlags& flags, const std::string& text,
             const nlohmann::ordered_json& json);

/// Columns as wide as their widest cell, two spaces apart.
std::string table(const std::vector<std::vector<std::string>>& rows);

/// "[5, 3]"
std::string list_text(const std::vector<int64_t>& list);
std::string bytes_text(uint64_t bytes);
/// "2026-11-23T05:01:02Z"
std::string time_text(int64_t seconds_since_1970);

/// "int 3", "string hello"; the string is shown().
std::string value_text(const IndexValue& value);
nlohmann::ordered_json value_json(const IndexValue& value);
/// A number, or "nan", "inf", "-inf".
nlohmann::ordered_json number_json(double x);

/// UsageError where there is no folder; ResourceError where it may not be read.
void check_folder(const std::string& path);
/// A run folder's step that `latest` names, or the step folder itself.
std::string step_folder_at(const std::string& path);
/// Does `body`, which reads the steps. Where it finds a fault and a folder is gone, that one was
/// deleted meanwhile, which is said in place of the fault.
template <class Body>
auto reading_steps(const std::vector<std::string>& folders, const Body& body) {
  try {
    return body();
  } catch (const UsageError&) {
    throw;
  } catch (const Error&) {
    for (const std::string& folder : folders) check_not_deleted(folder);
    throw;
  }
}
/// The last part of a path.
std::string name_of(const std::string& path);
bool matches(const std::string& glob, const std::string& name);
/// 0 for a dtype that we do not know; the most there is where a hostile index has more.
uint64_t bytes_of(const IndexTensor& tensor);

}  // namespace trireme
