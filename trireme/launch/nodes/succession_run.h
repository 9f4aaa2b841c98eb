// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/launch/membership/announcement.h"
#include "trireme/launch/nodes/neighbours.h"

namespace trireme::launch {

/// What a launcher knows whose store is lost, and that has no worker any more.
struct SuccessionStart {
  std::string us;     // its token
  Announcement last;  // that it has accepted, or, of a spare, seen
  bool last_has_begun = true;
  SuccessionPatience patience;
};

struct SuccessionEnd {
  enum Kind {
    asked_to_stop,
    follows,  // `store`, which `keeper` keeps
    rejoins,  // `store`, as a newcomer
    keeps,    // the next store, in its own table; `followers` of the last members come, it too
    gave_up   // because of `sentence`
  };
  Kind kind = asked_to_stop;
  std::unique_ptr<Store> store = nullptr;
  std::string address = {}, keeper = {};
  int followers = 0;
  std::string sentence = {};
};

/// Asks the others until it is known who goes on (membership/succession.h). `table`: its own, with
/// its Standing. `yielded`: false when a generation has been accepted, and kept since.
SuccessionEnd succeed(const SuccessionStart& start, Store& table, Neighbours& neighbours,
                      bool& yielded, const std::function<bool()>& asked_to_stop);

/// The same for a spare: who goes on takes it in again.
SuccessionEnd find_successor(const SuccessionStart& start, Neighbours& neighbours,
                             Deadline deadline, const std::function<bool()>& asked_to_stop);

}  // namespace trireme::launch
