// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "trireme/rpc/agent/agent.h"
#include "trireme/rpc/meet/meet.h"
#include "trireme/rpc/rpc.h"

namespace trireme::rpc {

Worker init(Options options) {
  detail::Met met = detail::meet(std::move(options));
  auto agent = std::make_shared<detail::Agent>(std::move(met.options), met.process_rank);
  agent->start();
  return Worker(std::move(agent));
}

}  // namespace trireme::rpc
