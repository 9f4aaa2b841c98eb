// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/launch/flags/options.h"
#include "trireme/net/auth.h"

namespace trireme::launch {

/// For nodes that come when the job's store is no longer where it was: a thread that, as long as it
/// lives, has the endpoint (c10d: in the table of a launcher that has opened a store there, and
/// waits for others) or etcd say where it is now.
class TRIREME_API Signpost {
 public:
  Signpost(const RunOptions& options, const net::Credentials& credentials,
           const std::string& address);
  ~Signpost();
  Signpost(const Signpost&) = delete;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace trireme::launch
