// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// Into a new file of mode 0600. ResourceError.
void write_secret(const std::string& path, std::string_view secret);

/// The job's store: served on loopback, on a port of the kernel's choice, to whoever knows the
/// fresh secret that this writes to `secret_file` (mode 0600). It lives in the launcher, so that it
/// outlives every worker.
class TRIREME_API JobStore {
 public:
  /// `ranks`: how many may come at once.
  JobStore(const std::string& job_id, const std::string& secret_file, int ranks);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  std::string address() const;  // "127.0.0.1:PORT", for TRIREME_STORE
  /// The same table for a thread of this process.
  std::unique_ptr<Store> own();

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace trireme::launch
