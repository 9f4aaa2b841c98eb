// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/signals.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/flight/dump.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/backend_for.h"
#include "trireme/comm/start/blas.h"
#include "trireme/comm/start/run.h"
#include "trireme/rendezvous/rank_env.h"
#include "trireme/rendezvous/rendezvous.h"
#include "trireme/store/memory_store.h"

namespace trireme {
namespace {

// The last group handle to be destroyed closes the store, after its engine has announced that this
// rank leaves; rank 0 waits for the others.
struct Meeting {
  ServerHandle server;
  std::shared_ptr<Store> store;
};

RankEnv who_am_i(const InitOptions& options) {
  RankEnv env = read_rank_env();
  // A fake world has no other ranks to meet, so any init_method may give its rank and size.
  const bool said = options.rank >= 0 || options.world_size >= 0;
  if (options.init_method == "env://" && !(options.backend == "fake" && said)) {
    check<UsageError>(options.rank < 0 && options.world_size < 0,
                      "init_process_group: rank and world_size go with init_method "
                      "tcp://host:port or file:///path; env:// reads them from the "
                      "environment");
    return env;
  }
  check<UsageError>(
      options.rank >= 0 && options.world_size > options.rank,
      "init_process_group: init_method {} needs rank and world_size (given: {} and {})",
      options.init_method, options.rank, options.world_size);
  env.rank = options.rank;
  env.world_size = options.world_size;
  return env;
}

}  // namespace

namespace detail {
std::string backend_for(const InitOptions& options, const RankEnv& env) {
  const bool several_hosts = options.init_method == "env://" && env.local_world_size > 0 &&
                             env.local_world_size < env.world_size;
  return options.backend == "local" && several_hosts ? "hybrid" : options.backend;
}
}  // namespace detail

Group init_process_group(const InitOptions& options) {
  // Only if there is a folder for dumps; otherwise SIGUSR2 and the other signals keep their
  // meaning.
  if (!flight::flight_folder().empty()) install_signal_handlers();
  mend_blas();
  const RankEnv env = who_am_i(options);
  detail::BackendSpec spec;
  spec.rank = env.rank;
  spec.size = env.world_size;
  spec.timeout = options.timeout;
  spec.across = options.across;
  spec.check = options.check;
  spec.tuned = options.tuned;
  // A fake world has no other ranks to meet.
  if (options.backend != "fake") {
    auto meeting = std::make_shared<Meeting>();
    if (env.world_size == 1)
      meeting->store = std::make_shared<MemoryStore>();
    else
      meeting->store =
          open_store(env, options.init_method, Deadline::after(options.timeout), meeting->server);
    // The server closes with the last user of its store.
    spec.store = std::make_shared<PrefixStore>(
        std::shared_ptr<Store>(meeting, meeting->store.get()), spec.name);
  }
  const std::string backend = detail::backend_for(options, env);
  if (backend != options.backend && env.rank == 0)
    log_info("ranks are on several hosts: backend hybrid, {} between hosts", options.across);
  return Group(detail::make_backend(backend, spec));
}

}  // namespace trireme
