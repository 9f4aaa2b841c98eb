// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/blas.h"
#include "trireme/comm/local_backend.h"
#include "trireme/comm/run.h"
#include "trireme/store/rank_env.h"
#include "trireme/store/rendezvous.h"

namespace trireme {
namespace {

// The last group handle that goes closes the store, after its engine has said that this rank
// leaves; rank 0 waits for the others.
struct Meeting {
  ServerHandle server;
  std::unique_ptr<Store> store;
};

RankEnv who_am_i(const InitOptions& options) {
  RankEnv env = read_rank_env();
  if (options.init_method == "env://") {
    check<UsageError>(options.rank < 0 && options.world_size < 0,
                      "init_process_group: rank and world_size go with init_method "
                      "tcp://host:port; env:// reads them from the "
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

Group init_process_group(const InitOptions& options) {
  check<UsageError>(options.backend == "local",
                    "init_process_group: backend '{}' is not in this build; 'local' is",
                    options.backend);
  mend_blas();
  const RankEnv env = who_am_i(options);
  if (env.world_size == 1) {
    auto world = std::make_shared<local::ThreadWorld>(1);
    return Group(detail::local_backend(local::thread_host(world, 0), options.timeout));
  }
  const Deadline deadline = Deadline::after(options.timeout);
  auto meeting = std::make_shared<Meeting>();
  meeting->store = open_store(env, options.init_method, deadline, meeting->server);
  local::Exchange exchange{
      [&](const std::string& key, const std::string& value) { meeting->store->set(key, value); },
      [&](const std::string& key, Deadline until) { return meeting->store->get(key, until); }};
  auto host = local::process_host(env.rank, env.world_size, exchange, deadline);
  return Group(detail::local_backend(std::move(host), options.timeout, meeting));
}

}  // namespace trireme
