// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/launch/membership/succession.h"
#include "trireme/net/auth.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// The other launchers of an elastic job, each asked at the store that it keeps or stands by with.
/// One thread at a time.
class TRIREME_API Neighbours {
 public:
  explicit Neighbours(net::Credentials credentials) : credentials_(std::move(credentials)) {}

  /// Asks them all at once; one that says nothing for a second is silent.
  std::map<std::string, SuccessionView::Seen> look(const std::vector<Member>& members);
  /// Its standing, if it is `before` still.
  void set_standing(const Member& member, const Standing& before, const Standing& after);
  /// nullptr: it does not let us in.
  std::unique_ptr<Store> enter(const std::string& address) const;
  const net::Credentials& credentials() const { return credentials_; }

 private:
  SuccessionView::Seen look_at(const Member& member) const;

  const net::Credentials credentials_;
  std::map<std::string, Clock::time_point> heard_;  // by token
};

/// An agent's own standing.
Standing standing_in(Store& table);

}  // namespace trireme::launch
