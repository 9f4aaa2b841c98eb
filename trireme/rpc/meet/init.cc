// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "trireme/rpc/agent/agent.h"
#include "trireme/rpc/meet/meet.h"
#include "trireme/rpc/object/objects.h"
#include "trireme/rpc/rpc.h"

namespace trireme::rpc {

Worker init(Options options) {
  detail::Met met = detail::meet(std::move(options));
  auto agent = std::make_shared<detail::Agent>(std::move(met.options), met.process_rank);
  agent->objects()->reach_by([weak = std::weak_ptr(agent)](
                                 int64_t member,
                                 const std::string& name) -> std::shared_ptr<detail::Line> {
    const auto agent = weak.lock();
    if (!agent) throw Aborted("the worker has shut down");
    const Duration patience = agent->options().deadline;
    return agent->line_to(
        member, name, patience == Duration::max() ? Deadline::never() : Deadline::after(patience));
  });
  agent->start();
  return Worker(std::move(agent));
}

}  // namespace trireme::rpc
