// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"
#include "trireme/base/rank_label.h"
#include "trireme/base/signals.h"
#include "trireme/comm/blas.h"
#include "trireme/comm/by_device.h"
#include "trireme/comm/flight/dump.h"
#include "trireme/comm/local_backend.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/run.h"
#include "trireme/comm/tuned_backend.h"
#include "trireme/rendezvous/rank_env.h"
#include "trireme/rendezvous/rendezvous.h"
#include "trireme/store/memory_store.h"

namespace trireme {
namespace {

// The last group handle that goes closes the store, after its engine has said that this rank
// leaves; rank 0 waits for the others.
struct Meeting {
  ServerHandle server;
  std::shared_ptr<Store> store;
};

RankEnv who_am_i(const InitOptions& options) {
  RankEnv env = read_rank_env();
  // A fake world meets nobody: who it is may be said with any init_method.
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

std::shared_ptr<detail::Backend> local_world(const RankEnv& env, std::shared_ptr<Meeting> meeting,
                                             Duration timeout) {
  if (env.world_size == 1)
    return detail::local_thread_backend(std::make_shared<local::ThreadWorld>(1), 0, timeout);
  // Under a name of its own, each group of some of the ranks meets in the same way.
  auto make_host = [store = meeting->store.get(), timeout](int rank, int size,
                                                           const std::string& name) {
    local::Exchange exchange{
        [&](const std::string& key, const std::string& value) {
          store->set(name + "/" + key, value);
        },
        [&](const std::string& key, Deadline until) { return store->get(name + "/" + key, until); },
        [&](const std::string& key) { return store->try_get(name + "/" + key); },
        [&](const std::string& key, const std::string& value) {
          key.empty() ? store->clear_will() : store->set_will(name + "/" + key, value);
        }};
    return local::process_host(rank, size, exchange, Deadline::after(timeout));
  };
  auto host = make_host(env.rank, env.world_size, "world");
  return detail::local_backend(std::move(host), timeout, meeting, make_host);
}

}  // namespace

Group init_process_group(const InitOptions& options) {
  // Where a dump has a place to go; else SIGUSR2 and the rest mean what they meant before.
  if (!flight::flight_folder().empty()) install_signal_handlers();
  mend_blas();
  const RankEnv env = who_am_i(options);
  if (options.backend == "local" && env.world_size == 1)
    return Group(
        detail::local_thread_backend(std::make_shared<local::ThreadWorld>(1), 0, options.timeout));
  if (options.backend == "fake") {
    detail::BackendSpec spec;
    spec.rank = env.rank;
    spec.size = env.world_size;
    spec.timeout = options.timeout;
    return Group(detail::make_backend(options.backend, spec));
  }
  const Deadline deadline = Deadline::after(options.timeout);
  auto meeting = std::make_shared<Meeting>();
  if (env.world_size == 1)
    meeting->store = std::make_shared<MemoryStore>();
  else
    meeting->store = open_store(env, options.init_method, deadline, meeting->server);
  if (options.backend == "local") {
    auto world = local_world(env, meeting, options.timeout);
    return Group(options.tuned ? detail::tuned_by_cache(std::move(world), meeting->store) : world);
  }

  detail::BackendSpec spec;
  spec.rank = env.rank;
  spec.size = env.world_size;
  spec.timeout = options.timeout;
  spec.across = options.across;
  spec.check = options.check;
  spec.tuned = options.tuned;
  // The server closes with the last user of its store.
  spec.store = std::make_shared<PrefixStore>(std::shared_ptr<Store>(meeting, meeting->store.get()),
                                             spec.name);
  if (!detail::is_by_device(options.backend))
    return Group(detail::make_backend(options.backend, spec));
  return Group(detail::by_device_backend(
      options.backend, [&](const std::string& name, const std::string& device) {
        detail::BackendSpec own = spec;
        own.name += "/" + device;
        return name == "local" ? local_world(env, meeting, options.timeout)
                               : detail::make_backend(name, own);
      }));
}

}  // namespace trireme
