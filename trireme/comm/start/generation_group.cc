// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/start/generation_group.h"

#include "trireme/base/check.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/backend_for.h"
#include "trireme/store/memory_store.h"

namespace trireme {

Group group_of_generation(const InitOptions& options, GenerationMember& member, int size) {
  const int rank = member.rank();
  check<UsageError>(rank >= 0 && rank < size,
                    "worker {} is not among the {} ranks that meet in generation {}", member.id(),
                    size, member.generation().number);
  detail::BackendSpec spec;
  spec.rank = rank;
  spec.size = size;
  spec.timeout = options.timeout;
  spec.across = options.across;
  spec.check = options.check;
  spec.tuned = options.tuned;
  std::shared_ptr<Store> store =
      size > 1 ? member.meeting() : std::shared_ptr<Store>(std::make_shared<MemoryStore>());
  spec.store = std::make_shared<PrefixStore>(std::move(store), spec.name);
  Group group(detail::make_backend(detail::backend_for(options, read_rank_env()), spec));
  member.has_formed();
  return group;
}

}  // namespace trireme
