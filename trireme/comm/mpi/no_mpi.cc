// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"
#include "trireme/comm/mpi/backend.h"
#include "trireme/comm/mpi_group.h"

namespace trireme::detail {
namespace {
[[noreturn]] void absent() {
  fail<UsageError>(
      "the backend 'mpi' is not in this build: no MPI was found when it was built (Debian: "
      "libopenmpi-dev or libmpich-dev)");
}
}  // namespace

std::shared_ptr<Backend> mpi_backend(const BackendSpec&) { absent(); }
std::shared_ptr<Backend> mpi_backend_on(const void*, size_t, bool, Duration, const MpiLimits&) {
  absent();
}
bool has_mpi() { return false; }

Group mpi_group(const void*, size_t, bool, Duration, const std::string&) { absent(); }

}  // namespace trireme::detail
