// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// The backends by name. Each has a factory that takes a BackendSpec; one that this build lacks is
// its no_<name>.cc, whose factory throws UsageError saying what is missing.
namespace trireme {

class Store;
namespace local {
class ThreadWorld;
}

namespace detail {

class Backend;

/// What it takes to make a group of a backend.
struct BackendSpec {
  int rank = 0;
  int size = 1;
  Duration timeout{};
  /// The job's store, for this group's keys alone (they are under its name). Each thread that uses
  /// it takes a clone().
  std::shared_ptr<Store> store{};
  std::string name = "world";
  /// hybrid: what it uses across hosts.
  std::string across = "gloo";
  /// How ranks find out that they call different things: each, hash, off (checked_backend.h). "":
  /// nothing around the backend, not even a recorder: another backend stands on this one.
  std::string check = "hash";
  /// Whether all_reduce goes by the table of `trireme bench --tune`, where there is one.
  bool tuned = true;
  /// local: what ranks share that are threads of this process. Null: they are processes, which meet
  /// through the store.
  std::shared_ptr<local::ThreadWorld> threads{};
};

/// Every rank of the group calls it with the same name. UsageError for a name that is unknown or
/// not in this build.
std::shared_ptr<Backend> make_backend(const std::string& backend, const BackendSpec& spec);

/// Those that this build has.
TRIREME_API std::vector<std::string> present_backends();

/// Whether ranks of this backend may be threads of one process.
bool takes_threads(const std::string& backend);

}  // namespace detail
}  // namespace trireme
