// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/registry.h"

#include "trireme/base/check.h"
#include "trireme/comm/by_device.h"
#include "trireme/comm/desync/checked_backend.h"
#include "trireme/comm/fake/backend.h"
#include "trireme/comm/gloo/backend.h"
#include "trireme/comm/hybrid/backend.h"
#include "trireme/comm/mpi/backend.h"
#include "trireme/comm/nccl/backend.h"
#include "trireme/comm/recorded_backend.h"
#include "trireme/comm/tuned_backend.h"

namespace trireme::detail {

namespace {

std::shared_ptr<Backend> make_bare(const std::string& backend, const BackendSpec& spec) {
  if (is_by_device(backend))
    return by_device_backend(backend, [&](const std::string& name, const std::string& device) {
      BackendSpec own = spec;
      own.name += "/" + device;
      return make_backend(name, own);
    });
  if (backend == "gloo") return gloo_backend(spec);
  if (backend == "mpi") return mpi_backend(spec);
  if (backend == "nccl") return nccl_backend(spec);
  if (backend == "hybrid") return hybrid_backend(spec);
  if (backend == "fake") return fake_backend(spec);
  fail<UsageError>("there is no backend '{}': local, gloo, mpi, nccl, hybrid and fake are known",
                   backend);
}

}  // namespace

std::shared_ptr<Backend> make_backend(const std::string& backend, const BackendSpec& spec) {
  auto made = make_bare(backend, spec);
  // A fake world has nobody to compare with, and never hangs; those by device do it one by one.
  if (spec.check.empty() || backend == "fake" || is_by_device(backend)) return made;
  if (spec.tuned) made = tuned_by_cache(std::move(made), spec.store);
  if (backend == "hybrid" && !made->progress_group()) made->join(std::make_shared<ProgressGroup>());
  std::unique_ptr<WaitBoard> board;
  // The backend's own first: a world of MPI does not keep the store, so that others can meet beside
  // it.
  if (spec.check != "off") board = made->make_board();
  if (!board && spec.store && spec.size > 1) {
    if (spec.check == "hash")
      board = lazy_store_board(spec.store, spec.name, spec.rank, spec.size);
    else if (spec.check == "each")
      board = store_board(*spec.store, spec.name, spec.rank, spec.size, spec.timeout);
  }
  return recorded_backend(checked_backend(std::move(made), spec.check, spec.name, std::move(board)),
                          spec.name, spec.rank);
}

std::vector<std::string> present_backends() {
  std::vector<std::string> names{"local"};
  if (has_gloo()) names.push_back("gloo");
  if (has_mpi()) names.push_back("mpi");
  if (has_nccl()) names.push_back("nccl");
  names.push_back("hybrid");
  names.push_back("fake");
  return names;
}

}  // namespace trireme::detail
