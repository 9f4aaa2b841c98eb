// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace trireme::rpc {

/// What calls of one method came to, since the worker began. Bytes are those of arguments and
/// results, tensors among them.
struct CallMetrics {
  uint64_t calls = 0;      // that have ended
  uint64_t errors = 0;     // of these: with anything but a value
  uint64_t under_way = 0;  // now
  uint64_t argument_bytes = 0;
  uint64_t result_bytes = 0;
  /// Half of the calls, and all but one of a hundred, took at most so many seconds. To within an
  /// eighth; 0 where none has ended. Of calls made, from async() to the answer; of those answered,
  /// from when they came.
  double p50_s = 0, p99_s = 0;
};

/// Of one method: the calls of it that this worker has made, and those that it has answered.
struct MethodMetrics {
  std::string method;
  CallMetrics made;
  CallMetrics answered;
};

}  // namespace trireme::rpc
