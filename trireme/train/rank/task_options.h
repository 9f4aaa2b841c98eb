// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

using Words = std::vector<std::string>;

/// "--name value" pairs, as a front half writes them for the rank that it starts. Throws UsageError
/// naming this program, since users do not type these arguments.
class TRIREME_API TaskOptions {
 public:
  explicit TaskOptions(const Words& words);
  std::optional<std::string> find(const std::string& name) const;
  std::string get(const std::string& name) const;
  std::string get(const std::string& name, const std::string& otherwise) const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace trireme
