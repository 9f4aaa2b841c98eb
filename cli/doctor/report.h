// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

// What doctor found: sections of rows for people, the same as JSON, and findings: what is not fine,
// each with one line that says what to do.
namespace trireme::doctor {

using nlohmann::ordered_json;

struct Finding {
  std::string section, what, todo;
  bool operator==(const Finding&) const = default;
};
using Findings = std::vector<Finding>;

struct Section {
  std::string name;  // the key in JSON
  std::vector<std::pair<std::string, std::string>> rows;
  ordered_json json = ordered_json::object();
  Findings findings;

  explicit Section(std::string name) : name(std::move(name)) {}
  void row(std::string label, std::string text) {
    rows.emplace_back(std::move(label), std::move(text));
  }
  void find(std::string what, std::string todo) {
    findings.push_back({name, std::move(what), std::move(todo)});
  }
};

struct Report {
  std::vector<Section> sections;
  ordered_json to_json() const;
  std::string text() const;
};

/// A section as it travels between ranks.
ordered_json pack(const Section& section);
Section unpack(const ordered_json& packed);

/// "0-3,8": CPUs and ranks.
std::string text_of_list(const std::vector<int>& numbers);
/// "1.5 GiB", "64 MiB", "unlimited" for UINT64_MAX.
std::string text_of_bytes(uint64_t bytes);

}  // namespace trireme::doctor
