// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace trireme {

/// The stages of a pipeline that a rank has, numbered from 0 in the order of the network. Their
/// backwards take turns, so that what is reduced together belongs to one stage.
struct ModelStages {
  int count = 1;
  /// Of a parameter, by its name. Empty: all of them belong to stage 0.
  std::function<int(const std::string& parameter)> of = {};
  int operator()(const std::string& parameter) const { return of ? of(parameter) : 0; }
};

}  // namespace trireme
