// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// The backends by name. Each has a factory that takes a BackendSpec; for one that this build lacks,
// the factory in no_<name>.cc throws UsageError saying what is missing.
namespace trireme {

class Store;
namespace local {
class ThreadWorld;
}

namespace detail {

class Backend;

/// What is needed to make a group of a backend.
struct BackendSpec {
  int rank = 0;
  int size = 1;
  Duration timeout{};
  /// The job's store, restricted to this group's keys (under its name). Each thread that uses it
  /// takes a clone().
  std::shared_ptr<Store> store{};
  std::string name = "world";
  /// For hybrid: the backend across hosts.
  std::string across = "gloo";
  /// How ranks detect that they call different things: each, hash, off (checked_backend.h). "": no
  /// wrapper, not even a recorder, because an outer backend provides them.
  std::string check = "hash";
  /// Whether all_reduce uses the table of `trireme bench --tune`, if there is one.
  bool tuned = true;
  /// Whether tensors of other devices go through the host's memory, where it takes the CPU's alone.
  bool staged = true;
  /// For local: what ranks that are threads of this process share. Null: they are processes, which
  /// meet through the store.
  std::shared_ptr<local::ThreadWorld> threads{};
};

/// Every rank of the group must call it with the same name. Throws UsageError for a name that is
/// unknown or not in this build.
std::shared_ptr<Backend> make_backend(const std::string& backend, const BackendSpec& spec);

/// Returns the backends that this build has.
TRIREME_API std::vector<std::string> present_backends();

/// Whether ranks of this backend may be threads of one process.
bool takes_threads(const std::string& backend);

}  // namespace detail
}  // namespace trireme
