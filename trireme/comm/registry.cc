// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/registry.h"

#include "trireme/base/check.h"
#include "trireme/comm/desync/checked_backend.h"
#include "trireme/comm/fake/backend.h"
#include "trireme/comm/gloo/backend.h"
#include "trireme/comm/hybrid/backend.h"
#include "trireme/comm/local_backend.h"
#include "trireme/comm/mpi/backend.h"
#include "trireme/comm/nccl/backend.h"
#include "trireme/comm/wrappers/by_device.h"
#include "trireme/comm/wrappers/recorded_backend.h"
#include "trireme/comm/wrappers/staged_backend.h"
#include "trireme/comm/wrappers/tuned_backend.h"
#include "trireme/store/store.h"

namespace trireme::detail {

namespace {

bool always() { return true; }

/// The wrappers around a backend.
enum class Around : uint8_t {
  nothing,  // it has no other ranks to compare with, and never hangs
  tuning,   // its engine records the calls and compares those of the ranks
  all
};

struct KnownBackend {
  const char* name;
  bool (*is_present)();
  std::shared_ptr<Backend> (*make)(const BackendSpec&);
  Around around;
  bool takes_threads;
};

constexpr KnownBackend kBackends[] = {
    {"local", always, local_backend, Around::tuning, true},
    {"gloo", has_gloo, gloo_backend, Around::all, true},
    {"mpi", has_mpi, mpi_backend, Around::all, false},
    {"nccl", has_nccl, nccl_backend, Around::all, false},
    {"hybrid", always, hybrid_backend, Around::all, false},
    {"fake", always, fake_backend, Around::nothing, true},
};

const KnownBackend* find_backend(const std::string& name) {
  for (const KnownBackend& known : kBackends)
    if (name == known.name) return &known;
  return nullptr;
}

/// Each device's backend has its own name and its own keys.
std::shared_ptr<Backend> make_by_device(const std::string& text, const BackendSpec& spec) {
  return by_device_backend(text, [&](const std::string& name, const std::string& device) {
    BackendSpec own = spec;
    own.name += "/" + device;
    own.staged = device != "cpu";
    if (spec.store) own.store = std::make_shared<PrefixStore>(spec.store, device);
    return make_backend(name, own);
  });
}

}  // namespace

std::shared_ptr<Backend> make_backend(const std::string& backend, const BackendSpec& spec) {
  if (is_by_device(backend)) return make_by_device(backend, spec);
  const KnownBackend* known = find_backend(backend);
  if (!known)
    fail<UsageError>("there is no backend '{}': use local, gloo, mpi, nccl, hybrid or fake",
                     backend);
  auto made = known->make(spec);
  if (spec.check.empty() || known->around == Around::nothing) return made;
  if (spec.tuned) made = tuned_by_cache(std::move(made), spec.store);
  // nccl takes tensors of its device alone.
  if (spec.staged && made->supports(Collective::broadcast, at::kByte, at::kCPU))
    made = staged_backend(std::move(made));
  if (known->around == Around::tuning) return made;
  if (backend == "hybrid" && !made->progress_group()) made->join(std::make_shared<ProgressGroup>());
  std::unique_ptr<WaitBoard> board;
  // The backend's own board first: a world of MPI does not keep the store, so that other groups can
  // meet in it.
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
  std::vector<std::string> names;
  for (const KnownBackend& known : kBackends)
    if (known.is_present()) names.push_back(known.name);
  return names;
}

bool takes_threads(const std::string& backend) {
  const KnownBackend* known = find_backend(backend);
  return known && known->takes_threads;
}

}  // namespace trireme::detail
