// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/await_saver.h"

#include <thread>

#include "trireme/base/clock.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/steps/run_folder/saver_lock.h"

namespace trireme {

void await_saver(const std::string& steps) {
  using namespace std::chrono_literals;
  const Deadline deadline = Deadline::after(10min);
  while (path_kind(steps) == PathKind::folder && !SaverLock::try_take(steps) && !deadline.expired())
    std::this_thread::sleep_for(20ms);
}

}  // namespace trireme
