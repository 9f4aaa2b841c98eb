// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/config/config.h"

// Whether ranks will find the device that a configuration names, before they start. Who knows is
// LibTorch, which this half does not link: it asks a process that does.
namespace trireme {

/// The ranks `first` to `first` + `ranks` - 1 of this host want `device`, as a configuration says
/// it.
struct DeviceQuestion {
  std::string device = {};  // find_device() fills it in
  int first = 0, ranks = 1;
  bool memory = false;  // its size is wanted, for which the device is opened
};

struct DeviceAnswer {
  std::string refusal;  // one sentence for the first rank that would not find it; "": all do
  std::string kind;     // what they compute on: "cpu", "cuda"; "": not known
  int64_t memory = 0;   // bytes of the smallest of these devices; 0: not known
};
/// {} where it cannot tell: ranks then see for themselves.
using AskDevice = std::function<DeviceAnswer(const DeviceQuestion&)>;

/// The answer for `device` of the configuration; its refusal begins with the key's place. Nothing
/// is asked, which takes half a second, for the CPU, and for `auto` on a machine without the driver
/// of a GPU (under `root`).
TRIREME_API DeviceAnswer find_device(const Config& config, DeviceQuestion question,
                                     const AskDevice& ask, const std::string& root = "");

}  // namespace trireme
